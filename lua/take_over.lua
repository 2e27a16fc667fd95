-- step: take_over
-- uses: ending
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id step node lease_ms own_dead piece
-- replies: not_found not_due claimed verifying
-- Takes over a running or verifying draft whose holder is gone.

local row = load(id)
if not row then
    return plain('not_found')
end
local memory = recall(row, 'take_over', step)
if memory == 'superseded' then
    touch()
    return plain('not_due')
elseif memory then
    return reply(memory == 'claimed' and 'claimed' or 'verifying', row)
end
expire(row)
local dead = false
for _, name in ipairs(lines(own_dead)) do
    dead = dead or name == row.lease_node
end
local before = row.state
if not works(row) or not (lease_over(row) or dead) or not NEXT()[before .. ' take_over'] then
    return plain('not_due')
end
set(row, 'epoch', next_epoch(row))
moved(row, 'take_over')
set(row, 'lease_until', now + tonumber(lease_ms))
set(row, 'lease_node', node)
local claimed = row.state == 'running/claimed'
remember(row, 'take_over', step, claimed and 'claimed' or 'verifying')
if before == 'running/sending' then
    note_evidence(row, text(now) .. '\t' .. piece)
end
store(row, before ~= row.state and 'draft.verifying' or nil)
return reply(claimed and 'claimed' or 'verifying', row)
