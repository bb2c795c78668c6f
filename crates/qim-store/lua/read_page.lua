-- Reads records of one conversation together with its header, so that marks and records belong to one moment.
--
-- KEYS  1 conversation  2 idle  3 lineage, where it matters
-- ARGV  1 storage id  2 'after' | 'before' | 'unarchived'  3 seq  4 limit, at most 512  5 now, ms  6 the lineage
-- 'after' reads up from seq + 1, 'unarchived' from archived + 1; 'before' the seqs just below seq. Seqs below the floor
-- are left out, and so is what goes beyond 3 MiB (but never the first). A stub counts for its record: whoever asks reads
-- the pieces next.
-- Returns {} where there is no conversation, else
--   {header, lowest readable seq or 0, seq up to which that was looked for, seq of the first value, {value, ...}, {value, ...}, ...}
-- or {'corrupt', reason}; an error LINEAGE (lineage.lua) in another lineage.
local BYTES_MAX, CHUNK, SCAN_MAX = 3145728, 64, 512

local refusal = lineage_refusal(KEYS[3], ARGV[6])
if refusal then
  return refusal
end
local key = KEYS[1]
local h, reason = load_header(key, KEYS[2], ARGV[1])
if reason then
  return { 'corrupt', reason }
end
if not h then
  return {}
end
local mode, now = ARGV[2], tonumber(ARGV[5])

local function values_of(from, to)
  return redis.call('LRANGE', key, from - h.floor, to - h.floor)
end

local function is_readable(value)
  return not is_tombstone(value) and (not is_record(value) or expires_at(value) == 0 or expires_at(value) > now)
end

-- The lowest seq that can be read, or 0, and up to where that was looked for.
local function find_readable()
  if h.live > h.last then
    return 0, h.last
  end
  if h.live_until == 0 or h.live_until > now then
    return h.live, h.live
  end
  local upto = math.min(h.last, h.live + SCAN_MAX - 1)
  for from = h.live + 1, upto, CHUNK do
    local values = values_of(from, math.min(upto, from + CHUNK - 1))
    for i = 1, #values do
      if is_readable(values[i]) then
        return from + i - 1, from + i - 1
      end
    end
  end
  return 0, upto
end

local seq, limit = tonumber(ARGV[3]), math.min(tonumber(ARGV[4]), 512)
local from, to
if mode == 'before' then
  to = math.min(seq - 1, h.last)
  from = math.max(h.floor, to - limit + 1)
else
  if mode == 'unarchived' then
    seq = h.archived
  end
  from = math.max(h.floor, seq + 1)
  to = math.min(h.last, from + limit - 1)
end

local function bytes_of(values)
  local bytes = 0
  for i = 1, #values do
    bytes = bytes + record_bytes(values[i])
  end
  return bytes
end

-- Chunk by chunk, from the end that the caller reads from, so that what goes beyond the limit is not fetched.
local backwards = mode == 'before'
local chunks, count, bytes, a, b = {}, 0, 0, from, to
while a <= b do
  local chunk
  if backwards then
    chunk = values_of(math.max(a, b - CHUNK + 1), b)
    b = b - CHUNK
  else
    chunk = values_of(a, math.min(b, a + CHUNK - 1))
    a = a + CHUNK
  end
  bytes = bytes + bytes_of(chunk)
  while bytes > BYTES_MAX and count + #chunk > 1 do
    bytes = bytes - record_bytes(table.remove(chunk, backwards and 1 or #chunk))
    a, b = 1, 0
  end
  count = count + #chunk
  table.insert(chunks, backwards and 1 or #chunks + 1, chunk)
end

local readable, looked = find_readable()
return { pack_marks(h), readable, looked, backwards and to - count + 1 or from, unpack(chunks) }
