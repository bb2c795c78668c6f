-- How many unexpired records a conversation has.
--
-- ?1 tenant, ?2 conversation, ?3 now
-- Rows: one of (count)
SELECT count(*)
FROM records
WHERE conv = (SELECT id FROM conversations WHERE tenant = ?1 AND conversation = ?2)
  AND (expires_at IS NULL OR expires_at > ?3)
