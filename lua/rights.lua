-- step: rights
-- flags: no-writes
-- keys: meta ix ev
-- args: clock
-- replies: allowed forbidden
-- Which commands of the steps the user may not run. One that fails in the middle of a step leaves half of it behind.

local draft = PREFIX .. 'd:dr_0_'
local missing = {}
for _, command in ipairs({
    { 'TIME' }, { 'HMGET', KEYS[1], 'n' }, { 'HSET', KEYS[1], 'n', '1' },
    { 'EXISTS', draft }, { 'HGET', draft, 'n' }, { 'HMGET', draft, 'n' }, { 'HGETALL', draft },
    { 'HSET', draft, 'n', '1' }, { 'HDEL', draft, 'n' }, { 'DEL', draft },
    { 'ZCARD', IX }, { 'ZADD', IX, '0', 'a' }, { 'ZREM', IX, 'a' }, { 'ZLEXCOUNT', IX, '-', '+' },
    { 'ZRANGEBYLEX', IX, '-', '+' }, { 'ZREVRANGEBYLEX', IX, '+', '-' },
    { 'XLEN', EV }, { 'XADD', EV, '*', 'a', 'b' }, { 'XDEL', EV, '1-0' }, { 'XRANGE', EV, '-', '+' },
    { 'XREVRANGE', EV, '+', '-' }, { 'PUBLISH', 'cs:hints', 'a' },
}) do
    if not redis.acl_check_cmd(unpack(command)) then
        missing[#missing + 1] = command[1] .. ' ' .. (command[2] or '')
    end
end
return plain(#missing == 0 and 'allowed' or 'forbidden', table.concat(missing, ', '))
