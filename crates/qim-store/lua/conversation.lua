-- Prelude of every script: how a conversation is laid out in Redis. The registry (src/hot/scripts.rs) puts this file,
-- behind idle.lua, before each of the others; src/hot/layout.rs reads the same layout in Rust.
--
-- A conversation is one list. Element i, from 0, is what stands at seq floor + i: a record (crates/qim-core/src/codec.rs),
-- or the stub of a large one, which counts as a record (pieces.lua), or, where one was collected, a tombstone of 15 bytes:
-- a zero, the record's created_at, 6 bytes big-endian, at the place where a record has it too, and its fingerprint
-- (fingerprints.lua). The last element is the header: there a commit takes it off and puts it back with the new records,
-- and a reader of the newest records gets it with them.
--
-- Header, big-endian: layout B (1, which no record begins with), last I5, floor I5, archived I5, live I5, created_at of
-- the last I6, tombstones I3, expires_at of the record at `live` I6 (0: never), the lineage in which `last` was known to be
-- right H (lineage.lua), buckets H. Then without buckets a hint of 2 bytes for each place (fingerprints.lua), with them:
-- sweep cursor H, entries I4. `live` is the lowest seq that may still be readable: all from floor to live - 1 are
-- tombstones.
--
-- Redis' Lua hashes every byte of every string it makes, 1.3 ns a byte: what happens on each commit makes few and short
-- ones.

local LAYOUT = 1
local HEADER, HEADER_BYTES = '>BI5I5I5I5I6I3I6HH', 40
local INDEX, INDEX_BYTES = '>HI4', 6
local HINT_BYTES = 2

-- Of the conversation with this list: what the names of its shard's keys begin with, and its storage id.
local function names(key)
  local tag_end = string.find(key, '}:c:', 1, true)
  return string.sub(key, 1, tag_end + 1), string.sub(key, tag_end + 4)
end

-- Of a record or a tombstone; 0 for anything too short to be one.
local function created_at(value)
  if #value < 7 then
    return 0
  end
  return struct.unpack('>I6', value, 2)
end

-- Of a record; 0: never. Byte 8 says in which form the date is stored: see crates/qim-core/src/codec.rs.
local function expires_at(record)
  local days, low = string.byte(record, 8, 9)
  if days == 0 then
    return 0
  end
  if days == 255 then
    return (struct.unpack('>I6', record, 9))
  end
  if days >= 240 then
    days = 240 + (days - 240) * 256 + low
  end
  return created_at(record) + days * 86400000
end

local function is_tombstone(value)
  return #value == 15 and string.byte(value, 1) == 0
end

-- Only the shape: the checksum is for whoever decodes the record.
local function is_record(value)
  return #value >= 14 and string.byte(value, 1) >= 128
end

-- How many bytes a packed text takes that begins at a byte of a record: see crates/qim-core/src/packed_text.rs.
local function text_bytes(record, at)
  local first = string.byte(record, at) or 0
  if first <= 128 then
    return 1 + first
  end
  if first == 129 then
    return 17
  end
  return 2 + first % 8 + math.floor((first - 128) / 8)
end

-- Form of the id, sender and id of a record, as it stores them: what a retry has, too.
local function identity_of(record)
  local flags, days = string.byte(record, 1), string.byte(record, 8)
  local form = math.floor(flags / 8) % 4
  local from = 9
  if days == 255 then
    from = 15
  elseif days >= 240 then
    from = 10
  end
  local id = from + text_bytes(record, from)
  local to = id + 16
  if form == 0 then
    to = id + text_bytes(record, id)
  end
  return string.char(form) .. string.sub(record, from, to - 1)
end

-- A table that is made with all its fields does not grow later.
local function new_header()
  return {
    last = 0, floor = 1, archived = 0, live = 1, created = 0, tombstones = 0, live_until = 0, lineage = 0, hints = '',
    bucket_count = 0, sweep = 0, held = 0, buckets = false, dirty = false, rests = false,
  }
end

-- Of a conversation that rests (idle.lua): nothing of it is hot.
local function resting_header(last, created, lineage)
  local h = new_header()
  h.last, h.floor, h.archived, h.live, h.created, h.rests = last, last + 1, last, last + 1, created, true
  h.lineage = lineage
  return h
end

local function places(h)
  return h.last - h.floor + 1
end

-- nil and a reason where it is not a header.
local function parse_header(packed)
  if #packed < HEADER_BYTES or string.byte(packed, 1) ~= LAYOUT then
    return nil, 'the header is not one of a conversation'
  end
  local h, _ = new_header(), nil
  _, h.last, h.floor, h.archived, h.live, h.created, h.tombstones, h.live_until, h.lineage,
    h.bucket_count = struct.unpack(HEADER, packed)
  if h.archived < h.floor - 1 or h.archived > h.last or h.live < h.floor then
    return nil, 'the marks of the header contradict each other'
  end
  local rest = #packed - HEADER_BYTES
  if h.bucket_count == 0 and rest == HINT_BYTES * places(h) then
    h.hints = string.sub(packed, HEADER_BYTES + 1)
  elseif h.bucket_count > 0 and rest == INDEX_BYTES then
    h.sweep, h.held = struct.unpack(INDEX, packed, HEADER_BYTES + 1)
  else
    return nil, 'the header has another length than its marks say'
  end
  return h
end

local function pack_marks(h)
  return struct.pack(
    HEADER, LAYOUT, h.last, h.floor, h.archived, h.live, h.created, h.tombstones, h.live_until, h.lineage,
    h.bucket_count)
end

local function pack_header(h)
  if h.bucket_count > 0 then
    return pack_marks(h) .. struct.pack(INDEX, h.sweep, h.held)
  end
  return pack_marks(h) .. h.hints
end

-- Of the usual header, and without a table: last, floor, archived, created and lineage. nil where continuing the conversation
-- takes more than records and hints behind the others: there is an index, or nothing that may be read, or this is not a
-- header.
local function plain_marks(packed)
  if #packed < HEADER_BYTES then
    return nil
  end
  local layout, last, floor, archived, live, created, _, _, lineage, bucket_count = struct.unpack(HEADER, packed)
  if layout == LAYOUT and bucket_count == 0 and archived >= floor - 1 and archived <= last and live >= floor
    and live <= last and #packed == HEADER_BYTES + HINT_BYTES * (last - floor + 1) then
    return last, floor, archived, created, lineage
  end
  return nil
end

-- A header that plain_marks took, with records and their hints behind the others: `last`, floor to live as they are, the
-- date as the newest record has it, and the rest as it is.
local function continue_header(packed, last, newest, hints)
  return struct.pack('>BI5', LAYOUT, last) .. string.sub(packed, 7, 21) .. string.sub(newest, 2, 7)
    .. string.sub(packed, 28) .. hints
end

local NOT_A_LIST = 'the key holds something else than a list'
local WRONG_LENGTH = 'the list does not hold the seqs from floor to last'

-- nil where there is no conversation; nil and a reason where what is stored is not one.
local function load_header(key, idle, id)
  local packed = redis.pcall('LINDEX', key, -1)
  if not packed then
    local last, created, lineage = idle_get(idle, id)
    return last and resting_header(last, created, lineage)
  end
  if type(packed) == 'table' then
    return nil, NOT_A_LIST
  end
  local h, reason = parse_header(packed)
  if h and redis.call('LLEN', key) ~= places(h) + 1 then
    return nil, WRONG_LENGTH
  end
  return h, reason
end

local function store_header(key, h)
  redis.call('LSET', key, -1, pack_header(h))
end

local function value_at(key, h, seq)
  return redis.call('LINDEX', key, seq - h.floor)
end

-- Call where another record may stand at `live` than before. A tombstone there, where more of them follow one another
-- than a script looks through, counts as expired: whoever reads looks further.
local function note_live(key, h)
  local value = h.live <= h.last and value_at(key, h, h.live)
  h.live_until = 0
  if value and is_tombstone(value) then
    h.live_until = 1
  elseif value and is_record(value) then
    h.live_until = expires_at(value)
  end
end
