-- step: expire
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id
-- replies: not_found not_pending done
-- Ends a pending draft whose time is over.

local row = load(id)
if not row then
    return plain('not_found')
end
if not expire(row) then
    return reply('not_pending', row)
end
return reply('done', row)
