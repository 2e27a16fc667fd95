-- step: renew
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id epoch step lease_ms
-- replies: superseded until
-- Extends the lease of a running or verifying draft; never shortens it.

local row = load(id)
if not row then
    return plain('superseded')
end
local memory = recall(row, 'renew', step)
if memory then
    touch()
    return plain(memory == 'superseded' and 'superseded' or 'until', string.match(memory, '^until (%d+)$'))
end
expire(row)
if text(row.epoch) ~= epoch or not works(row) then
    return plain('superseded')
end
set(row, 'lease_until', math.max(row.lease_until or 0, now + tonumber(lease_ms)))
remember(row, 'renew', step, 'until ' .. text(row.lease_until))
store(row)
touch()
return plain('until', text(row.lease_until))
