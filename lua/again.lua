-- step: again
-- uses: holding
-- keys: meta ix ev draft old
-- args: clock old step id initiator fixed tenant owner tool args_hash join token sealed_digest created_at expires_at session ckey sealed pending_max holds_max window_ms ahead_ms behind_ms
-- replies: made new joined rejected_before key_reused too_many_pending rate_limited clock other_draft not_found not_pending other_call
-- Makes a new pending draft from one that was provably not sent.

local before = load(old)
if not before then
    return plain('not_found')
end
local ask = {
    id = id, fixed = fixed, session = session, sealed = sealed, ckey = ckey ~= '' and ckey or nil,
    tenant = tenant, owner = owner, tool = tool, args_hash = args_hash, join = join, token = token,
    sealed_digest = sealed_digest, created_at = tonumber(created_at), expires_at = tonumber(expires_at),
}
local memo = before['m:again']
if memo then
    local known = string.match(memo, '^(%x+) ')
    local new = known == step and load(id)
    if new then
        return hold_call(ask, 0, 0, 0, 0, 0)
    end
    return reply('not_pending', before)
end
expire(before)
if before.state ~= 'failed' or not before.failure or not NOT_SENT()[before.failure] then
    return reply('not_pending', before)
end
if before.owner ~= owner or before.initiator ~= initiator or before.args_hash ~= ask.args_hash then
    return reply('other_call')
end
local held = hold_call(ask, tonumber(pending_max), tonumber(holds_max), tonumber(window_ms), tonumber(ahead_ms),
    tonumber(behind_ms))
if held[1] == 'made' or held[1] == 'new' then
    remember(before, 'again', step, id)
    store(before)
end
return held
