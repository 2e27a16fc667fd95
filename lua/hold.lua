-- step: hold
-- uses: holding
-- keys: meta
-- args: clock id fixed session ckey sealed pending_max holds_max window_ms ahead_ms behind_ms
-- replies: made new joined rejected_before key_reused too_many_pending rate_limited clock other_draft
-- Stores a draft, or finds the one that already answers the call.

local ask = parse(fixed, 'the call')
ask.id, ask.fixed, ask.session, ask.ckey, ask.sealed = id, fixed, session, ckey, sealed
return hold_call(ask, tonumber(pending_max), tonumber(holds_max), tonumber(window_ms), tonumber(ahead_ms), tonumber(behind_ms))
