-- Notes a gap. One that is there stays.
--
-- ?1 id of the conversation, ?2 first, ?3 last, ?4 noticed_at
INSERT INTO gaps (conv, first, last, noticed_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (conv, first) DO NOTHING
