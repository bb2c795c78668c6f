-- All dictionaries without their bytes, ascending. Rows: (id, needed_until)
SELECT id, needed_until FROM dictionaries ORDER BY id
