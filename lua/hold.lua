-- step: hold
-- first: looks fresh
-- uses: holding
-- last: made
-- keys: meta ix ev draft owner token
-- args: clock id fixed tenant owner tool args_hash join created_at expires_at session ckey sealed limits
-- replies: made new joined rejected_before key_reused too_many_pending rate_limited clock other_draft
-- Stores a draft, or finds the one that already answers the call.

local answer = met()
if answer then
    return answer
end
