-- Adds a record that is not there; fails where one is.
--
-- ?1 conv, ?2 seq, ?3 expires_at or NULL, ?4 record
INSERT INTO records (conv, seq, expires_at, record) VALUES (?1, ?2, ?3, ?4)
