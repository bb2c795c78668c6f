-- How places are put at the end of a conversation. Part of the prelude of the scripts, behind fingerprints.lua.
--
-- A batch is what stands in ARGV for one conversation: SPEC, its records, and the pieces of those of them that are stubs
-- (pieces.lua). SPEC, big-endian: number of records H, of pieces I3, the floor that must still stand I6 or 0 for any, for
-- each record its hint of 2 bytes, for each its fingerprint of 8 (fingerprints.lua), and where one has to be registered
-- for GC (SPEC A18) for each its expires_at, I6, or 0.

local SPEC, SPEC_BYTES = '>HI3I6', 11

-- Its records stand from ARGV[a].
local function read_batch(spec, a)
  local count, pieces, floor = struct.unpack(SPEC, spec)
  return {
    spec = spec, a = a, floor = floor, ids = new_ids(spec, SPEC_BYTES, count),
    pieces = a + count, pieces_end = a + count + pieces,
  }
end

-- The ids from the one at `i` on.
local function ids_from(ids, i)
  local skipped = i - 1
  return {
    packed = ids.packed, skip = ids.skip + FINGERPRINT_BYTES * skipped, count = ids.count - skipped,
    hints = string.sub(ids.hints, HINT_BYTES * skipped + 1),
  }
end

-- Where in ARGV the pieces end that a stub stands for, when they begin at `p`.
local function pieces_end(stub, p, stop)
  local missing = record_bytes(stub)
  while missing > 0 and p < stop do
    missing = missing - #ARGV[p]
    p = p + 1
  end
  assert(missing == 0, 'the pieces are not as long as their stub says')
  return p
end

-- Where in ARGV the pieces of the records from the one at `i` on begin.
local function pieces_before(batch, i)
  local p = batch.pieces
  for at = batch.a, batch.a + i - 2 do
    if is_stub(ARGV[at]) then
      p = pieces_end(ARGV[at], p, batch.pieces_end)
    end
  end
  return p
end

-- The pieces, from ARGV[p], of those records from ARGV[a] that are stubs, and get the seqs from `first`. Each list is noted
-- in `stored` where that is given.
local function push_pieces(key, first, a, count, p, stop, stored)
  for i = 0, count - 1 do
    local value = ARGV[a + i]
    if is_stub(value) then
      local from = p
      p = pieces_end(value, from, stop)
      local name = pieces_key(key, first + i)
      -- Nothing is there, unless somebody else deleted the conversation.
      redis.call('DEL', name)
      if stored then
        stored[#stored + 1] = name
      end
      redis.call('RPUSH', name, unpack(ARGV, from, p - 1))
    end
  end
end

-- The records from ARGV[a], and the header behind them; answers how long the list is then.
local function push(key, h, a, count)
  if count == 1 then
    return redis.call('RPUSH', key, ARGV[a], pack_header(h))
  end
  local values = { unpack(ARGV, a, a + count - 1) }
  values[count + 1] = pack_header(h)
  return redis.call('RPUSH', key, unpack(values))
end

-- Enters those of a batch, from the one at `from` on, that GC has to collect in its index. They have the seqs from `first`.
local function register_expiries(key, batch, from, first)
  local count = batch.ids.count
  local dates_from = SPEC_BYTES + count * (HINT_BYTES + FINGERPRINT_BYTES)
  if #batch.spec <= dates_from then
    return
  end
  local shard, id = names(key)
  local due = {}
  for i = from, count do
    local date = struct.unpack('>I6', batch.spec, dates_from + 6 * i - 5)
    if date > 0 then
      due[#due + 1] = string.format('%.0f', date)
      due[#due + 1] = id .. '\0' .. string.format('%.0f', first + i - from)
    end
  end
  if #due > 0 then
    redis.call('ZADD', shard .. 'msghistorygc', unpack(due))
  end
end

-- Enters a conversation that had nothing to archive in the archiver's indexes. `oldest`, where it was empty: the date of
-- its first record.
local function register_conversation(key, h, oldest, now)
  local shard, id = names(key)
  redis.call('ZADD', shard .. 'unarchived', 'NX', now, id)
  if oldest then
    redis.call('ZADD', shard .. 'trim', oldest, id)
    if h.rests then
      idle_remove(shard .. 'idle', shard .. 'stats', id)
    end
  end
end
