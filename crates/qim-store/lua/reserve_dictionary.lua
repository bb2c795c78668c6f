-- Gives the next dictionary its number: one that neither tier has had.
--
-- KEYS  1 dictionaries
-- ARGV  1 the highest number in the archive
-- Returns the number.
local last = math.max(tonumber(redis.call('HGET', KEYS[1], 'last') or '0'), tonumber(ARGV[1]))
redis.call('HSET', KEYS[1], 'last', last + 1)
return last + 1
