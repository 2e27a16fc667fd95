-- step: again
-- first: looks
-- uses: holding
-- last: made
-- keys: meta ix ev draft owner token old
-- args: clock old step id initiator fixed tenant owner tool args_hash join created_at expires_at session ckey sealed limits
-- replies: made new joined rejected_before key_reused too_many_pending rate_limited clock other_draft not_found not_pending other_call
-- Makes a new pending draft from one that was provably not sent.

local before = load(old)
if not before then
    return plain('not_found')
end
local memo = before['m:again']
if memo then
    local known = string.match(memo, '^(%x+) ')
    local new = known == step and load(id)
    if new then
        return (met())
    end
    return reply('not_pending', before)
end
expire(before)
if before.state ~= 'failed' or not before.failure or not NOT_SENT()[before.failure] then
    return reply('not_pending', before)
end
if before.owner ~= owner or before.initiator ~= initiator or before.args_hash ~= args_hash then
    return reply('other_call')
end
local answer, is_own = met()
if answer and not is_own then
    return answer
end
remember(before, 'again', step, id)
store(before)
if answer then
    return answer
end
