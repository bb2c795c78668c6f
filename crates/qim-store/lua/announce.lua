-- Says that a daemon is alive, and answers which ones are: all by this server's clock, since that of a daemon may be wrong.
--
-- KEYS  1 a hash of names to what is said of each, with the time of its last sign of life behind it
-- ARGV  1 name  2 what is said of it: '', or it ends with a colon  3 how long a sign of life counts, ms
-- Returns {name, what, ...} of all that are alive. Others are taken off the list.
local now, fresh, reply = server_ms(), tonumber(ARGV[3]), {}
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. string.format('%.0f', now))
local heard = redis.call('HGETALL', KEYS[1])
for i = 1, #heard, 2 do
  local what, at = string.match(heard[i + 1], '^(.-)(%d+)$')
  -- Ahead of now where this clock was put back.
  if at and math.abs(now - tonumber(at)) <= fresh then
    reply[#reply + 1] = heard[i]
    reply[#reply + 1] = what
  else
    redis.call('HDEL', KEYS[1], heard[i])
  end
end
return reply
