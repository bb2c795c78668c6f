-- Commits messages to one or more conversations of one node: each conversation all or none, whatever becomes of the
-- others. At most 512 messages a call.
--
-- KEYS  one for each conversation: its list. The other keys it may take are named after that one and carry its tag:
--       "f:..." and "l:..." beside it, and msghistorygc, unarchived, trim, stats and idle of its shard
-- ARGV  1 now, ms
--       then for each conversation: what it is about (SPEC), its records, in order of created_at, and the pieces of
--       those of them that are stubs (pieces.lua)
--       SPEC, big-endian: number of records H, of pieces I3, the floor that must still stand I6 or 0 for any, for each
--       record its hint of 2 bytes, for each its fingerprint of 8 (fingerprints.lua), and where one has to be
--       registered for GC (SPEC A18) for each its expires_at, I6, or 0
-- Returns for each conversation the seq of the first or, with nothing changed in it,
--   {'known', i, seq, value, ...}  messages (from 1) that were committed before, and what stands there ('' where it
--                                  was collected)
--   {'date', ms}                   the first record is older than the last one of the conversation
--   {'floor', seq}                 the floor moved
--   {'corrupt', reason}
--   {'error', text}                Redis refused a write
local now = ARGV[1]
-- The lists of pieces of the conversation at hand, once they are stored.
local stored = {}

-- Of the conversation with this list: what the names of its shard's keys begin with, and its storage id.
local function names(key)
  local tag_end = string.find(key, '}:c:', 1, true)
  return string.sub(key, 1, tag_end + 1), string.sub(key, tag_end + 4)
end

local function rested_or_new(key)
  local shard, id = names(key)
  local last, created = idle_get(shard .. 'idle', id)
  return last and resting_header(last, created) or new_header()
end

-- The pieces, from ARGV[p], of those records from ARGV[a] that are stubs, and get the seqs from `first`.
local function push_pieces(key, first, a, count, p, pieces)
  local stop = p + pieces
  for i = 0, count - 1 do
    local value = ARGV[a + i]
    if is_stub(value) then
      local from, missing = p, record_bytes(value)
      while missing > 0 and p < stop do
        missing = missing - #ARGV[p]
        p = p + 1
      end
      assert(missing == 0, 'the pieces are not as long as their stub says')
      local name = pieces_key(key, first + i)
      -- Nothing is there, unless somebody else deleted the conversation.
      redis.call('DEL', name)
      stored[#stored + 1] = name
      redis.call('RPUSH', name, unpack(ARGV, from, p - 1))
    end
  end
end

-- The records from ARGV[a], and the header behind them, to a list that holds so many places then: the reply where it
-- does not, or nil.
local function push(key, a, count, header, places_then)
  local length
  if count == 1 then
    length = redis.call('RPUSH', key, ARGV[a], header)
  else
    local values = { unpack(ARGV, a, a + count - 1) }
    values[count + 1] = header
    length = redis.call('RPUSH', key, unpack(values))
  end
  if length ~= places_then + 1 then
    redis.call('LTRIM', key, 0, -count - 2)
    return { 'corrupt', WRONG_LENGTH }
  end
  return nil
end

-- Enters those that GC has to collect in its index.
local function register_expiries(key, spec, first, count)
  local dates_from, due = SPEC_BYTES + count * (HINT_BYTES + FINGERPRINT_BYTES), {}
  if #spec == dates_from then
    return
  end
  local shard, id = names(key)
  for i = 1, count do
    local date = struct.unpack('>I6', spec, dates_from + 6 * i - 5)
    if date > 0 then
      due[#due + 1] = string.format('%.0f', date)
      due[#due + 1] = id .. '\0' .. string.format('%.0f', first + i - 1)
    end
  end
  redis.call('ZADD', shard .. 'msghistorygc', unpack(due))
end

-- Enters a conversation that had nothing to archive in the archiver's index.
local function register_unarchived(key)
  local shard, id = names(key)
  redis.call('ZADD', shard .. 'unarchived', 'NX', now, id)
end

-- Enters a conversation that was empty where trimming finds it, by the date of its first record.
local function register_trim(key, h, oldest)
  local shard, id = names(key)
  redis.call('ZADD', shard .. 'trim', oldest, id)
  if h.rests then
    idle_remove(shard .. 'idle', shard .. 'stats', id)
  end
end

-- What nearly every commit is, without tables and long strings: small records behind others, and no reason to look
-- closer. Answers and does what `commit` would; nil, with nothing done, where it takes that one.
local function commit_plainly(key, packed, spec, a, count)
  local last, floor, archived, created = plain_marks(packed)
  if not last or last - floor + 1 + count > HINTS_MAX or created_at(ARGV[a]) < created
    or may_have_hint(packed, spec, SPEC_BYTES, count) then
    return nil
  end
  local hints = string.sub(spec, SPEC_BYTES + 1, SPEC_BYTES + HINT_BYTES * count)
  local header = continue_header(packed, last + count, ARGV[a + count - 1], hints)
  local reply = push(key, a, count, header, last + count - floor + 1)
  if reply then
    return reply
  end
  register_expiries(key, spec, last + 1, count)
  if archived == last then
    register_unarchived(key)
  end
  return last + 1
end

-- The records of one conversation stand from ARGV[a], and behind them their pieces. `packed` is its header, off the list,
-- or false; `floor` the one that must still stand, or 0.
local function commit(key, packed, spec, a, count, pieces, floor)
  if packed and pieces == 0 and floor == 0 then
    local reply = commit_plainly(key, packed, spec, a, count)
    if reply then
      return reply
    end
  end
  local h, reason
  if packed then
    h, reason = parse_header(packed)
    if reason then
      return { 'corrupt', reason }
    end
  else
    h = rested_or_new(key)
  end
  if floor > 0 and h.floor ~= floor then
    return { 'floor', h.floor }
  end
  local ids = new_ids(spec, SPEC_BYTES, count)
  local reply = find_all_known(h, key, ids, a)
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
  h.created = count == 1 and oldest or created_at(ARGV[a + count - 1])
  remember(h, key, ids)
  if pieces > 0 then
    push_pieces(key, first, a, count, a + count, pieces)
  end
  reply = push(key, a, count, pack_header(h), places(h))
  if reply then
    return reply
  end
  if h.bucket_count > 0 then
    flush_buckets(h, key)
  end
  register_expiries(key, spec, first, count)
  if was_archived then
    register_unarchived(key)
  end
  if was_empty then
    register_trim(key, h, oldest)
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
local function attempt(key, ...)
  if #stored > 0 then
    stored = {}
  end
  local packed = redis.pcall('RPOP', key)
  if type(packed) == 'table' then
    local foreign = string.find(packed.err, 'WRONGTYPE', 1, true)
    return { foreign and 'corrupt' or 'error', foreign and NOT_A_LIST or packed.err }
  end
  local done, reply = pcall(commit, key, packed, ...)
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

local replies, committed, a = {}, 0, 2
for k = 1, #KEYS do
  local spec = ARGV[a]
  local count, pieces, floor = struct.unpack(SPEC, spec)
  replies[k] = attempt(KEYS[k], spec, a + 1, count, pieces, floor)
  if type(replies[k]) == 'number' then
    committed = committed + count
  end
  a = a + 1 + count + pieces
end
if committed > 0 then
  -- Only the sum over all shards means something (src/hot/stats.rs): one is as good as another.
  redis.call('HINCRBY', names(KEYS[1]) .. 'stats', 'committed', committed)
end
return replies
