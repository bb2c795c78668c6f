-- Takes or renews the lease of a shard. The lease's value is the fencing token, which grows with every new holder;
-- the scripts that move marks compare it, so that an archiver that slept through its lease can do no harm.
--
-- KEYS  1 lease  2 fencing counter
-- ARGV  1 the token held so far, or ''  2 how long it lasts, ms
-- Returns the token, or '' where another holds the lease.
local holder = redis.call('GET', KEYS[1])
if holder then
  if holder ~= ARGV[1] then
    -- No lease lasts longer: this clock was put back.
    if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    end
    return ''
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return holder
end
-- Above all that were given before, also by a Redis that has lost its counter since: no two are given in a microsecond.
local time = redis.call('TIME')
local token = math.max(tonumber(redis.call('GET', KEYS[2]) or 0) + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
token = string.format('%.0f', token)
redis.call('SET', KEYS[2], token)
redis.call('SET', KEYS[1], token, 'PX', ARGV[2])
return token
