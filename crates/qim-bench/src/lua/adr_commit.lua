-- The layout that the first design document proposes: a string a record, indexed by ZSETs, and a key for each id.
--
-- KEYS  1 prefix of the conversation's keys  2 GC index (ZSET)
-- ARGV  1 now, ms  2 expires_at, ms  3 how long an id is known, s  then for each message: id, record
-- Returns the seq of the first.
local first = false
for i = 4, #ARGV, 2 do
  local known = KEYS[1] .. ':dedupe:' .. ARGV[i]
  if not redis.call('GET', known) then
    local seq = redis.call('INCR', KEYS[1] .. ':seq')
    local key = KEYS[1] .. ':' .. seq
    redis.call('SET', key, ARGV[i + 1])
    redis.call('ZADD', KEYS[1] .. ':history', seq, key)
    redis.call('ZADD', KEYS[2], ARGV[2], key)
    redis.call('SET', known, seq, 'EX', ARGV[3])
    first = first or seq
  end
end
return first
