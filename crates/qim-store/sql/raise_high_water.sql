-- Raises the high-water mark; never lowers it.
--
-- ?1 id, ?2 high_water
UPDATE conversations SET high_water = ?2 WHERE id = ?1 AND high_water < ?2
