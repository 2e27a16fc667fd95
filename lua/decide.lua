-- step: decide
-- keys: meta ix ev draft
-- args: clock id step sealed_digest vote voter vote_epoch quorum dkey node lease_ms
-- replies: not_found changed key_reused not_pending already_voted voted claimed
-- Counts a yes; the one that completes the quorum claims the draft.

local row = load(id)
if not row then
    return plain('not_found')
end
local memory = recall(row, 'decide', step)
if memory == 'superseded' then
    return reply('not_pending', row)
elseif memory then
    if row.claimed_at then
        return reply('claimed', row)
    end
    local have, need = string.match(memory, '^voted (%d+) (%d+)$')
    return reply('voted', row, have or '0', need or '0')
end
local used
if dkey ~= '' then
    for _, line in ipairs(lines(row.dkeys)) do
        local key, verb = string.match(line, '^(%S+) (%a+)$')
        if key == dkey then
            used = verb
        end
    end
end
if used == 'reject' then
    return reply('key_reused')
end
expire(row)
local claimed = NEXT()[row.state .. ' claim']
if not claimed then
    return reply('not_pending', row)
end
-- Only of a draft that can still be decided: of any other its end is told, whatever the caller saw.
if row.sealed_digest ~= sealed_digest or tonumber(vote_epoch) ~= row.epoch + 1 then
    return reply('changed')
end
local need = math.max(tonumber(quorum), 1)
local voters = lines(row.voters)
local has_voted = used ~= nil
for _, name in ipairs(voters) do
    has_voted = has_voted or name == voter
end
if has_voted then
    return reply('already_voted', row, text(#voters), text(need))
end
if dkey ~= '' and #lines(row.dkeys) < 32 then
    set(row, 'dkeys', row.dkeys and row.dkeys .. '\n' .. dkey .. ' confirm' or dkey .. ' confirm')
end
set(row, 'votes', row.votes and row.votes .. '\n' .. vote or vote)
set(row, 'voters', row.voters and row.voters .. '\n' .. voter or voter)
local have = #voters + 1
if have < need then
    remember(row, 'decide', step, 'voted ' .. text(have) .. ' ' .. text(need))
    store(row, 'draft.voted', voter)
    return reply('voted', row, text(have), text(need))
end
set(row, 'epoch', next_epoch(row))
set(row, 'state', claimed)
set(row, 'claimed_at', now)
set(row, 'lease_until', now + tonumber(lease_ms))
set(row, 'lease_node', node)
remember(row, 'decide', step, 'claimed')
store(row, 'draft.confirmed', voter)
return reply('claimed', row)
