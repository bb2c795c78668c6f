-- Linear hashing: buckets 0, 1, 2, ... grow one at a time, each by splitting one other. Part of the prelude of every
-- script.

-- The largest power of two that is not above the number of buckets.
local function full_round(buckets)
  local round = 1
  while round * 2 <= buckets do
    round = round * 2
  end
  return round
end

local function linear_bucket(hash, buckets)
  local round = full_round(buckets)
  local bucket = hash % (round * 2)
  if bucket >= buckets then
    bucket = hash % round
  end
  return bucket
end

-- The bucket to split when the one after the last is added.
local function bucket_to_split(buckets)
  return buckets - full_round(buckets)
end
