-- Removes records that have left the hot window from the front of one conversation, together with their entries in
-- the expiry index (SPEC A16), for the archiver that holds the lease of its shard. Nothing goes before its archive
-- copy is durable or it has expired (SPEC A20): `archived` says so, and the archiver has read the copies back.
--
-- KEYS  1 conversation  2 fingerprints  3 msghistorygc  4 unarchived  5 trim  6 stats  7 lease
--       8 idle  and it may take "l:..." beside the conversation
-- ARGV  1 storage id  2 fencing token  3 now, ms  4 cutoff: created_at of the youngest to go, ms
--       5 the highest seq that may go  6 the floor that must still stand
--       7 the score in the trim index of a conversation whose front is due and may not go yet
-- Returns {'ok', removed, floor, last, 1 when the next one may be due too}, {'fenced'}, {'floor', seq} or
-- {'corrupt', reason}. At most 512 a call.
local MAX = 512

if redis.call('GET', KEYS[7]) ~= ARGV[2] then
  return { 'fenced' }
end
local h, reason = load_header(KEYS[1], KEYS[8], ARGV[1])
if reason then
  return { 'corrupt', reason }
end
if not h or h.rests then
  redis.call('ZREM', KEYS[5], ARGV[1])
  return { 'ok', 0, h and h.floor or 1, h and h.last or 0, 0 }
end
local now, cutoff, upto = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if h.floor ~= tonumber(ARGV[6]) then
  return { 'floor', h.floor }
end

local function may_go(value, seq)
  if is_tombstone(value) then
    return created_at(value) <= cutoff
  end
  if not is_record(value) or created_at(value) > cutoff then
    return false
  end
  local expiry = expires_at(value)
  return seq <= h.archived or (expiry ~= 0 and expiry <= now)
end

-- Not the header, even where `upto` is above the last.
local width = math.min(MAX, upto - h.floor + 1, places(h))
local front = front_of(KEYS[1], h, width, may_go)
local removed = front.removed
if removed > 0 then
  remove_front(KEYS[1], h, front)
end

local more = 0
if h.floor > h.last then
  redis.call('ZREM', KEYS[5], ARGV[1])
else
  local oldest = created_at(value_at(KEYS[1], h, h.floor))
  if oldest <= cutoff then
    if removed > 0 and h.floor <= h.archived then
      more = 1
    else
      oldest = ARGV[7]
    end
  end
  redis.call('ZADD', KEYS[5], oldest, ARGV[1])
end
return { 'ok', removed, h.floor, h.last, more }
