-- Prelude of every script: how a conversation is laid out in Redis. The registry (src/hot/scripts.rs) puts this file,
-- behind idle.lua, before each of the others; src/hot/layout.rs reads the same layout in Rust.
--
-- A conversation is one list. Element 0 is its header; element i is what stands at seq floor + i - 1: a record
-- (crates/qim-core/src/codec.rs) or, where one was collected, a tombstone of 16 bytes: two zeros, the record's
-- created_at, 6 bytes big-endian, at the place where a record has it too, and its fingerprint (fingerprints.lua).
--
-- Header, big-endian: version B, last I5, floor I5, archived I5, live I5, created_at of the last I6, tombstones I3; with
-- an index of fingerprints also: its buckets H, sweep cursor H, entries I4. `live` is the lowest seq that may still be
-- readable: all from floor to live - 1 are tombstones.

local HEADER, HEADER_BYTES = '>BI5I5I5I5I6I3', 30
local INDEX, INDEX_BYTES = '>HHI4', 8

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
  return #value == 16 and string.byte(value, 1) == 0
end

-- Only the shape: the checksum is for whoever decodes the record.
local function is_record(value)
  return #value >= 15 and string.byte(value, 1) == 1
end

-- Form of the id, sender and id of a record, as it stores them: what a retry has, too.
local function identity_of(record)
  local form = math.floor(string.byte(record, 2) / 8) % 4
  local days = string.byte(record, 9)
  local from = 10
  if days == 255 then
    from = 16
  elseif days >= 240 then
    from = 11
  end
  local id = from + 1 + (string.byte(record, from) or 0)
  local to = id + 15
  if form == 0 then
    to = id + (string.byte(record, id) or 0)
  end
  return string.char(form) .. string.sub(record, from, to)
end

local function fingerprint_of(identity)
  local hash = redis.sha1hex(identity)
  return struct.pack('>I4I4', tonumber(string.sub(hash, 1, 8), 16), tonumber(string.sub(hash, 9, 16), 16))
end

local function tombstone(record)
  return '\0\0' .. string.sub(record, 3, 8) .. fingerprint_of(identity_of(record))
end

local function grave_fingerprint(value)
  return string.sub(value, 9, 16)
end

local function new_header()
  return {
    bucket_count = 0, sweep = 0, last = 0, floor = 1, archived = 0, live = 1, created = 0, held = 0,
    tombstones = 0, buckets = {}, dirty = {},
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
  local h = new_header()
  local _
  _, h.last, h.floor, h.archived, h.live, h.created, h.tombstones = struct.unpack(HEADER, packed)
  if #packed >= HEADER_BYTES + INDEX_BYTES then
    h.bucket_count, h.sweep, h.held = struct.unpack(INDEX, packed, HEADER_BYTES + 1)
  end
  if redis.call('LLEN', key) ~= h.last - h.floor + 2 then
    return nil, 'the list does not hold the seqs from floor to last'
  end
  if h.archived < h.floor - 1 or h.archived > h.last or h.live < h.floor then
    return nil, 'the marks of the header contradict each other'
  end
  return h
end

local function pack_header(h)
  local packed = struct.pack(HEADER, 1, h.last, h.floor, h.archived, h.live, h.created, h.tombstones)
  if h.bucket_count > 0 then
    packed = packed .. struct.pack(INDEX, h.bucket_count, h.sweep, h.held)
  end
  return packed
end
