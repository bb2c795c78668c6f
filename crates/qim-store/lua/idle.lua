-- Where conversations rest that have nothing left in the hot tier: their last seq and its date must stay known for
-- ever, at a few bytes each. Part of the prelude of every script.
--
-- One hash a shard. Its fields are buckets 0, 1, 2, ... of about 12 conversations, spread by linear hashing, so that a
-- look-up reads one small value however many there are. An entry is: length of the id H, the id, last I6, created_at of
-- the last I6, lineage H as in a header. The counter `idle` among the stats says how many there are.

local IDLE_BUCKET = 12
local ENTRY, ENTRY_TAIL = '>I6I6H', 14

local function idle_bucket_of(id, buckets)
  local hash = tonumber(string.sub(redis.sha1hex(id), 1, 8), 16)
  return linear_bucket(hash, buckets)
end

-- Where the entry of `id` begins and ends in its bucket, or nil.
local function idle_find(entries, id)
  local at = 1
  while at <= #entries do
    local length = struct.unpack('>H', entries, at)
    local stop = at + 1 + length + ENTRY_TAIL
    if length == #id and string.sub(entries, at + 2, at + 1 + length) == id then
      return at, stop
    end
    at = stop + 1
  end
  return nil
end

-- The last seq of the conversation, its date and lineage, or nil where it does not rest here.
local function idle_get(key, id)
  local buckets = redis.call('HLEN', key)
  if buckets == 0 then
    return nil
  end
  local entries = redis.call('HGET', key, idle_bucket_of(id, buckets)) or ''
  local at = idle_find(entries, id)
  if not at then
    return nil
  end
  return struct.unpack(ENTRY, entries, at + 2 + #id)
end

local function idle_split(key, buckets)
  local source, stay, move = bucket_to_split(buckets), {}, {}
  local entries = redis.call('HGET', key, source) or ''
  local at = 1
  while at <= #entries do
    local length = struct.unpack('>H', entries, at)
    local entry = string.sub(entries, at, at + 1 + length + ENTRY_TAIL)
    local list = stay
    if idle_bucket_of(string.sub(entry, 3, 2 + length), buckets + 1) == buckets then
      list = move
    end
    list[#list + 1] = entry
    at = at + #entry
  end
  redis.call('HSET', key, source, table.concat(stay), buckets, table.concat(move))
end

local function idle_put(key, stats, id, last, created, lineage)
  local buckets = redis.call('HLEN', key)
  if buckets == 0 then
    redis.call('HSET', key, 0, '')
    buckets = 1
  end
  local bucket = idle_bucket_of(id, buckets)
  local entries = redis.call('HGET', key, bucket) or ''
  redis.call('HSET', key, bucket, entries .. struct.pack('>H', #id) .. id .. struct.pack(ENTRY, last, created, lineage))
  if redis.call('HINCRBY', stats, 'idle', 1) > buckets * IDLE_BUCKET then
    idle_split(key, buckets)
  end
end

local function idle_remove(key, stats, id)
  local bucket = idle_bucket_of(id, redis.call('HLEN', key))
  local entries = redis.call('HGET', key, bucket) or ''
  local at, stop = idle_find(entries, id)
  if at then
    -- First, since it fails where somebody else's key stands there, and then nothing is forgotten.
    redis.call('HINCRBY', stats, 'idle', -1)
    redis.call('HSET', key, bucket, string.sub(entries, 1, at - 1) .. string.sub(entries, stop + 1))
  end
end
