-- The client ids of a chunk.
--
-- ?1 conv, ?2 chunk
-- Rows: at most one of (ids)
SELECT ids FROM client_ids WHERE conv = ?1 AND chunk = ?2
