-- Claims the GC of some shards for one writer, or prolongs its claim (src/hot/gc_claim.rs).
--
-- KEYS  1 collector
-- ARGV  1 instance  2 how long the claim lasts, ms
-- Returns 1, or 0 where another has claimed them.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  -- No claim lasts longer: this clock was put back.
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
