-- Reads records of one conversation together with its header, so that marks and records belong to one moment.
--
-- KEYS  1 conversation  2 idle
-- ARGV  1 storage id  2 'after' | 'before' | 'unarchived'  3 seq  4 limit, at most 512  5 now, ms
-- 'after' reads up from seq + 1, 'unarchived' from archived + 1; 'before' the seqs just below seq. Seqs below the floor
-- are left out, and so is what goes beyond 3 MiB (but never the first).
-- Returns {} where there is no conversation, else
--   {header, lowest readable seq or 0, seq up to which that was looked for, seq of the first value, value, ...}
-- or {'corrupt', reason}.
local BYTES_MAX, CHUNK, SCAN_MAX = 3145728, 64, 512

local h, reason = load_header(KEYS[1], KEYS[2], ARGV[1])
if reason then
  return { 'corrupt', reason }
end
if not h then
  return {}
end
local mode, now = ARGV[2], tonumber(ARGV[5])

local function is_readable(value)
  return not is_tombstone(value) and (not is_record(value) or expires_at(value) == 0 or expires_at(value) > now)
end

local readable, looked = 0, h.live
while readable == 0 and looked <= h.last and looked < h.live + SCAN_MAX do
  -- Nearly always the first is readable.
  local width = looked == h.live and 1 or CHUNK
  local at = looked - h.floor + 1
  local values = redis.call('LRANGE', KEYS[1], at, at + width - 1)
  for i = 1, #values do
    if is_readable(values[i]) then
      readable = looked + i - 1
      break
    end
  end
  looked = looked + #values
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

-- Chunk by chunk, from the end that the caller reads from, so that what goes beyond the limit is not fetched.
local backwards = mode == 'before'
local values, bytes, full = {}, 0, false
while not full and #values < to - from + 1 do
  local a = from + #values
  local b = math.min(to, a + CHUNK - 1)
  if backwards then
    b = to - #values
    a = math.max(from, b - CHUNK + 1)
  end
  local chunk = redis.call('LRANGE', KEYS[1], a - h.floor + 1, b - h.floor + 1)
  for i = 1, #chunk do
    local value = chunk[backwards and #chunk - i + 1 or i]
    bytes = bytes + #value
    if bytes > BYTES_MAX and #values > 0 then
      full = true
      break
    end
    values[#values + 1] = value
  end
end

local first = backwards and to - #values + 1 or from
local reply = { pack_header(h), readable, looked - 1, first }
for i = 1, #values do
  reply[4 + i] = values[backwards and #values - i + 1 or i]
end
return reply
