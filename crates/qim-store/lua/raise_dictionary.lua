-- Keeps a dictionary until a date, or longer where that was asked for before. Runs before a record that needs it is
-- committed, and keeps retire_dictionary from coming in between.
--
-- KEYS  1 dictionaries
-- ARGV  1 id  2 date, ms
-- Returns 1; 0 where the dictionary is not there, or is about to go: nothing may be packed with it.
if redis.call('HEXISTS', KEYS[1], 'd:' .. ARGV[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'r:' .. ARGV[1]) == 1 then
  return 0
end
local field = 'u:' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], field) or '0') < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], field, ARGV[2])
end
return 1
