-- The first part of every script: takes the guard of a cluster off the keys (src/hot/connection.rs). It names nothing, and
-- nothing is ever stored there. While a slot is on its way to another node, a call with a key that is not there is refused
-- before it begins (ASK, TRYAGAIN). Without it, a script whose own keys are there would begin, and end in the middle at the
-- first of the others that has moved or is not there yet.
if string.find(KEYS[#KEYS] or '', '^qim:{%d+}:guard$') then
  KEYS[#KEYS] = nil
end
