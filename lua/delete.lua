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
local own, token = PREFIX .. 'o:' .. row.owner, PREFIX .. 't:' .. row.token
-- Read before the first write, as every key that a step comes upon.
redis.call('ZCARD', own)
redis.call('XLEN', EV)
local opened = redis.call('EXISTS', token)
local function without(index, lines)
    local gone = {}
    for at = 2, #lines, 2 do
        gone[#gone + 1] = lines[at]
    end
    redis.call('ZREM', index, unpack(gone))
end
without(IX, lines_of(row))
without(own, own_lines(row))
if opened == 1 then
    redis.call('DEL', token)
end
redis.call('DEL', PREFIX .. 'd:' .. id)
emit(row, 'draft.deleted')
return plain('deleted')
