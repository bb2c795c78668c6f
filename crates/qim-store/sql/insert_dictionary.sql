-- Adds a dictionary. One that is there stays.
--
-- ?1 id, ?2 dictionary
INSERT INTO dictionaries (id, dictionary, needed_until) VALUES (?1, ?2, 0) ON CONFLICT (id) DO NOTHING
