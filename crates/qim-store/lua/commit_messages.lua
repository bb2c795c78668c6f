-- Commits messages to one or more conversations of one node: each conversation all or none, whatever becomes of the
-- others. At most 512 messages a call.
--
-- KEYS  1 lineage  then one for each conversation: its list. The other keys it may take are named after that one and
--       carry its tag: "f:..." and "l:..." beside it, and msghistorygc, unarchived, trim, stats and idle of its shard
-- ARGV  1 now, ms  2 the lineage  3 number of messages  then for each conversation a batch (appending.lua), its records in
--       order of created_at
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

-- What nearly every commit is, without tables and long strings: small records behind others, and no reason to look
-- closer. Answers and does what `commit` would; nil, with nothing done, where it takes that one.
local function commit_plainly(key, packed, spec, a, count)
  local last, floor, archived, created, lineage = plain_marks(packed)
  if not last or lineage ~= number or last - floor + 1 + count > HINTS_MAX or created_at(ARGV[a]) < created
    or may_have_hint(packed, spec, SPEC_BYTES, count) then
    return nil
  end
  local hints = string.sub(spec, SPEC_BYTES + 1, SPEC_BYTES + HINT_BYTES * count)
  local header = continue_header(packed, last + count, ARGV[a + count - 1], hints)
  if archived == last then
    register_unarchived(key, now)
  end
  register_expiries(key, spec, last + 1, count, 1)
  return push(key, a, count, header, last + count - floor + 1) or last + 1
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
  if doubted_at > 0 and h.lineage ~= number then
    return { 'doubt' }
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
  h.lineage = number
  h.created = count == 1 and oldest or created_at(ARGV[a + count - 1])
  remember(h, key, ids)
  if pieces > 0 then
    push_pieces(key, first, a, count, a + count, a + count + pieces, stored)
  end
  if was_archived then
    register_unarchived(key, now)
  end
  register_expiries(key, spec, first, count, 1)
  if was_empty then
    register_trim(key, h, oldest)
  end
  reply = push(key, a, count, pack_header(h), places(h))
  if reply then
    return reply
  end
  if h.bucket_count > 0 then
    flush_buckets(h, key)
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
    reply = { 'error', named(key, type(reply) == 'table' and reply.err or tostring(reply)) }
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

-- Counts among the stats of one shard or another: only their sum means something (src/hot/stats.rs).
local function count_committed(by)
  local counted
  for k = 2, #KEYS do
    counted = redis.pcall('HINCRBY', names(KEYS[k]) .. 'stats', 'committed', by)
    if type(counted) == 'number' then
      return nil
    end
  end
  return redis.error_reply('ERR ' .. named(KEYS[2], counted.err))
end

-- Before anything is changed: somebody else's key may stand there.
local total = tonumber(ARGV[3])
refused = count_committed(total)
if refused then
  return refused
end
local replies, committed, a = {}, 0, 4
for k = 2, #KEYS do
  local spec = ARGV[a]
  local count, pieces, floor = struct.unpack(SPEC, spec)
  local reply = attempt(KEYS[k], spec, a + 1, count, pieces, floor)
  replies[k - 1] = reply
  if type(reply) == 'number' then
    committed = committed + count
  end
  a = a + 1 + count + pieces
end
if committed < total then
  count_committed(committed - total)
end
return replies
