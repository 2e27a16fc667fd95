-- step: delete
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id ended_before
-- replies: kept deleted
-- Deletes a terminal, resolved draft that ended before a time.

local row = load(id)
if not row then
    return plain('kept')
end
expire(row)
local past = row.ended_at and (row.ended_at < tonumber(ended_before) or wild(row.ended_at))
if row.state == 'pending' or works(row) or row.state == 'unverifiable' or not past then
    return plain('kept')
end
local found, gone = entries(row), {}
for at = 2, #found, 2 do
    gone[#gone + 1] = found[at]
end
redis.call('ZREM', IX, unpack(gone))
redis.call('DEL', PREFIX .. 'd:' .. id)
emit(row, 'draft.deleted')
return plain('deleted')
