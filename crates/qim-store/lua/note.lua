-- Notes one small fact, also at the memory limit: signs of life and names of damaged data must not wait for room.
--
-- KEYS  1 hash
-- ARGV  1 field  2 value
-- Returns nothing.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
