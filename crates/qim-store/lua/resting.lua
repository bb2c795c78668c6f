-- Where a conversation stands that has nothing hot. A reader of the newest page asks for its list in the same round trip;
-- most conversations have one, and then there is nothing to say, in as little time as may be, but whether this server is
-- as it was left. It says so for what was read before it: a lineage that ended does not come back.
--
-- KEYS  1 conversation  2 idle  3 lineage, where it matters
-- ARGV  1 storage id  2 the lineage
-- Returns nil where there is a list, {} where there is no conversation, else {last seq, created_at of the last, lineage};
-- an error LINEAGE (lineage.lua) in another lineage.
local refusal = lineage_refusal(KEYS[3], ARGV[2])
if refusal then
  return refusal
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return nil
end
local last, created, lineage = idle_get(KEYS[2], ARGV[1])
if not last then
  return {}
end
return { last, created, lineage }
