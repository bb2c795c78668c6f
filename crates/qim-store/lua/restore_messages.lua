-- Puts records back under the seqs they were acknowledged with, after this Redis lost data. What stands there is never
-- overwritten. At most 512 places a call.
--
-- KEYS  1 lineage  2 pending  then one for each conversation: its list
-- ARGV  1 the lineage  2 the writer's token, or '' where it fills a hole
--       then for each conversation: its first seq, and SPEC, records and pieces as in commit_messages.lua. In place of a
--       record there may be a tombstone.
-- Returns the age of the lineage in ms, then for each conversation
--   {'ok', restored, conflict, ...}  each of its places has what was to be there, but for those seqs that have another
--                                    record
--   {'hole', restored, seq, last, lowest, conflict, ...}
--                                    the list ends at `last`, and not just before `seq`; `lowest` is the lowest such seq
--                                    that any writer waits at
--   {'corrupt', reason}  or  {'error', text}
local PENDING, writer = KEYS[2], ARGV[2]

-- Notes at which seq this writer waits, or, with false, that it does not; the lowest seq that any does.
local function note_pending(id, seq)
  local before = redis.call('HGET', PENDING, id)
  if not before and not seq then
    return nil
  end
  local packed = string.gsub(before or '', writer .. '=%d+;', '')
  if seq then
    packed = packed .. string.format('%s=%.0f;', writer, seq)
  end
  if packed == '' then
    redis.call('HDEL', PENDING, id)
  else
    redis.call('HSET', PENDING, id, packed)
  end
  local lowest
  for head in string.gmatch(packed, '=(%d+);') do
    lowest = math.min(lowest or tonumber(head), tonumber(head))
  end
  return lowest
end

local function is_there(value, own, fingerprint)
  return value == own or (is_tombstone(value) and grave_fingerprint(value) == fingerprint)
end

-- The seqs among the hot ones, of these places from `first`, that have something else.
local function conflicts_of(key, h, ids, first, a)
  local from, to = math.max(first, h.floor), math.min(first + ids.count - 1, h.last)
  local conflicts = {}
  if from <= to then
    local values = redis.call('LRANGE', key, from - h.floor, to - h.floor)
    for i = 1, #values do
      local at = from - first + i
      if not is_there(values[i], ARGV[a + at - 1], fingerprint_at(ids, at)) then
        conflicts[#conflicts + 1] = from + i - 1
      end
    end
  end
  return conflicts
end

-- The ids of a batch from the one at `i` on.
local function ids_from(ids, i)
  local skipped = i - 1
  return {
    packed = ids.packed, skip = ids.skip + FINGERPRINT_BYTES * skipped, count = ids.count - skipped,
    hints = string.sub(ids.hints, HINT_BYTES * skipped + 1),
  }
end

-- Where in ARGV the pieces of the places from the one at `i` on begin.
local function pieces_from(batch, i)
  local p = batch.a + batch.ids.count
  for at = batch.a, batch.a + i - 2 do
    if is_stub(ARGV[at]) then
      p = pieces_end(ARGV[at], p, batch.stop)
    end
  end
  return p
end

local function count_tombstones(a, count)
  local tombstones = 0
  for at = a, a + count - 1 do
    if is_tombstone(ARGV[at]) then
      tombstones = tombstones + 1
    end
  end
  return tombstones
end

-- Appends the places from the one at `i` on. The header is off the list where there is one.
local function append(key, h, batch, i)
  local count, seq, a = batch.ids.count - i + 1, h.last + 1, batch.a + i - 1
  local was_empty, was_archived = h.last < h.floor, h.archived == h.last
  local tombstones, oldest = count_tombstones(a, count), created_at(ARGV[a])
  h.created = math.max(h.created, created_at(ARGV[a + count - 1]))
  h.tombstones = h.tombstones + tombstones
  remember(h, key, ids_from(batch.ids, i))
  push_pieces(key, seq, a, count, pieces_from(batch, i), batch.stop, {})
  if was_archived then
    register_unarchived(key, oldest)
  end
  register_expiries(key, batch.spec, seq, batch.ids.count, i)
  if was_empty then
    register_trim(key, h, oldest)
  end
  local stats = names(key) .. 'stats'
  redis.call('HINCRBY', stats, 'committed', count)
  redis.call('HINCRBY', stats, 'removed', tombstones)
  local refused = push(key, a, count, pack_header(h), places(h))
  if refused then
    error(refused[2], 0)
  end
  if h.live >= seq then
    note_live(key, h)
    store_header(key, h)
  end
  if h.bucket_count > 0 then
    flush_buckets(h, key)
  end
  return count
end

local function restore(key, number, first, batch)
  local shard, id = names(key)
  local h, reason = load_header(key, shard .. 'idle', id)
  if reason then
    return { 'corrupt', reason }
  end
  h = h or new_header()
  local ids, restored = batch.ids, 0
  local conflicts = conflicts_of(key, h, ids, first, batch.a)
  local i = math.max(1, h.last - first + 2)
  local is_hole = i <= ids.count and first + i - 1 > h.last + 1
  local has_list = h.last >= h.floor
  if h.lineage ~= number and h.lineage ~= number + TOPPED then
    register_again(key, h)
  end
  -- A header that says so is settled already.
  if writer ~= '' and not is_hole and h.lineage ~= number and first + ids.count - 1 >= h.last then
    h.lineage = number + TOPPED
  end
  if i <= ids.count and not is_hole then
    local packed = has_list and redis.call('RPOP', key)
    local done, result = pcall(append, key, h, batch, i)
    if not done then
      if packed and string.byte(redis.call('LINDEX', key, -1) or '') ~= LAYOUT then
        redis.call('RPUSH', key, packed)
      end
      error(result, 0)
    end
    restored = result
  elseif has_list then
    store_header(key, h)
  end
  local lowest = writer ~= '' and note_pending(id, is_hole and first + i - 1)
  if is_hole then
    return { 'hole', restored, first + i - 1, h.last, lowest or first + i - 1, unpack(conflicts) }
  end
  return { 'ok', restored, unpack(conflicts) }
end

local number, doubted_at = lineage_of_call(KEYS[1], ARGV[1])
if not number then
  return doubted_at
end
local replies, a = { math.max(0, server_ms() - doubted_at) }, 3
for k = 3, #KEYS do
  local spec = ARGV[a + 1]
  local count, pieces = struct.unpack(SPEC, spec)
  local stop = a + 2 + count + pieces
  local batch = { spec = spec, a = a + 2, stop = stop, ids = new_ids(spec, SPEC_BYTES, count) }
  local done, reply = pcall(restore, KEYS[k], number, tonumber(ARGV[a]), batch)
  if not done then
    reply = { 'error', named(KEYS[k], type(reply) == 'table' and reply.err or tostring(reply)) }
  end
  replies[#replies + 1] = reply
  a = stop
end
return replies
