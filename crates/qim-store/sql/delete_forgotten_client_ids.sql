-- Forgets some of the client ids that were committed up to a date, the oldest first.
--
-- ?1 created_at, ?2 how many at most
DELETE FROM client_ids
WHERE (conv, id_hash) IN (
  SELECT conv, id_hash FROM client_ids WHERE created_at <= ?1 ORDER BY created_at LIMIT ?2
)
