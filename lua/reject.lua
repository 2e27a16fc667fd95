-- step: reject
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id step sealed_digest by by_name person reason mac dkey code
-- replies: not_found changed key_reused not_pending done
-- Ends a pending draft with a no.

local row = load(id)
if not row then
    return plain('not_found')
end
local memory = recall(row, 'reject', step)
if memory then
    return reply(memory == 'superseded' and 'not_pending' or 'done', row)
end
if dkey ~= '' then
    for _, line in ipairs(lines(row.dkeys)) do
        if line == dkey .. ' confirm' then
            return reply('key_reused')
        end
    end
end
expire(row)
-- Only of a draft that can still be decided: of any other its end is told, whatever the caller saw.
if row.sealed_digest ~= sealed_digest and NEXT()[row.state .. ' reject'] then
    return reply('changed')
end
if not moved(row, 'reject') then
    return reply('not_pending', row)
end
if dkey ~= '' and #lines(row.dkeys) < 32 then
    set(row, 'dkeys', row.dkeys and row.dkeys .. '\n' .. dkey .. ' reject' or dkey .. ' reject')
end
set(row, 'r_by', by)
set(row, 'r_person', person)
set(row, 'r_reason', reason)
set(row, 'r_at', now)
set(row, 'r_mac', mac)
set(row, 'ended_at', now)
remember(row, 'reject', step, 'done')
store(row, 'draft.rejected', by_name, code)
return reply('done', row)
