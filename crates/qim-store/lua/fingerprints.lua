-- How a conversation knows what was committed to it before. Part of the prelude of the scripts, behind conversation.lua.
--
-- The identity of a record is its sender and its id, as it stores them. While a conversation has few places, it is
-- looked for in the records themselves: nothing is kept twice. Beyond LIST_PLACES there is an index: the hash KEYS "f",
-- whose fields are buckets of about 32 entries, spread by linear hashing. An entry is 12 bytes: the fingerprint (8 bytes
-- of the SHA-1 of the identity) and the low 32 bits of the seq. It only points: the record behind it is compared. A
-- tombstone keeps the fingerprint of its record. Entries whose seq fell below the floor mean nothing, and are dropped
-- when their bucket is next written, or by a sweep.

local LIST_PLACES, LIST_PLACES_AGAIN = 32, 16
local ENTRY_BYTES = 12
local BUCKET_ENTRIES = 32
local WRAP = 4294967296

local function bucket_of(h, fingerprint)
  local hash = struct.unpack('>I4', fingerprint)
  return linear_bucket(hash, h.bucket_count)
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
  local source, target = bucket_to_split(h.bucket_count), h.bucket_count
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

local function add_entry(h, key, fingerprint, seq)
  local bucket = bucket_of(h, fingerprint)
  store_bucket(h, bucket, load_bucket(h, key, bucket) .. fingerprint .. struct.pack('>I4', seq % WRAP))
  h.held = h.held + 1
  while h.bucket_count < 65535 and h.held > h.bucket_count * BUCKET_ENTRIES do
    split_bucket(h, key)
  end
end

local function flush_buckets(h, key)
  for bucket in pairs(h.dirty) do
    redis.call('HSET', key, bucket, h.buckets[bucket])
  end
  h.dirty = {}
end

-- For each identity the seq that has it, or nil; by looking at every place.
local function find_in_list(h, conversation, identities)
  local values = redis.call('LRANGE', conversation, 1, -1)
  local found, by_identity, by_fingerprint = {}, {}, {}
  -- One or two are found faster by their bytes than by taking every record apart.
  local few = #identities <= 2
  for at = 1, #values do
    local value, seq = values[at], h.floor + at - 1
    if is_tombstone(value) then
      by_fingerprint[grave_fingerprint(value)] = seq
    elseif is_record(value) and not few then
      by_identity[identity_of(value)] = seq
    elseif is_record(value) then
      for i = 1, #identities do
        local identity = identities[i]
        if string.find(value, string.sub(identity, 2), 10, true) and identity_of(value) == identity then
          found[i] = seq
        end
      end
    end
  end
  for i = 1, #identities do
    found[i] = found[i] or by_identity[identities[i]]
    if not found[i] and h.tombstones > 0 then
      found[i] = by_fingerprint[fingerprint_of(identities[i])]
    end
  end
  return found
end

-- The seq that has this identity, or nil; by the index.
local function find_in_index(h, conversation, key, identity)
  local fingerprint = fingerprint_of(identity)
  local entries = load_bucket(h, key, bucket_of(h, fingerprint))
  local at = string.find(entries, fingerprint, 1, true)
  while at do
    if (at - 1) % ENTRY_BYTES == 0 then
      local seq = entry_seq(h, entries, at)
      local value = seq <= h.last and redis.call('LINDEX', conversation, seq - h.floor + 1)
      if value and (is_tombstone(value) or (is_record(value) and identity_of(value) == identity)) then
        return seq
      end
    end
    at = string.find(entries, fingerprint, at + 1, true)
  end
  return nil
end

-- For each identity the seq in the hot tier that has it, or nil.
local function find_known(h, conversation, key, identities)
  if h.last < h.floor then
    return {}
  end
  if h.bucket_count == 0 then
    return find_in_list(h, conversation, identities)
  end
  local found = {}
  for i = 1, #identities do
    found[i] = find_in_index(h, conversation, key, identities[i])
  end
  return found
end

-- Call with the new records in the list and h.last raised to cover them; `first` is the seq of the first.
local function remember(h, conversation, key, identities, first)
  if h.bucket_count > 0 then
    for i = 1, #identities do
      add_entry(h, key, fingerprint_of(identities[i]), first + i - 1)
    end
  elseif h.last - h.floor + 1 > LIST_PLACES then
    h.bucket_count, h.held, h.sweep = 1, 0, 0
    local values = redis.call('LRANGE', conversation, 1, -1)
    for at = 1, #values do
      local value = values[at]
      if is_tombstone(value) then
        add_entry(h, key, grave_fingerprint(value), h.floor + at - 1)
      elseif is_record(value) then
        add_entry(h, key, fingerprint_of(identity_of(value)), h.floor + at - 1)
      end
    end
  end
  flush_buckets(h, key)
end

-- After the floor moved: without an index again where few places are left; else a few buckets a call once half of what
-- the index holds is dead.
local function forget_below_floor(h, key)
  if h.bucket_count == 0 then
    return
  end
  local places = h.last - h.floor + 1
  if places <= LIST_PLACES_AGAIN then
    redis.call('DEL', key)
    h.bucket_count, h.sweep, h.held, h.buckets, h.dirty = 0, 0, 0, {}, {}
  elseif h.held > 2 * places + BUCKET_ENTRIES then
    for _ = 1, math.min(16, h.bucket_count) do
      h.sweep = h.sweep % h.bucket_count
      store_bucket(h, h.sweep, table.concat(living_entries(h, load_bucket(h, key, h.sweep))))
      h.sweep = h.sweep + 1
    end
    flush_buckets(h, key)
  end
end
