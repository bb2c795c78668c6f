-- The rows of a range, expired or not; the reader stops when it has enough.
--
-- ?1 tenant, ?2 conversation, ?3 from, ?4 below
-- Rows: (seq, expires_at or NULL, record), descending by seq
SELECT seq, expires_at, record
FROM records
WHERE conv = (SELECT id FROM conversations WHERE tenant = ?1 AND conversation = ?2)
  AND seq >= ?3 AND seq < ?4
ORDER BY seq DESC
