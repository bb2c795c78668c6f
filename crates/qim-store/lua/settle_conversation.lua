-- Says from where a conversation goes on in this lineage, once that is known (lineage.lua).
--
-- KEYS  1 lineage  2 the conversation's list
-- ARGV  1 the lineage  2 the last seq as the caller saw it, or 0  3 the last seq from here on
--       4 no later record is older than this, ms  5 1 where it is settled, 0 where records are put back next
-- Returns {'ok'}; {'moved'} where the last seq is another one by now; {'behind', archived} where there are hot records,
-- and seqs behind them would be left out; {'corrupt', reason}
local key = KEYS[2]
local number, refusal = lineage_of_call(KEYS[1], ARGV[1])
if not number then
  return refusal
end
local settled = ARGV[5] == '1'
local refused = settled and quarantine(refusal)
if refused then
  return refused
end
local shard, id = names(key)
local idle, stats = shard .. 'idle', shard .. 'stats'
local h, reason = load_header(key, idle, id)
if reason then
  return { 'corrupt', reason }
end
h = h or new_header()
local target = tonumber(ARGV[3])
if h.last ~= tonumber(ARGV[2]) then
  return { 'moved' }
end
if h.last >= h.floor then
  if target > h.last then
    return { 'behind', h.archived }
  end
  if settled then
    register_again(key, h)
    h.lineage = number
    store_header(key, h)
  end
  return { 'ok' }
end
if h.rests then
  idle_remove(idle, stats, id)
end
idle_put(idle, stats, id, target, math.max(h.created, tonumber(ARGV[4])), settled and number or 0)
return { 'ok' }
