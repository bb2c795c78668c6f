-- Moves the archived mark of one conversation up, for the archiver that holds the lease of its shard.
--
-- KEYS  1 conversation  2 unarchived  3 stats  4 lease  5 trim  6 set aside  7 idle  8 aside
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
-- This Redis has lost since what was copied. A writer puts it back, or the archive is asked how far it went.
if mark > h.last then
  return { 'ok', h.archived, h.last }
end
local before = h.archived
h.archived = math.max(h.archived, mark)
if not h.rests then
  store_header(KEYS[1], h)
end
redis.call('HINCRBY', KEYS[3], 'archived', h.archived - before)
redis.call('HDEL', KEYS[6], ARGV[1] .. '\0')
-- It need not rest any longer either, and waits as long as it ever did.
local waits_since = redis.call('ZSCORE', KEYS[8], ARGV[1])
if waits_since then
  redis.call('ZREM', KEYS[8], ARGV[1])
  redis.call('ZADD', KEYS[2], 'XX', waits_since, ARGV[1])
end
-- A trim that had to wait for the archive need not wait any longer.
if h.floor <= h.last then
  redis.call('ZADD', KEYS[5], created_at(value_at(KEYS[1], h, h.floor)), ARGV[1])
end
if h.archived == h.last then
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  -- It waits since the next one was created; no earlier than before, where that was imported, and not since a time that is
  -- still to come, where a clock was ahead.
  local since = created_at(value_at(KEYS[1], h, h.archived + 1))
  if since <= server_ms() then
    redis.call('ZADD', KEYS[2], 'XX', 'GT', since, ARGV[1])
  end
end
return { 'ok', h.archived, h.last }
