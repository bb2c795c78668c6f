-- What there is in a shard, and what waits (src/hot/stats.rs).
--
-- KEYS  1 stats  2 msghistorygc  3 unarchived  4 trim  5 set aside
-- ARGV  1 now, ms
-- Returns the counters committed, removed and archived, entries of msghistorygc that are due, entries set aside; then of
-- msghistorygc, unarchived and trim the lowest score, '' for none.
local counters = redis.call('HMGET', KEYS[1], 'committed', 'removed', 'archived')
local function lowest(key)
  return redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or ''
end
return {
  tonumber(counters[1] or 0),
  tonumber(counters[2] or 0),
  tonumber(counters[3] or 0),
  redis.call('ZCOUNT', KEYS[2], '-inf', ARGV[1]),
  redis.call('HLEN', KEYS[5]),
  lowest(KEYS[2]),
  lowest(KEYS[3]),
  lowest(KEYS[4]),
}
