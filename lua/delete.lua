-- step: delete
-- flags: allow-oom
-- keys: meta
-- args: clock id ended_before
-- replies: kept deleted
-- Deletes a terminal, resolved draft that ended before a time.

local row = load(id)
if not row then
    return plain('kept')
end
expire(row)
local works = row.state == 'pending' or STATUS[row.state] == 'running' or row.state == 'verifying'
local past = row.ended_at and (row.ended_at < tonumber(ended_before) or wild(row.ended_at))
if works or row.state == 'unverifiable' or not past then
    return plain('kept')
end
for _, name in ipairs({ 't:' .. row.token, row.ckey and 'k:' .. row.ckey or false }) do
    if name and redis.call('GET', PREFIX .. name) == id then
        redis.call('DEL', PREFIX .. name)
    end
end
for _, name in ipairs({ 'j:' .. row.join, 'x:' .. row.join, 'o:' .. row.owner, 'p:' .. row.owner,
    'st:' .. STATUS[row.state], 'due', 'lease', 'ended' }) do
    redis.call('ZREM', PREFIX .. name, id)
end
redis.call('DEL', PREFIX .. 'd:' .. id)
emit(row, 'draft.deleted')
return plain('deleted')
