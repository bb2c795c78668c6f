-- The number that stands for a conversation, and its high-water mark.
--
-- ?1 tenant, ?2 conversation
-- Rows: at most one of (id, high_water)
SELECT id, high_water FROM conversations WHERE tenant = ?1 AND conversation = ?2
