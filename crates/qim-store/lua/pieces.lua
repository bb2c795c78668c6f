-- Large records. Part of the prelude of the scripts, behind conversation.lua.
--
-- A record above a threshold (src/hot/pieces.rs) would be an allocation of its own, and waste up to a quarter of it. It is
-- kept in pieces in a list of its own, "l:ID NUL seq" beside the conversation, each of which fills a node. At its place in
-- the conversation stands a stub (crates/qim-core/src/stub.rs): to all that is not about bytes, a record. Stub and pieces
-- come and go in the same script.

-- The format's bit and both of the payload's form.
local STUB, STUB_BYTES_MIN = 224, 22

local function is_stub(value)
  return #value >= STUB_BYTES_MIN and string.byte(value, 1) >= STUB
end

-- Of a record, also where it is in pieces.
local function record_bytes(value)
  if is_stub(value) then
    return (struct.unpack('>I4', value, #value - 11))
  end
  return #value
end

-- Of the record at a seq of the conversation with this list: beside it, under the same tag.
local function pieces_key(conversation, seq)
  return string.gsub(conversation, '}:c:', '}:l:', 1) .. '\0' .. string.format('%.0f', seq)
end
