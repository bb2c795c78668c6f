-- Which history of this Redis a call belongs to, so that a server that lost data is not taken for the one that had it
-- (docs/adr/0018-lineages.md). Part of the prelude of the scripts.
--
-- A lineage is what one server process has been told since it last became the master: its replication id, which Redis
-- makes anew at every start and at every promotion, names it. What is stored of it, in one string:
--
--   NUMBER DOUBTED_AT REPLICATION_ID TOKEN
--
-- NUMBER is one above that of the lineage before, and wraps; DOUBTED_AT is when the lineage began, ms by the server's
-- clock, or 0 where nothing can have been lost before it; TOKEN is random.
--
-- In a doubted lineage a conversation counts once it was settled in it, that is, once its `last` was compared with what
-- the archive and all living writers know; its header says so by the number. TOPPED instead of that: a writer has put
-- back what it acknowledged last, or found it there.

local NUMBERS, TOPPED = 32767, 32768
-- How long no commit is taken, so that writers that are slower put back what they acknowledged before their seqs are
-- given away. They look every half second. The same in src/hot/lineage.rs.
local QUARANTINE_MS = 3000

local function server_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function parse_lineage(value)
  local number, doubted_at, replication_id = string.match(value, '^(%d+) (%d+) (%x+) ')
  return tonumber(number), tonumber(doubted_at), replication_id
end

local function is_master_of(replication_id)
  return string.find(redis.call('INFO', 'replication'), 'master_replid:' .. replication_id, 1, true)
end

-- Number and beginning of the lineage (0: not doubted) that this call is made for; nil and a reply where this server has
-- another one now.
local function lineage_of_call(key, value)
  local number, doubted_at, replication_id = parse_lineage(value)
  if redis.call('GET', key) ~= value or not is_master_of(replication_id) then
    return nil, redis.error_reply('LINEAGE this Redis is not as it was left')
  end
  return number, doubted_at
end

-- For scripts that read: a reply where this server has another lineage now. Without a key it does not matter which.
local function lineage_refusal(key, value)
  if key then
    local number, refusal = lineage_of_call(key, value)
    return not number and refusal or nil
  end
end

-- A reply while the lineage is too young for commits.
local function quarantine(doubted_at)
  local left = doubted_at > 0 and doubted_at + QUARANTINE_MS - server_ms() or 0
  if left > 0 then
    return redis.error_reply(string.format('QUARANTINE %.0f', left))
  end
end
