-- A dictionary. ?1 id. Rows: at most one of (dictionary)
SELECT dictionary FROM dictionaries WHERE id = ?1
