-- Since when the conversation of a shard waits for its copy that waits longest.
--
-- KEYS  1 unarchived  2 aside
-- Returns ms, or '' where none waits.
local lowest = ''
for _, key in ipairs(KEYS) do
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first[2] and (lowest == '' or tonumber(first[2]) < tonumber(lowest)) then
    lowest = first[2]
  end
end
return lowest
