-- Forgets some of the client ids whose time has come, the oldest first.
--
-- ?1 forget_at, ?2 how many at most
DELETE FROM client_ids
WHERE (conv, id_hash) IN (
  SELECT conv, id_hash FROM client_ids WHERE forget_at <= ?1 ORDER BY forget_at LIMIT ?2
)
