-- The gaps of a conversation, ascending.
--
-- ?1 tenant, ?2 conversation. Rows: (first, last, noticed_at)
SELECT first, last, noticed_at
FROM gaps
WHERE conv = (SELECT id FROM conversations WHERE tenant = ?1 AND conversation = ?2)
ORDER BY first
