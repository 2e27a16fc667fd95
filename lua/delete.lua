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
redis.call('EXISTS', KEYS[4], own, token)
redis.call('ZCARD', own)
redis.call('ZCARD', IX)
redis.call('XLEN', EV)
emit(row, 'draft.deleted')
local function without(index, lines)
    local gone = {}
    for at = 2, #lines, 2 do
        gone[#gone + 1] = lines[at]
    end
    redis.call('ZREM', index, unpack(gone))
end
without(IX, lines_of(row))
without(own, own_lines(row))
redis.call('DEL', token, KEYS[4])
return plain('deleted')
