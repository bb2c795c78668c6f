-- Deletes some of the expired records, those first that expired first.
--
-- ?1 now, ?2 how many at most
DELETE FROM records
WHERE (conv, seq) IN (
  SELECT conv, seq FROM records WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2
)
