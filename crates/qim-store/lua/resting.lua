-- Where a conversation stands that has nothing hot. A reader of the newest page asks for its list in the same round trip;
-- most conversations have one, and then there is nothing to say, in as little time as may be.
--
-- KEYS  1 conversation  2 idle
-- ARGV  1 storage id
-- Returns nil where there is a list, {} where there is no conversation, else {last seq, created_at of the last}.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return nil
end
local last, created = idle_get(KEYS[2], ARGV[1])
if not last then
  return {}
end
return { last, created }
