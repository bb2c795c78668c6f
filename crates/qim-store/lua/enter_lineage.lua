-- Finds out which lineage this Redis has, begins one where what is stored is another server's, and keeps the list of
-- writers, each with the number of the lineage for which it has put back what it acknowledged (lineage.lua).
--
-- KEYS  1 lineage  2 writers  3 ancestors: the tokens of the lineages that this one goes on from
-- ARGV  1 token of a new lineage  2 'founding' where no lineage at all means a new deployment, else ''
--       3 who asks: a writer, or '' for one that only looks
--       4 the lineage it has put back for, or ''  5 the lineage it knew last, or ''  6 its last sign of life here, ms
--       7 'complete' where it remembers all that it acknowledged and the archive has not got, else ''
--       8 'disk' where it acknowledges nothing before it is in the append-only file, on disk, else ''
--       9 'archived' where the archive has what was acknowledged until half a minute ago, else ''
--       10 the lineage in which it has tried to put back everything, and could not put back all, or ''
--       then the other writers it knows of
-- Returns {lineage, the server's time in ms, writer, number and sign of life, ...}
--
-- The list also says what nobody can put back: TAIL, where Redis is without more than a writer remembers; and STRANGERS,
-- where it is not known which writers there were. Whoever has made up for that removes the entry. An entry that ends with
-- "ended" is of a writer that is gone, and all that it acknowledged is here: nobody has to wait for it, unless everything is
-- lost before the archive has that. One with "since:" keeps when the writer was last heard of in the lineage before,
-- and "tried" says that what the writer has left to put back waits for what comes before.
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

local function seen_at(entry)
  return tonumber(string.match(entry, '^%d+ (%d+)'))
end

-- When a writer last said something itself.
local function heard_at(entry)
  return tonumber(string.match(entry, 'since:(%d+)')) or seen_at(entry)
end

-- Each writer has time from now on to say that it is alive. Those need not be waited for whose acknowledgements are all in
-- the file that this server was started from: it was no replica that took over, which would name its last master.
local function expect_writers(lost, is_running, replication)
  local is_restart = not lost and not is_running and string.find(replication, 'master_replid2:0+%s')
  for i = 11, #ARGV do
    redis.call('HSETNX', WRITERS, ARGV[i], NOT_YET)
  end
  if lost and known == '' then
    redis.call('HSET', WRITERS, STRANGERS, NOT_YET)
  end
  local writers = redis.call('HGETALL', WRITERS)
  for i = 1, #writers, 2 do
    if string.sub(writers[i], 1, 1) ~= '?' and writers[i] ~= writer then
      local entry = writers[i + 1]
      if (is_restart and string.find(entry, ' disk$')) or (not lost and string.find(entry, ' ended$')) then
        redis.call('HDEL', WRITERS, writers[i])
      else
        redis.call('HSET', WRITERS, writers[i], string.format('0 %.0f since:%.0f', now, heard_at(entry)))
      end
    end
  end
end

-- `is_running`: this server has one already.
local function begin(value, number, founding, is_running)
  local replication = redis.call('INFO', 'replication')
  local id = string.match(replication, 'master_replid:(%x+)')
  local lost = not value and not founding
  -- Where the one before is not known: hardly one that a header speaks of which is still there.
  number = (number or (founding and 0 or math.floor(now / 1000))) % NUMBERS + 1
  note_ancestors(value)
  value = string.format('%d %.0f %s %s', number, founding and 0 or now, id, ARGV[1])
  redis.call('SET', LINEAGE, value)
  expect_writers(lost, is_running, replication)
  return value, number
end

local function sign_on(value, number)
  local before = redis.call('HGET', WRITERS, writer)
  if known ~= '' and known ~= value and ARGV[7] ~= 'complete' then
    if not before or heard_at(before) < tonumber(ARGV[6]) - REMEMBERED_MS then
      redis.call('HSET', WRITERS, TAIL, NOT_YET)
    end
  end
  local tried = ARGV[10] == value and ' tried' or ''
  local disk = ARGV[8] == 'disk' and ' disk' or ''
  redis.call('HSET', WRITERS, writer, string.format('%d %.0f%s%s', ARGV[4] == value and number or 0, now, tried, disk))
end

local value = redis.call('GET', LINEAGE)
local number, doubted_at, replication_id
if value then
  number, doubted_at, replication_id = parse_lineage(value)
end
local is_running = value and is_master_of(replication_id)
-- A server with a history of its own may stand at the address, or that of the caller again: what the one had is not there.
-- And where this clock was put back since, nobody would wait for the right time.
if not is_running or not is_descendant(value) or doubted_at > now then
  value, number = begin(value, number, not value and ARGV[2] == 'founding', is_running)
end
if writer ~= '' then
  sign_on(value, number)
end
local writers, reply = redis.call('HGETALL', WRITERS), { value, now }
for i = 1, #writers, 2 do
  local entry = writers[i + 1]
  local is_gone = string.match(entry, '^%d+') == tostring(number) and seen_at(entry) < now - FORGOTTEN_MS
  if is_gone and ARGV[9] == 'archived' then
    redis.call('HDEL', WRITERS, writers[i])
  else
    if is_gone and not string.find(entry, ' ended$') then
      entry = string.format('%d %.0f ended', number, seen_at(entry))
      redis.call('HSET', WRITERS, writers[i], entry)
    end
    reply[#reply + 1] = writers[i]
    reply[#reply + 1] = entry
  end
end
return reply
