-- step: hold
-- uses: holding
-- keys: meta ix ev draft
-- args: clock id fixed tenant owner tool args_hash join token sealed_digest created_at expires_at session ckey sealed pending_max holds_max window_ms ahead_ms behind_ms
-- replies: made new joined rejected_before key_reused too_many_pending rate_limited clock other_draft
-- Stores a draft, or finds the one that already answers the call.

local ask = {
    id = id, fixed = fixed, session = session, sealed = sealed, ckey = ckey ~= '' and ckey or nil,
    tenant = tenant, owner = owner, tool = tool, args_hash = args_hash, join = join, token = token,
    sealed_digest = sealed_digest, created_at = tonumber(created_at), expires_at = tonumber(expires_at),
}
return hold_call(ask, tonumber(pending_max), tonumber(holds_max), tonumber(window_ms), tonumber(ahead_ms),
    tonumber(behind_ms))
