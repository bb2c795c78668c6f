-- ?1 id
DELETE FROM dictionaries WHERE id = ?1
