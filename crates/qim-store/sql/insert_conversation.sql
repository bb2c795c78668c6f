-- Makes a conversation known that is not.
--
-- ?1 tenant, ?2 conversation, ?3 high_water
-- Rows: one of (id)
INSERT INTO conversations (tenant, conversation, high_water) VALUES (?1, ?2, ?3) RETURNING id
