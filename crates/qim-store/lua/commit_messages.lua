-- Commits messages to one or more conversations of one node: each conversation all or none, whatever becomes of the
-- others. At most 512 messages a call.
--
-- KEYS  for each conversation: conversation, fingerprints, msghistorygc, unarchived, trim, stats, idle
-- ARGV  1 now, ms
--       then for each conversation: storage id, the floor that must still stand or '' for any, number of messages, and
--       for each message: expires_at to register or '-' for none (SPEC A18), record
-- The caller has put the records of a conversation in order of created_at.
-- Returns for each conversation {'ok', seq of the first} or, with nothing changed in it,
--   {'known', i, seq, value, ...}  messages (from 1) that were committed before, and what stands there ('' where it
--                                  was collected)
--   {'date', ms}                   the first record is older than the last one of the conversation
--   {'floor', seq}                 the floor moved
--   {'corrupt', reason}
--   {'error', text}                Redis refused a write, such as at its memory limit
local KEYS_EACH, ARGS_EACH = 7, 2
local now = ARGV[1]

-- `k` and `a` are where the conversation's keys and messages begin.
local function commit(k, a, id, floor, count)
  local h, reason = load_header(KEYS[k], KEYS[k + 6], id)
  if reason then
    return { 'corrupt', reason }
  end
  h = h or new_header()
  if floor ~= '' and h.floor ~= tonumber(floor) then
    return { 'floor', h.floor }
  end

  local values, identities = {}, {}
  for i = 1, count do
    values[i] = ARGV[a + i * ARGS_EACH - 1]
    identities[i] = identity_of(values[i])
  end
  local known, found = { 'known' }, find_known(h, KEYS[k], KEYS[k + 1], identities)
  for i = 1, count do
    if found[i] then
      local value = redis.call('LINDEX', KEYS[k], found[i] - h.floor + 1)
      if not value or is_tombstone(value) then
        value = ''
      end
      known[#known + 1] = i
      known[#known + 1] = found[i]
      known[#known + 1] = value
    end
  end
  if #known > 1 then
    return known
  end
  local oldest, newest = created_at(values[1]), created_at(values[count])
  if oldest < h.created then
    return { 'date', h.created }
  end

  -- The first write is the one that grows memory: at the limit Redis refuses it, and with it all the others.
  if h.last < h.floor then
    -- New, or at rest until now: there is no list yet.
    redis.call('RPUSH', KEYS[k], pack_header(h), unpack(values))
    if h.rests then
      idle_remove(KEYS[k + 6], KEYS[k + 5], id)
    end
  else
    redis.call('RPUSH', KEYS[k], unpack(values))
  end

  local first = h.last + 1
  local was_empty, was_archived = h.last < h.floor, h.archived == h.last
  h.last = h.last + count
  h.created = newest
  remember(h, KEYS[k], KEYS[k + 1], identities, first)
  local due = {}
  for i = 1, count do
    local date = ARGV[a + (i - 1) * ARGS_EACH]
    if date ~= '-' then
      due[#due + 1] = date
      due[#due + 1] = id .. '\0' .. string.format('%.0f', first + i - 1)
    end
  end
  redis.call('LSET', KEYS[k], 0, pack_header(h))
  if #due > 0 then
    redis.call('ZADD', KEYS[k + 2], unpack(due))
  end
  if was_archived then
    redis.call('ZADD', KEYS[k + 3], 'NX', now, id)
  end
  if was_empty then
    redis.call('ZADD', KEYS[k + 4], oldest, id)
  end
  redis.call('HINCRBY', KEYS[k + 5], 'committed', count)
  return { 'ok', first }
end

local replies, a = {}, 2
for k = 1, #KEYS, KEYS_EACH do
  local id, floor, count = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2])
  -- What goes wrong in one conversation is answered for that one.
  local done, reply = pcall(commit, k, a + 3, id, floor, count)
  if not done then
    reply = { 'error', type(reply) == 'table' and reply.err or tostring(reply) }
  end
  replies[#replies + 1] = reply
  a = a + 3 + count * ARGS_EACH
end
return replies
