-- What was committed under a client id.
--
-- ?1 conv, ?2 id_hash
-- Rows: at most one of (seq, body_digest, created_at, expires_at or NULL)
SELECT seq, body_digest, created_at, expires_at FROM client_ids WHERE conv = ?1 AND id_hash = ?2
