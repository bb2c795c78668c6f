-- How places are put at the end of a conversation. Part of the prelude of the scripts, behind fingerprints.lua.
--
-- A batch is what stands in ARGV for one conversation: SPEC, its records, from ARGV[a] below, and the pieces of those of
-- them that are stubs (pieces.lua). SPEC, big-endian: number of records H, of pieces I3, the floor that must still stand I6 or 0 for any, for
-- each record its hint of 2 bytes, for each its fingerprint of 8 (fingerprints.lua), and where one has to be registered
-- for GC (SPEC A18) for each its expires_at, I6, or 0.

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

-- The pieces, from ARGV[p] and before ARGV[stop], of those records from ARGV[a] that are stubs, and get the seqs from
-- `first`. Each list is noted in `stored`.
local function push_pieces(key, first, a, count, p, stop, stored)
  for i = 0, count - 1 do
    local value = ARGV[a + i]
    if is_stub(value) then
      local from = p
      p = pieces_end(value, from, stop)
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

-- The text of an error, with the name of the key where it is about one of the shard's that holds what is not ours. No more
-- than an index may have been changed by then, since its entries may outlive what they speak of: registering comes before
-- pushing.
local function named(key, text)
  if not string.find(text, 'WRONGTYPE', 1, true) then
    return text
  end
  local shard = names(key)
  for _, name in ipairs({ 'msghistorygc', 'unarchived', 'trim' }) do
    if type(redis.pcall('ZCOUNT', shard .. name, 0, 0)) == 'table' then
      return 'the key ' .. shard .. name .. ' holds something else than a sorted set'
    end
  end
  for _, name in ipairs({ 'stats', 'idle' }) do
    if type(redis.pcall('HLEN', shard .. name)) == 'table' then
      return 'the key ' .. shard .. name .. ' holds something else than a hash'
    end
  end
  return text
end

-- Enters those of a batch, from the one at `from` on, that GC has to collect in its index. They have the seqs from `first`.
local function register_expiries(key, spec, first, count, from)
  local dates_from, due = SPEC_BYTES + count * (HINT_BYTES + FINGERPRINT_BYTES), {}
  if #spec == dates_from then
    return
  end
  local shard, id = names(key)
  for i = from, count do
    local date = struct.unpack('>I6', spec, dates_from + 6 * i - 5)
    if date > 0 then
      due[#due + 1] = string.format('%.0f', date)
      due[#due + 1] = id .. '\0' .. string.format('%.0f', first + i - from)
    end
  end
  if #due > 0 then
    redis.call('ZADD', shard .. 'msghistorygc', unpack(due))
  end
end

-- Enters a conversation that had nothing to archive in the archiver's index. No later than now by this server's clock:
-- writers forget what was acknowledged before all that waits.
local function register_unarchived(key, since)
  local shard, id = names(key)
  redis.call('ZADD', shard .. 'unarchived', 'NX', string.format('%.0f', math.min(tonumber(since), server_ms())), id)
end

-- Enters a conversation that was empty where trimming finds it, by the date of its first record.
local function register_trim(key, h, oldest)
  local shard, id = names(key)
  redis.call('ZADD', shard .. 'trim', oldest, id)
  if h.rests then
    idle_remove(shard .. 'idle', shard .. 'stats', id)
  end
end

-- Enters a conversation in those of both indexes that it belongs into and is not in. Where a node lost data to which the
-- shard had just moved, key by key, the list may have come without them.
local function register_again(key, h)
  if h.last < h.floor then
    return
  end
  local shard, id = names(key)
  redis.call('ZADD', shard .. 'trim', 'NX', created_at(value_at(key, h, h.floor)), id)
  if h.archived < h.last then
    register_unarchived(key, created_at(value_at(key, h, h.archived + 1)))
  end
end
