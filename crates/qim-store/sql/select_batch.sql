-- What stands under the seqs of a batch, expired or not.
--
-- ?1 conv, ?2 first seq, ?3 last seq
-- Rows: (seq, record), ascending by seq
SELECT seq, record FROM records WHERE conv = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq
