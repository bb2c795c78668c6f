-- Prelude of every script: how a conversation is laid out in Redis. The registry (src/hot/scripts.rs) puts this file,
-- behind idle.lua, before each of the others; src/hot/layout.rs reads the same layout in Rust.
--
-- A conversation is one list. Element 0 is its header; element i is what stands at seq floor + i - 1: a record
-- (crates/qim-core/src/codec.rs) or, where one was collected, a tombstone: two zero bytes and the record's created_at,
-- 6 bytes big-endian, at the place where a record has it too.
--
-- Header, big-endian: version B, fingerprint buckets H, sweep cursor H, last I6, floor I6, archived I6,
-- live I6, last created_at I6, fingerprints held I4, tombstones I4; then fingerprints, while they are few.
-- `live` is the lowest seq that may still be readable: all from floor to live - 1 are tombstones.
--
-- A fingerprint entry is 12 bytes: the fingerprint (8) and the low 32 bits of its seq. Up to 32 stay in the header;
-- beyond that they move to buckets, the fields of the hash KEYS "f", spread by linear hashing with about 32 in each.
-- Entries whose seq fell below the floor mean nothing and are dropped when their bucket is next written, or by a sweep.

local HEADER = '>BHHI6I6I6I6I6I4I4'
local HEADER_BYTES = 43
local ENTRY_BYTES = 12
local BUCKET_ENTRIES = 32
local WRAP = 4294967296

-- Of a record or a tombstone; 0 for anything too short to be one.
local function created_at(value)
  if #value < 8 then
    return 0
  end
  return struct.unpack('>I6', value, 3)
end

-- Of a record; 0: never. Byte 9 says in which form the date is stored: see crates/qim-core/src/codec.rs.
local function expires_at(record)
  local days, low = string.byte(record, 9, 10)
  if days == 0 then
    return 0
  end
  if days == 255 then
    return (struct.unpack('>I6', record, 10))
  end
  if days >= 240 then
    days = 240 + (days - 240) * 256 + low
  end
  return created_at(record) + days * 86400000
end

local function is_tombstone(value)
  return #value == 8 and string.byte(value, 1) == 0
end

local function tombstone(record)
  return '\0\0' .. string.sub(record, 3, 8)
end

-- Only the shape: the checksum is for whoever decodes the record.
local function is_record(value)
  return #value >= 15 and string.byte(value, 1) == 1
end

local function new_header()
  return {
    bucket_count = 0, sweep = 0, last = 0, floor = 1, archived = 0, live = 1, created = 0, held = 0,
    tombstones = 0, inline = '', buckets = {}, dirty = {},
  }
end

-- Of a conversation that rests (idle.lua): nothing of it is hot.
local function resting_header(last, created)
  local h = new_header()
  h.last, h.floor, h.archived, h.live, h.created, h.rests = last, last + 1, last, last + 1, created, true
  return h
end

-- nil where there is no conversation; nil and a reason where what is stored is not one.
local function load_header(key, idle, id)
  local packed = redis.pcall('LINDEX', key, 0)
  if not packed then
    local last, created = idle_get(idle, id)
    return last and resting_header(last, created)
  end
  if type(packed) == 'table' then
    return nil, 'the key holds something else than a list'
  end
  if #packed < HEADER_BYTES or string.byte(packed, 1) ~= 1 then
    return nil, 'the header is not one of a conversation'
  end
  local h = { buckets = {}, dirty = {} }
  local _
  _, h.bucket_count, h.sweep, h.last, h.floor, h.archived, h.live, h.created, h.held, h.tombstones =
    struct.unpack(HEADER, packed)
  h.inline = string.sub(packed, HEADER_BYTES + 1)
  if redis.call('LLEN', key) ~= h.last - h.floor + 2 then
    return nil, 'the list does not hold the seqs from floor to last'
  end
  if h.archived < h.floor - 1 or h.archived > h.last or h.live < h.floor then
    return nil, 'the marks of the header contradict each other'
  end
  return h
end

local function pack_header(h)
  return struct.pack(HEADER, 1, h.bucket_count, h.sweep, h.last, h.floor, h.archived, h.live, h.created,
    h.held, h.tombstones) .. h.inline
end

local function bucket_of(h, fingerprint)
  local hash = struct.unpack('>I4', fingerprint)
  local half = 1
  while half * 2 <= h.bucket_count do
    half = half * 2
  end
  local bucket = hash % (half * 2)
  if bucket >= h.bucket_count then
    bucket = hash % half
  end
  return bucket
end

local function load_bucket(h, key, bucket)
  local entries = h.buckets[bucket]
  if not entries then
    entries = redis.call('HGET', key, bucket) or ''
    h.buckets[bucket] = entries
  end
  return entries
end

local function store_bucket(h, bucket, entries)
  h.buckets[bucket] = entries
  h.dirty[bucket] = true
end

local function entry_seq(h, entries, at)
  local low = struct.unpack('>I4', entries, at + 8)
  return h.floor + (low - h.floor) % WRAP
end

-- The seq committed under this fingerprint, where it is not below the floor.
local function find_fingerprint(h, key, fingerprint)
  local entries = h.inline
  if h.bucket_count > 0 then
    entries = load_bucket(h, key, bucket_of(h, fingerprint))
  end
  local at = string.find(entries, fingerprint, 1, true)
  while at do
    if (at - 1) % ENTRY_BYTES == 0 then
      local seq = entry_seq(h, entries, at)
      if seq <= h.last then
        return seq
      end
    end
    at = string.find(entries, fingerprint, at + 1, true)
  end
  return nil
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
  local half = 1
  while half * 2 <= h.bucket_count do
    half = half * 2
  end
  local source, target = h.bucket_count - half, h.bucket_count
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

-- Call with h.last already raised to cover `seq`.
local function add_fingerprint(h, key, fingerprint, seq)
  local entry = fingerprint .. struct.pack('>I4', seq % WRAP)
  h.held = h.held + 1
  if h.bucket_count == 0 then
    h.inline = h.inline .. entry
    if #h.inline > BUCKET_ENTRIES * ENTRY_BYTES then
      h.inline = table.concat(living_entries(h, h.inline))
    end
    if #h.inline > BUCKET_ENTRIES * ENTRY_BYTES then
      h.bucket_count = 1
      store_bucket(h, 0, h.inline)
      h.inline = ''
    end
  else
    local bucket = bucket_of(h, fingerprint)
    store_bucket(h, bucket, load_bucket(h, key, bucket) .. entry)
  end
  while h.bucket_count > 0 and h.bucket_count < 65535 and h.held > h.bucket_count * BUCKET_ENTRIES do
    split_bucket(h, key)
  end
end

local function flush_buckets(h, key)
  for bucket in pairs(h.dirty) do
    redis.call('HSET', key, bucket, h.buckets[bucket])
  end
  h.dirty = {}
end

-- Drops fingerprints below the floor after it moved: all at once when no record is left, else a few buckets a call
-- once half of what is held is dead.
local function sweep_fingerprints(h, key)
  local records = h.last - h.floor + 1
  if records == 0 then
    if h.bucket_count > 0 then
      redis.call('DEL', key)
    end
    h.bucket_count, h.sweep, h.held, h.inline, h.buckets, h.dirty = 0, 0, 0, '', {}, {}
  elseif h.bucket_count == 0 then
    h.inline = table.concat(living_entries(h, h.inline))
  elseif h.held > 2 * records + BUCKET_ENTRIES then
    for _ = 1, math.min(16, h.bucket_count) do
      h.sweep = h.sweep % h.bucket_count
      store_bucket(h, h.sweep, table.concat(living_entries(h, load_bucket(h, key, h.sweep))))
      h.sweep = h.sweep + 1
    end
  end
end
