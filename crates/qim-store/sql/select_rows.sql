-- The unexpired rows of a range.
--
-- ?1 tenant, ?2 conversation, ?3 from, ?4 below, ?5 now
-- Rows: (seq, expires_at or NULL, record), ascending by seq
SELECT seq, expires_at, record
FROM records
WHERE conv = (SELECT id FROM conversations WHERE tenant = ?1 AND conversation = ?2)
  AND seq >= ?3 AND seq < ?4
  AND (expires_at IS NULL OR expires_at > ?5)
ORDER BY seq
