-- Commits messages to one conversation: all or none.
--
-- KEYS  1 conversation  2 fingerprints  3 msghistorygc  4 unarchived  5 trim  6 stats
-- ARGV  1 storage id  2 now, ms  3 the floor that must still stand, or '' for any
--       then for each message: fingerprint, expires_at to register or '-' for none (SPEC A18), record, created_at
-- The caller has put the records in order of created_at.
-- Returns {'ok', seq of the first} or, with nothing changed,
--   {'known', i, seq, value, ...}  messages (from 1) that were committed before, and what stands there ('' where it
--                                  was collected)
--   {'date', ms}                   the first record is older than the last one of the conversation
--   {'floor', seq}                 the floor moved
--   {'corrupt', reason}
local h, reason = load_header(KEYS[1])
if reason then
  return { 'corrupt', reason }
end
local is_new = not h
h = h or new_header()
if ARGV[3] ~= '' and h.floor ~= tonumber(ARGV[3]) then
  return { 'floor', h.floor }
end

local known = { 'known' }
for i = 4, #ARGV, 4 do
  local seq = find_fingerprint(h, KEYS[2], ARGV[i])
  if seq then
    local value = redis.call('LINDEX', KEYS[1], seq - h.floor + 1)
    if not value or is_tombstone(value) then
      value = ''
    end
    known[#known + 1] = (i - 4) / 4 + 1
    known[#known + 1] = seq
    known[#known + 1] = value
  end
end
if #known > 1 then
  return known
end
if tonumber(ARGV[7]) < h.created then
  return { 'date', h.created }
end

-- The first write is the one that grows memory: at the limit Redis refuses it, and with it all the others.
local first = h.last + 1
local values = {}
if is_new then
  values[1] = pack_header(h)
end
for i = 6, #ARGV, 4 do
  values[#values + 1] = ARGV[i]
end
redis.call('RPUSH', KEYS[1], unpack(values))

local count = (#ARGV - 3) / 4
local was_empty = h.last < h.floor
local was_archived = h.archived == h.last
h.last = h.last + count
h.created = tonumber(ARGV[#ARGV])
local due = {}
for i = 0, count - 1 do
  local at, seq = 4 + i * 4, first + i
  add_fingerprint(h, KEYS[2], ARGV[at], seq)
  if ARGV[at + 1] ~= '-' then
    due[#due + 1] = ARGV[at + 1]
    due[#due + 1] = ARGV[1] .. '\0' .. string.format('%.0f', seq)
  end
end
flush_buckets(h, KEYS[2])
redis.call('LSET', KEYS[1], 0, pack_header(h))
if #due > 0 then
  redis.call('ZADD', KEYS[3], unpack(due))
end
if was_archived then
  redis.call('ZADD', KEYS[4], 'NX', ARGV[2], ARGV[1])
end
if was_empty then
  redis.call('ZADD', KEYS[5], ARGV[7], ARGV[1])
end
redis.call('HINCRBY', KEYS[6], 'hot', count)
redis.call('HINCRBY', KEYS[6], 'unarchived', count)
return { 'ok', first }
