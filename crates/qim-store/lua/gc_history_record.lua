-- Collects expired records of one conversation whose entries in the expiry index are due (SPEC A9, A17). A collected
-- record leaves a tombstone, so that its seq and the fingerprint of its client id stay known in the hot window.
--
-- KEYS  1 conversation  2 msghistorygc  3 set aside  4 stats  5 idle
-- ARGV  1 storage id  2 now, ms  then the seqs, at most 512
-- Returns one result for each seq:
--   1  collected
--   0  not due, or held: the record stays; its entry is put right
--   2  a stale entry, of a record that was trimmed or collected before: only the entry is cleared
--  -1  corrupt: nothing is deleted; the entry is set aside and named, and the others go on
local now = tonumber(ARGV[2])
local h, reason = load_header(KEYS[1], KEYS[5], ARGV[1])
if not h then
  reason = reason or 'there is no conversation'
end
local results, collected = {}, 0

local function set_aside(member, why)
  redis.call('HSET', KEYS[3], member, ARGV[2] .. ' gc ' .. why)
  redis.call('ZREM', KEYS[2], member)
  return -1
end

local function collect(seq, member)
  if reason then
    return set_aside(member, reason)
  end
  if seq < h.floor then
    redis.call('ZREM', KEYS[2], member)
    return 2
  end
  local at = seq - h.floor + 1
  local value = seq <= h.last and redis.call('LINDEX', KEYS[1], at)
  if not value then
    return set_aside(member, 'the record is missing above the floor')
  end
  if is_tombstone(value) then
    redis.call('ZREM', KEYS[2], member)
    return 2
  end
  if not is_record(value) then
    return set_aside(member, 'what stands there is not a record')
  end
  local expiry = expires_at(value)
  if expiry == 0 then
    redis.call('ZREM', KEYS[2], member)
    return 0
  end
  if expiry > now then
    redis.call('ZADD', KEYS[2], expiry, member)
    return 0
  end
  -- Two witnesses of the date before anything is deleted: the record and the index.
  if tonumber(redis.call('ZSCORE', KEYS[2], member) or -1) ~= expiry then
    return set_aside(member, 'the record and its entry have different dates')
  end
  redis.call('LSET', KEYS[1], at, tombstone(value))
  redis.call('ZREM', KEYS[2], member)
  collected = collected + 1
  return 1
end

for i = 3, #ARGV do
  results[i - 2] = collect(tonumber(ARGV[i]), ARGV[1] .. '\0' .. ARGV[i])
end

if collected > 0 then
  h.tombstones = h.tombstones + collected
  for _ = 1, 512 do
    local value = h.live <= h.last and redis.call('LINDEX', KEYS[1], h.live - h.floor + 1)
    if not value or not is_tombstone(value) then
      break
    end
    h.live = h.live + 1
  end
  redis.call('LSET', KEYS[1], 0, pack_header(h))
  redis.call('HINCRBY', KEYS[4], 'removed', collected)
end
return results
