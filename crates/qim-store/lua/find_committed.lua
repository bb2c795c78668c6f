-- Looks which of some messages were committed to a conversation before, and changes nothing: at the memory limit, where
-- commit_messages.lua is refused before it begins, a retry of what is committed gets its answer all the same.
--
-- KEYS  1 conversation; it may take "f:..." beside it  2 idle
-- ARGV  1 storage id  2 what the messages are about, as in commit_messages.lua  then their records, or stubs
-- Returns {'known', i, seq, value, ...} as commit_messages.lua does, maybe without any, or {'corrupt', reason}.
local h, reason = load_header(KEYS[1], KEYS[2], ARGV[1])
if reason then
  return { 'corrupt', reason }
end
local count = struct.unpack(SPEC, ARGV[2])
return h and find_all_known(h, KEYS[1], new_ids(ARGV[2], SPEC_BYTES, count), 3) or { 'known' }
