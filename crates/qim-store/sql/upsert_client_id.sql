-- Remembers what was committed under a client id. Of two the later one stays.
--
-- ?1 conv, ?2 id_hash, ?3 seq, ?4 body_digest, ?5 created_at, ?6 expires_at or NULL, ?7 forget_at
INSERT INTO client_ids (conv, id_hash, seq, body_digest, created_at, expires_at, forget_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (conv, id_hash) DO UPDATE
SET seq = excluded.seq,
    body_digest = excluded.body_digest,
    created_at = excluded.created_at,
    expires_at = excluded.expires_at,
    forget_at = excluded.forget_at
WHERE (excluded.created_at, excluded.seq) > (client_ids.created_at, client_ids.seq)
