-- Collects expired records of conversations of one shard whose entries in the expiry index are due (SPEC A9, A17). A
-- collected record leaves a tombstone, so that its seq and the fingerprint of its client id stay known in the hot window.
--
-- KEYS  1 msghistorygc  2 set aside  3 stats  4 idle  then the list of each conversation
-- ARGV  1 now, ms  then for each conversation: storage id, number of seqs, seqs
-- Returns one result for each seq, in their order:
--   1  collected
--   0  not due, or held: the record stays; its entry is put right
--   2  a stale entry, of a record that was trimmed or collected before: only the entry is cleared
--  -1  corrupt: nothing is deleted; the entry is set aside and named, and the others go on
local LIVE_SCAN_MAX = 512
local INDEX, SET_ASIDE, STATS, IDLE, FIRST_LIST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 5
local now = tonumber(ARGV[1])
local results, done = {}, {}

local function set_aside(member, why)
  redis.call('HSET', SET_ASIDE, member, ARGV[1] .. ' gc ' .. why)
  done[#done + 1] = member
  return -1
end

-- `date` is what the index says.
local function collect(key, h, reason, seq, member, date)
  if reason then
    return set_aside(member, reason)
  end
  if seq < h.floor then
    done[#done + 1] = member
    return 2
  end
  local value = seq <= h.last and value_at(key, h, seq)
  if not value then
    return set_aside(member, 'the record is missing above the floor')
  end
  if is_tombstone(value) then
    done[#done + 1] = member
    return 2
  end
  if not is_record(value) then
    return set_aside(member, 'what stands there is not a record')
  end
  local expiry = expires_at(value)
  if expiry == 0 then
    done[#done + 1] = member
    return 0
  end
  if expiry > now then
    redis.call('ZADD', INDEX, expiry, member)
    return 0
  end
  -- Two witnesses of the date before anything is deleted: the record and the index.
  if tonumber(date or -1) ~= expiry then
    return set_aside(member, 'the record and its entry have different dates')
  end
  redis.call('LSET', key, seq - h.floor, tombstone(value))
  done[#done + 1] = member
  return 1
end

-- The conversation's seqs are ARGV[from] to ARGV[to].
local function collect_all(key, id, from, to)
  local h, reason = load_header(key, IDLE, id)
  if not h then
    reason = reason or 'there is no conversation'
  end
  local members, collected = {}, 0
  for i = from, to do
    members[#members + 1] = id .. '\0' .. ARGV[i]
  end
  local dates = redis.call('ZMSCORE', INDEX, unpack(members))
  for i = from, to do
    local at = i - from + 1
    local result = collect(key, h, reason, tonumber(ARGV[i]), members[at], dates[at])
    results[#results + 1] = result
    if result == 1 then
      collected = collected + 1
    end
  end
  if collected > 0 then
    h.tombstones = h.tombstones + collected
    for _ = 1, LIVE_SCAN_MAX do
      local value = h.live <= h.last and value_at(key, h, h.live)
      if not value or not is_tombstone(value) then
        break
      end
      h.live = h.live + 1
    end
    note_live(key, h)
    store_header(key, h)
  end
  return collected
end

local collected, a = 0, 2
for k = FIRST_LIST, #KEYS do
  local count = tonumber(ARGV[a + 1])
  collected = collected + collect_all(KEYS[k], ARGV[a], a + 2, a + 1 + count)
  a = a + 2 + count
end
if #done > 0 then
  redis.call('ZREM', INDEX, unpack(done))
end
if collected > 0 then
  redis.call('HINCRBY', STATS, 'removed', collected)
end
return results
