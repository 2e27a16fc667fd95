-- step: withdraw
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id step by reason mac
-- replies: not_found not_pending done
-- Ends a pending draft because the agent took it back.

local row = load(id)
if not row then
    return plain('not_found')
end
local memory = recall(row, 'withdraw', step)
if memory then
    return reply(memory == 'superseded' and 'not_pending' or 'done', row)
end
expire(row)
if not moved(row, 'withdraw') then
    return reply('not_pending', row)
end
set(row, 'r_by', '')
set(row, 'r_reason', reason)
set(row, 'r_at', now)
set(row, 'r_mac', mac)
set(row, 'ended_at', now)
remember(row, 'withdraw', step, 'done')
store(row, 'draft.withdrawn', by)
return reply('done', row)
