-- How a conversation knows what was committed to it before. Part of the prelude of the scripts, behind conversation.lua.
--
-- The identity of a record is the form of its id, its sender and its id, as it stores them; its fingerprint is the first 8
-- bytes of the SHA-1 of that. The writer gives the fingerprints of what it commits. While a conversation has few places
-- the header holds their hints in order: the first 2 bytes of each fingerprint. Beyond HINTS_MAX there is an index: the
-- hash "f", whose fields are buckets of about 32 entries, spread by linear hashing. An entry is 8 bytes: the first 4 of the
-- fingerprint and the low 32 bits of the seq. Hints and entries only point: the record behind them is compared. A record
-- that is collected leaves its whole fingerprint in its tombstone. Entries whose seq fell below the floor mean nothing, and
-- are dropped when their bucket is next written, or by a sweep.

local HINTS_MAX, HINTS_AGAIN = 512, 256
local FINGERPRINT_BYTES, POINTER_BYTES, ENTRY_BYTES = 8, 4, 8
local BUCKET_ENTRIES, BUCKETS_MAX, BUCKETS_A_CALL = 32, 65535, 16
local WRAP = 4294967296
-- What comes before hints and fingerprints in what a writer says of messages: see commit_messages.lua.
local SPEC, SPEC_BYTES = '>HI3I6', 11

-- As in src/hot/fingerprint.rs.
local function fingerprint_of(identity)
  local hash = redis.sha1hex(identity)
  return struct.pack('>I4I4', tonumber(string.sub(hash, 1, 8), 16), tonumber(string.sub(hash, 9, 16), 16))
end

local function tombstone(record)
  return '\0' .. string.sub(record, 2, 7) .. fingerprint_of(identity_of(record))
end

local function grave_fingerprint(value)
  return string.sub(value, 8, 15)
end

-- Hints and fingerprints of so many messages, as they stand in a string behind `skip` bytes.
local function new_ids(packed, skip, count)
  local hints_to = skip + HINT_BYTES * count
  return { packed = packed, skip = hints_to, count = count, hints = string.sub(packed, skip + 1, hints_to) }
end

local function fingerprint_at(ids, i)
  local at = ids.skip + FINGERPRINT_BYTES * (i - 1)
  return string.sub(ids.packed, at + 1, at + FINGERPRINT_BYTES)
end

-- The index of the conversation with this list: beside it, under the same tag.
local function index_key(conversation)
  return (string.gsub(conversation, '}:c:', '}:f:', 1))
end

-- Of a fingerprint, or an entry.
local function bucket_of(h, fingerprint)
  local hash = struct.unpack('>I4', fingerprint)
  return linear_bucket(hash, h.bucket_count)
end

-- A bucket in memory is a list of pieces, joined when it is looked at: entries are added one by one.
local function load_pieces(h, key, bucket)
  if not h.buckets then
    h.buckets, h.dirty = {}, {}
  end
  local pieces = h.buckets[bucket]
  if not pieces then
    pieces = { redis.call('HGET', index_key(key), bucket) or '' }
    h.buckets[bucket] = pieces
  end
  return pieces
end

local function load_bucket(h, key, bucket)
  local pieces = load_pieces(h, key, bucket)
  if #pieces > 1 then
    pieces = { table.concat(pieces) }
    h.buckets[bucket] = pieces
  end
  return pieces[1]
end

local function store_bucket(h, bucket, entries)
  h.buckets[bucket] = { entries }
  h.dirty[bucket] = true
end

local function flush_buckets(h, key)
  for bucket in pairs(h.dirty or {}) do
    redis.call('HSET', index_key(key), bucket, load_bucket(h, key, bucket))
  end
  h.dirty = h.buckets and {}
end

local function entry_seq(h, entries, at)
  local low = struct.unpack('>I4', entries, at + POINTER_BYTES)
  return h.floor + (low - h.floor) % WRAP
end

-- Entries that still mean something; counts those dropped.
local function living_entries(h, entries)
  local kept = {}
  for at = 1, #entries, ENTRY_BYTES do
    if entry_seq(h, entries, at) <= h.last then
      kept[#kept + 1] = string.sub(entries, at, at + ENTRY_BYTES - 1)
    else
      h.held = h.held - 1
    end
  end
  return kept
end

-- Moves the entries of one bucket that belong to a new one (linear hashing).
local function split_bucket(h, key)
  local source, target = bucket_to_split(h.bucket_count), h.bucket_count
  local entries = living_entries(h, load_bucket(h, key, source))
  h.bucket_count = h.bucket_count + 1
  local stay, move = {}, {}
  for i = 1, #entries do
    local list = stay
    if bucket_of(h, entries[i]) == target then
      list = move
    end
    list[#list + 1] = entries[i]
  end
  store_bucket(h, source, table.concat(stay))
  store_bucket(h, target, table.concat(move))
end

-- The other way round: the last bucket goes back into the one it came from.
local function merge_bucket(h, key)
  local target = h.bucket_count - 1
  local source = bucket_to_split(target)
  local entries = living_entries(h, load_bucket(h, key, source) .. load_bucket(h, key, target))
  h.bucket_count = target
  h.buckets[target], h.dirty[target] = nil, nil
  redis.call('HDEL', index_key(key), target)
  store_bucket(h, source, table.concat(entries))
end

local function add_entry(h, key, fingerprint, seq)
  local bucket = bucket_of(h, fingerprint)
  local pieces = load_pieces(h, key, bucket)
  pieces[#pieces + 1] = string.sub(fingerprint, 1, POINTER_BYTES)
  pieces[#pieces + 1] = struct.pack('>I4', seq % WRAP)
  h.dirty[bucket] = true
  h.held = h.held + 1
  while h.bucket_count < BUCKETS_MAX and h.held > h.bucket_count * BUCKET_ENTRIES do
    split_bucket(h, key)
  end
end

-- Whether what stands at a seq has the identity of the record, which is the one at `i` among the ids.
local function is_of(h, key, seq, ids, i, record)
  local value = value_at(key, h, seq)
  if not value then
    return false
  end
  if is_tombstone(value) then
    return grave_fingerprint(value) == fingerprint_at(ids, i)
  end
  return is_record(value) and identity_of(value) == identity_of(record)
end

local function find_by_hint(h, key, ids, i, record)
  local hint = string.sub(ids.hints, HINT_BYTES * i - 1, HINT_BYTES * i)
  local at = string.find(h.hints, hint, 1, true)
  while at do
    local seq = h.floor + (at - 1) / HINT_BYTES
    if at % HINT_BYTES == 1 and is_of(h, key, seq, ids, i, record) then
      return seq
    end
    at = string.find(h.hints, hint, at + 1, true)
  end
  return nil
end

-- Whether a header of few places has one of the hints that stand in a string behind `skip` bytes: also where it only
-- seems so, since two hints that stand side by side look like a third.
local function may_have_hint(packed, spec, skip, count)
  for at = skip + 1, skip + HINT_BYTES * count, HINT_BYTES do
    if string.find(packed, string.sub(spec, at, at + HINT_BYTES - 1), HEADER_BYTES + 1, true) then
      return true
    end
  end
  return false
end

local function find_in_index(h, key, ids, i, record)
  local fingerprint = fingerprint_at(ids, i)
  local entries = load_bucket(h, key, bucket_of(h, fingerprint))
  local pointer = string.sub(fingerprint, 1, POINTER_BYTES)
  local at = string.find(entries, pointer, 1, true)
  while at do
    if at % ENTRY_BYTES == 1 then
      local seq = entry_seq(h, entries, at)
      if seq <= h.last and is_of(h, key, seq, ids, i, record) then
        return seq
      end
    end
    at = string.find(entries, pointer, at + 1, true)
  end
  return nil
end

-- The seq in the hot tier that has the identity of the record, which is the one at `i` among the ids; or nil.
local function find_known(h, key, ids, i, record)
  if h.bucket_count > 0 then
    return find_in_index(h, key, ids, i, record)
  end
  return find_by_hint(h, key, ids, i, record)
end

-- What was committed before among the records from ARGV[a]: {'known', i, seq, value, ...}, '' for a value that was
-- collected; or nil.
local function find_all_known(h, key, ids, a)
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

local function fingerprint_of_value(value)
  if is_tombstone(value) then
    return grave_fingerprint(value)
  end
  return is_record(value) and fingerprint_of(identity_of(value))
end

-- Makes the index of all that stands in the list.
local function start_index(h, key)
  local values = redis.call('LRANGE', key, 0, -1)
  h.bucket_count, h.held, h.sweep, h.hints = 1, 0, 0, ''
  for at = 1, #values do
    local fingerprint = fingerprint_of_value(values[at])
    if fingerprint then
      add_entry(h, key, fingerprint, h.floor + at - 1)
    end
  end
end

-- Takes the ids of new records, and raises `last` to cover them. Buckets are changed in memory: flush_buckets writes them.
local function remember(h, key, ids)
  local first = h.last + 1
  if h.bucket_count == 0 and places(h) + ids.count > HINTS_MAX then
    start_index(h, key)
  end
  h.last = h.last + ids.count
  if h.bucket_count == 0 then
    h.hints = h.hints .. ids.hints
    return
  end
  for i = 1, ids.count do
    add_entry(h, key, fingerprint_at(ids, i), first + i - 1)
  end
end

-- Without an index again. A place without an entry was damaged when the index was made: nothing points to it any more.
local function hints_from_index(h, key)
  local hints = {}
  for place = 1, places(h) do
    hints[place] = string.rep('\0', HINT_BYTES)
  end
  for bucket = 0, h.bucket_count - 1 do
    local entries = load_bucket(h, key, bucket)
    for at = 1, #entries, ENTRY_BYTES do
      local place = entry_seq(h, entries, at) - h.floor + 1
      if place <= #hints then
        hints[place] = string.sub(entries, at, at + HINT_BYTES - 1)
      end
    end
  end
  redis.call('DEL', index_key(key))
  h.hints = table.concat(hints)
  h.bucket_count, h.sweep, h.held, h.buckets, h.dirty = 0, 0, 0, false, false
end

-- Moves the floor up. The index follows a few buckets a call: it is swept once half of what it holds is dead, it shrinks
-- with the conversation, and in the end it is gone.
local function raise_floor(h, key, floor)
  h.hints = string.sub(h.hints, HINT_BYTES * (floor - h.floor) + 1)
  h.floor = floor
  h.live = math.max(h.live, floor)
  if h.bucket_count == 0 then
    return
  end
  if h.held > 2 * places(h) + BUCKET_ENTRIES then
    for _ = 1, math.min(BUCKETS_A_CALL, h.bucket_count) do
      h.sweep = h.sweep % h.bucket_count
      store_bucket(h, h.sweep, table.concat(living_entries(h, load_bucket(h, key, h.sweep))))
      h.sweep = h.sweep + 1
    end
  end
  for _ = 1, 2 * BUCKETS_A_CALL do
    if h.bucket_count == 1 or h.bucket_count * BUCKET_ENTRIES <= 4 * places(h) then
      break
    end
    merge_bucket(h, key)
  end
  if places(h) <= HINTS_AGAIN and h.bucket_count <= BUCKETS_A_CALL then
    hints_from_index(h, key)
  else
    flush_buckets(h, key)
  end
end
