-- Keeps a dictionary for longer; never for less. ?1 id, ?2 needed_until
UPDATE dictionaries SET needed_until = ?2 WHERE id = ?1 AND needed_until < ?2
