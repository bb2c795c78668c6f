-- The smallest script that can do a commit: dedupe, allocate seqs, write, index.
--
-- KEYS  1 conversation (list)  2 ids (hash)  3 index (ZSET)
-- ARGV  1 conversation  2 now, ms  then for each message: id, record
-- Returns the seq of the first, or -1 where one of them is known.
local ids, records, n = {}, {}, (#ARGV - 2) / 2
for i = 1, n do
  ids[i] = ARGV[1 + 2 * i]
  records[i] = ARGV[2 + 2 * i]
end
for _, seq in ipairs(redis.call('HMGET', KEYS[2], unpack(ids))) do
  if seq then
    return -1
  end
end
local first = redis.call('RPUSH', KEYS[1], unpack(records)) - n + 1
local seqs = {}
for i = 1, n do
  seqs[2 * i - 1] = ids[i]
  seqs[2 * i] = first + i - 1
end
redis.call('HSET', KEYS[2], unpack(seqs))
redis.call('ZADD', KEYS[3], 'NX', ARGV[2], ARGV[1])
return first
