-- How places leave a conversation at its front. Part of the prelude of the scripts, behind fingerprints.lua.

-- Which of the first `width` places may go, one after the other, and what goes with them.
local function front_of(key, h, width, may_go)
  local values = width > 0 and redis.call('LRANGE', key, 0, width - 1) or {}
  local front = { removed = 0, collected = 0, expiring = {}, pieces = {} }
  for i = 1, #values do
    local seq = h.floor + front.removed
    if not may_go(values[i], seq) then
      break
    end
    front.removed = front.removed + 1
    if is_tombstone(values[i]) then
      front.collected = front.collected + 1
    else
      if expires_at(values[i]) ~= 0 then
        front.expiring[#front.expiring + 1] = seq
      end
      if is_stub(values[i]) then
        front.pieces[#front.pieces + 1] = pieces_key(key, seq)
      end
    end
  end
  return front
end

-- Removes them, of which there are some, with their pieces and entries in the expiry index.
local function remove_front(key, h, front)
  local shard, id = names(key)
  local archived_before = h.archived
  raise_floor(h, key, h.floor + front.removed)
  h.archived = math.max(h.archived, h.floor - 1)
  h.tombstones = h.tombstones - front.collected
  if #front.expiring > 0 then
    local entries = {}
    for i = 1, #front.expiring do
      entries[i] = id .. '\0' .. string.format('%.0f', front.expiring[i])
    end
    redis.call('ZREM', shard .. 'msghistorygc', unpack(entries))
  end
  if #front.pieces > 0 then
    redis.call('UNLINK', unpack(front.pieces))
  end
  local stats = shard .. 'stats'
  if h.floor > h.last then
    redis.call('DEL', key, index_key(key))
    idle_put(shard .. 'idle', stats, id, h.last, h.created, h.lineage)
  else
    redis.call('LPOP', key, front.removed)
    note_live(key, h)
    store_header(key, h)
  end
  redis.call('HINCRBY', stats, 'removed', front.removed - front.collected)
  redis.call('HINCRBY', stats, 'archived', h.archived - archived_before)
  if h.archived == h.last then
    redis.call('ZREM', shard .. 'unarchived', id)
    redis.call('ZREM', shard .. 'aside', id)
  end
end
