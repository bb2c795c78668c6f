-- Writes something small behind what was committed, so that WAIT or WAITAOF on the same connection waits for that, too.
--
-- KEYS  1 lineage  2 barrier
-- ARGV  1 the lineage
-- Returns 1, or an error LINEAGE (lineage.lua) where another server would be waited for.
local number, refusal = lineage_of_call(KEYS[1], ARGV[1])
if not number then
  return refusal
end
redis.call('INCR', KEYS[2])
return 1
