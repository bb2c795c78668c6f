-- Writes the client ids of a chunk in place of those that were there.
--
-- ?1 conv, ?2 chunk, ?3 sweep_at, ?4 ids
INSERT INTO client_ids (conv, chunk, sweep_at, ids)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (conv, chunk) DO UPDATE SET sweep_at = excluded.sweep_at, ids = excluded.ids
