-- Moves the archived mark of one conversation up, for the archiver that holds the lease of its shard.
--
-- KEYS  1 conversation  2 unarchived  3 stats  4 lease  5 trim  6 set aside  7 idle
-- ARGV  1 storage id  2 fencing token  3 the new mark
-- Returns {'ok', archived, last}, {'fenced'} or {'corrupt', reason}. The mark never goes back.
if redis.call('GET', KEYS[4]) ~= ARGV[2] then
  return { 'fenced' }
end
local h, reason = load_header(KEYS[1], KEYS[7], ARGV[1])
if not h then
  return { 'corrupt', reason or 'there is no conversation' }
end
local mark = tonumber(ARGV[3])
if mark > h.last then
  return { 'corrupt', 'the archive holds seqs that were never committed here' }
end
local before = h.archived
h.archived = math.max(h.archived, mark)
if not h.rests then
  store_header(KEYS[1], h)
end
redis.call('HINCRBY', KEYS[3], 'archived', h.archived - before)
redis.call('HDEL', KEYS[6], ARGV[1] .. '\0')
-- A trim that had to wait for the archive need not wait any longer.
if h.floor <= h.last then
  redis.call('ZADD', KEYS[5], created_at(value_at(KEYS[1], h, h.floor)), ARGV[1])
end
if h.archived == h.last then
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  -- It waits since the next one was created; no earlier than before, where that was imported.
  redis.call('ZADD', KEYS[2], 'XX', 'GT', created_at(value_at(KEYS[1], h, h.archived + 1)), ARGV[1])
end
return { 'ok', h.archived, h.last }
