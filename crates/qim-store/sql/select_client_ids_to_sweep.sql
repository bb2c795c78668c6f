-- Chunks with client ids whose time has come, the oldest first.
--
-- ?1 now, ?2 how many at most
-- Rows: (conv, chunk, ids)
SELECT conv, chunk, ids FROM client_ids WHERE sweep_at <= ?1 ORDER BY sweep_at LIMIT ?2
