-- Finds by date in one conversation; dates never go back along it. Halves the range, so a call touches few records.
--
-- KEYS  1 conversation  2 idle  3 lineage
-- ARGV  1 storage id  2 time, ms  3 the lineage
-- Returns {} where there is no conversation, {header, lowest hot seq created at or after the time, or last + 1}, or
-- {'corrupt', reason}; an error LINEAGE (lineage.lua) in another lineage.
local refusal = lineage_refusal(KEYS[3], ARGV[3])
if refusal then
  return refusal
end
local h, reason = load_header(KEYS[1], KEYS[2], ARGV[1])
if reason then
  return { 'corrupt', reason }
end
if not h then
  return {}
end
local time = tonumber(ARGV[2])
local low, high = h.floor, h.last + 1
while low < high do
  local middle = math.floor((low + high) / 2)
  if created_at(value_at(KEYS[1], h, middle)) < time then
    low = middle + 1
  else
    high = middle
  end
end
return { pack_marks(h), low }
