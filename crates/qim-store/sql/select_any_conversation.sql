-- Whether there is any conversation. Rows: at most one of (1)
SELECT 1 FROM conversations LIMIT 1
