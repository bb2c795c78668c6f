-- Takes places off the front of a conversation that the archive has, whatever their age, so that it can go on at a much
-- higher seq: what is hot has no holes. At most 512 a call.
--
-- KEYS  1 lineage  2 the conversation's list
-- ARGV  1 the lineage  2 now, ms  3 the highest seq that may go: whose copies the caller has just read back
-- Returns the places that are left. Where the first of them is not archived, none is taken.
local key = KEYS[2]
local number, refusal = lineage_of_call(KEYS[1], ARGV[1])
if not number then
  return refusal
end
local shard, id = names(key)
local h, reason = load_header(key, shard .. 'idle', id)
if reason then
  return redis.error_reply('ERR ' .. reason)
end
if not h or h.rests then
  return 0
end
local now = tonumber(ARGV[2])
local front = front_of(key, h, math.min(512, places(h), tonumber(ARGV[3]) - h.floor + 1), function(value, seq)
  return seq <= h.archived or is_tombstone(value) or (expires_at(value) ~= 0 and expires_at(value) <= now)
end)
if front.removed > 0 then
  remove_front(key, h, front)
  if h.floor > h.last then
    redis.call('ZREM', shard .. 'trim', id)
  else
    redis.call('ZADD', shard .. 'trim', created_at(value_at(key, h, h.floor)), id)
  end
end
return places(h)
