-- Finds out which lineage this Redis has, begins one where what is stored is another server's, and keeps the list of
-- writers, each with the number of the lineage for which it has put back what it acknowledged (lineage.lua).
--
-- KEYS  1 lineage  2 writers  3 ancestors: the tokens of the lineages that this one goes on from
-- ARGV  1 token of a new lineage  2 'founding' where no lineage at all means a new deployment, else ''
--       3 who asks: a writer, or '' for one that only looks
--       4 the lineage it has put back for, or ''  5 the lineage it knew last, or ''  6 its last sign of life here, ms
--       7 'complete' where it remembers all that it acknowledged and the archive has not got, else ''
--       8 'disk' where it acknowledges nothing before it is in the append-only file, on disk, else ''
--       then the other writers it knows of
-- Returns {lineage, the server's time in ms, writer, number and sign of life, ...}
--
-- The list also says what nobody can put back: TAIL, where Redis is without more than a writer remembers; and STRANGERS,
-- where it is not known which writers there were. Whoever has made up for that removes the entry.
local TAIL, STRANGERS, NOT_YET = '?tail', '?strangers', '0 0'
-- What a writer remembers in any case, less what looking may take (AGE_MIN in src/hot/recent.rs).
local REMEMBERED_MS, FORGOTTEN_MS = 8000, 60000
-- Of tokens and the blanks between them: more lineages than begin while a writer does not look.
local ANCESTORS_BYTES = 64 * 17
local LINEAGE, WRITERS, ANCESTORS, writer, known = KEYS[1], KEYS[2], KEYS[3], ARGV[3], ARGV[5]
local now = server_ms()

local function token_of(value)
  return string.match(value, '%x+$')
end

-- Whether what the caller knew went before this lineage, as far as anybody said who began one.
local function is_descendant(value)
  return known == '' or known == value
    or string.find(redis.call('GET', ANCESTORS) or '', token_of(known), 1, true)
end

local function note_ancestors(value)
  local ancestors = redis.call('GET', ANCESTORS) or ''
  for _, before in ipairs({ value or '', known }) do
    if before ~= '' and not string.find(ancestors, token_of(before), 1, true) then
      ancestors = ancestors .. ' ' .. token_of(before)
    end
  end
  redis.call('SET', ANCESTORS, string.sub(ancestors, -ANCESTORS_BYTES))
end

-- Each writer has time from now on to say that it is alive. Those need not be waited for whose acknowledgements are all in
-- the file that this server was started from: it was no replica that took over, which would name its last master.
local function expect_writers(lost, is_running, replication)
  local is_restart = not lost and not is_running and string.find(replication, 'master_replid2:0+%s')
  for i = 9, #ARGV do
    redis.call('HSETNX', WRITERS, ARGV[i], NOT_YET)
  end
  if lost and known == '' then
    redis.call('HSET', WRITERS, STRANGERS, NOT_YET)
  end
  local writers = redis.call('HGETALL', WRITERS)
  for i = 1, #writers, 2 do
    if string.sub(writers[i], 1, 1) ~= '?' and writers[i] ~= writer then
      if is_restart and string.find(writers[i + 1], ' disk$') then
        redis.call('HDEL', WRITERS, writers[i])
      else
        redis.call('HSET', WRITERS, writers[i], string.format('0 %.0f', now))
      end
    end
  end
end

-- `is_running`: this server has one already.
local function begin(value, number, founding, is_running)
  local replication = redis.call('INFO', 'replication')
  local id = string.match(replication, 'master_replid:(%x+)')
  number = (number or 0) % NUMBERS + 1
  local lost = not value and not founding
  note_ancestors(value)
  value = string.format('%d %.0f %s %s', number, founding and 0 or now, id, ARGV[1])
  redis.call('SET', LINEAGE, value)
  expect_writers(lost, is_running, replication)
  return value, number
end

local function seen_at(entry)
  return tonumber(string.match(entry, '^%d+ (%d+)'))
end

local function sign_on(value, number)
  local before = redis.call('HGET', WRITERS, writer)
  if known ~= '' and known ~= value and ARGV[7] ~= 'complete' then
    if not before or seen_at(before) < tonumber(ARGV[6]) - REMEMBERED_MS then
      redis.call('HSET', WRITERS, TAIL, NOT_YET)
    end
  end
  local disk = ARGV[8] == 'disk' and ' disk' or ''
  redis.call('HSET', WRITERS, writer, string.format('%d %.0f%s', ARGV[4] == value and number or 0, now, disk))
end

local value = redis.call('GET', LINEAGE)
local number, _, replication_id
if value then
  number, _, replication_id = parse_lineage(value)
end
local is_running = value and is_master_of(replication_id)
-- A server with a history of its own stands at the address, or that of the caller again: what the one had is not there.
if not is_running or not is_descendant(value) then
  value, number = begin(value, number, not value and ARGV[2] == 'founding', is_running)
end
if writer ~= '' then
  sign_on(value, number)
end
local writers, reply = redis.call('HGETALL', WRITERS), { value, now }
for i = 1, #writers, 2 do
  local entry = writers[i + 1]
  if string.match(entry, '^%d+') == tostring(number) and seen_at(entry) < now - FORGOTTEN_MS then
    -- All that it ever acknowledged is in this lineage.
    redis.call('HDEL', WRITERS, writers[i])
  else
    reply[#reply + 1] = writers[i]
    reply[#reply + 1] = entry
  end
end
return reply
