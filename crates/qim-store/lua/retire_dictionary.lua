-- Says that a dictionary is about to go, where no record has needed it since a date. From then on nobody can keep it.
--
-- KEYS  1 dictionaries
-- ARGV  1 id  2 date, ms
-- Returns 1 when it may be deleted, else 0.
if tonumber(redis.call('HGET', KEYS[1], 'u:' .. ARGV[1]) or '0') >= tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'r:' .. ARGV[1], '1')
return 1
