-- Commits messages to one or more conversations of one node: each conversation all or none, whatever becomes of the
-- others. At most 512 messages a call.
--
-- KEYS  1 lineage  then one for each conversation: its list. The other keys it may take are named after that one and
--       carry its tag: "f:..." and "l:..." beside it, and msghistorygc, unarchived, trim, stats and idle of its shard
-- ARGV  1 now, ms  2 the lineage  then for each conversation a batch (appending.lua), its records in order of created_at
-- Returns an error LINEAGE or QUARANTINE (lineage.lua), with nothing changed; else for each conversation the seq of the
-- first or, with nothing changed in it,
--   {'known', i, seq, value, ...}  messages (from 1) that were committed before, and what stands there ('' where it
--                                  was collected)
--   {'date', ms}                   the first record is older than the last one of the conversation
--   {'floor', seq}                 the floor moved
--   {'doubt'}                      it was not settled in this lineage (lineage.lua)
--   {'corrupt', reason}
--   {'error', text}                Redis refused a write
local now = ARGV[1]
-- The lists of pieces of the conversation at hand, once they are stored.
local stored = {}
local number, doubted_at

local function rested_or_new(key)
  local shard, id = names(key)
  local last, created, lineage = idle_get(shard .. 'idle', id)
  return last and resting_header(last, created, lineage) or new_header()
end

-- What was committed before among the records from ARGV[a]: the reply, or nil.
local function known(h, key, ids, a)
  if h.last < h.floor then
    return nil
  end
  local reply
  for i = 1, ids.count do
    local seq = find_known(h, key, ids, i, ARGV[a + i - 1])
    if seq then
      local value = value_at(key, h, seq)
      reply = reply or { 'known' }
      reply[#reply + 1] = i
      reply[#reply + 1] = seq
      reply[#reply + 1] = is_tombstone(value) and '' or value
    end
  end
  return reply
end

-- `packed` is the conversation's header, off the list, or false.
local function commit(key, packed, batch)
  local ids, a, floor = batch.ids, batch.a, batch.floor
  local count, h, reason = ids.count, nil, nil
  if packed then
    h, reason = parse_header(packed)
    if reason then
      return { 'corrupt', reason }
    end
  else
    h = rested_or_new(key)
  end
  if doubted_at > 0 and h.lineage ~= number then
    return { 'doubt' }
  end
  if floor > 0 and h.floor ~= floor then
    return { 'floor', h.floor }
  end
  local reply = known(h, key, ids, a)
  if reply then
    return reply
  end
  local oldest = created_at(ARGV[a])
  if oldest < h.created then
    return { 'date', h.created }
  end

  local first, was_empty, was_archived = h.last + 1, h.last < h.floor, h.archived == h.last
  if h.live > h.last then
    h.live_until = expires_at(ARGV[a])
  end
  h.lineage = number
  h.created = count == 1 and oldest or created_at(ARGV[a + count - 1])
  remember(h, key, ids)
  if batch.pieces < batch.pieces_end then
    push_pieces(key, first, a, count, batch.pieces, batch.pieces_end, stored)
  end
  if push(key, h, a, count) ~= places(h) + 1 then
    redis.call('LTRIM', key, 0, -count - 2)
    return { 'corrupt', WRONG_LENGTH }
  end
  if h.bucket_count > 0 then
    flush_buckets(h, key)
  end
  register_expiries(key, batch, 1, first)
  if was_archived then
    register_conversation(key, h, was_empty and oldest, now)
  end
  return first
end

-- The header of a conversation whose new records are not in its list, and their pieces.
local function take_back(key, packed)
  if packed then
    redis.call('RPUSH', key, packed)
  end
  if #stored > 0 then
    redis.call('DEL', unpack(stored))
  end
end

-- What goes wrong in one conversation is answered for that one.
local function attempt(key, batch)
  if #stored > 0 then
    stored = {}
  end
  local packed = redis.pcall('RPOP', key)
  if type(packed) == 'table' then
    local foreign = string.find(packed.err, 'WRONGTYPE', 1, true)
    return { foreign and 'corrupt' or 'error', foreign and NOT_A_LIST or packed.err }
  end
  local done, reply = pcall(commit, key, packed, batch)
  if not done then
    reply = { 'error', type(reply) == 'table' and reply.err or tostring(reply) }
  end
  if (packed or #stored > 0) and type(reply) == 'table' then
    if string.byte(redis.call('LINDEX', key, -1) or '') ~= LAYOUT then
      take_back(key, packed)
    end
  end
  return reply
end

number, doubted_at = lineage_of_call(KEYS[1], ARGV[2])
if not number then
  return doubted_at
end
local refused = quarantine(doubted_at)
if refused then
  return refused
end
local replies, committed, a = {}, 0, 3
for k = 2, #KEYS do
  local batch = read_batch(ARGV[a], a + 1)
  local reply = attempt(KEYS[k], batch)
  replies[k - 1] = reply
  if type(reply) == 'number' then
    committed = committed + batch.ids.count
  end
  a = batch.pieces_end
end
if committed > 0 then
  -- Only the sum over all shards means something (src/hot/stats.rs): one is as good as another.
  redis.call('HINCRBY', names(KEYS[2]) .. 'stats', 'committed', committed)
end
return replies
