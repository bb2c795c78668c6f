-- Forgets the client ids of a chunk.
--
-- ?1 conv, ?2 chunk
DELETE FROM client_ids WHERE conv = ?1 AND chunk = ?2
