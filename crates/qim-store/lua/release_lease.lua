-- Gives up the lease of a shard, where it is still held.
--
-- KEYS  1 lease
-- ARGV  1 the token held
-- Returns 1 when it was held, else 0.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
