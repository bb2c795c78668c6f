-- Sets a conversation aside that the archiver cannot carry on with: it is named with the reason, copying and trimming
-- look at it again only after a while, and no other conversation waits for it.
--
-- KEYS  1 set aside  2 unarchived  3 trim  4 lease  5 aside: since when those wait for their copy that were put off
-- ARGV  1 storage id  2 fencing token  3 now, ms  4 when to copy again, ms  5 reason
--       6 when to trim again, on the scale of the trim index (created_at)
-- Returns 1, or 0 where another holds the lease.
if redis.call('GET', KEYS[4]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1] .. '\0', ARGV[3] .. ' archive ' .. ARGV[5])
local since = redis.call('ZSCORE', KEYS[2], ARGV[1])
if since then
  redis.call('ZADD', KEYS[5], 'NX', since, ARGV[1])
  redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
end
redis.call('ZADD', KEYS[3], 'XX', 'GT', ARGV[6], ARGV[1])
return 1
