-- step: rights
-- flags: no-writes
-- keys: meta ix ev
-- args: clock
-- replies: allowed forbidden
-- Which commands of the steps the user may not run. One that fails in the middle of a step leaves half of it behind.

local draft, own, token = PREFIX .. 'd:dr_0_', PREFIX .. 'o:0', PREFIX .. 't:0'
local missing = {}
for _, command in ipairs({
    { 'TIME' }, { 'GET', KEYS[1] }, { 'MGET', KEYS[1] }, { 'SET', KEYS[1], '1' },
    { 'EXISTS', draft }, { 'HGET', draft, 'n' }, { 'HMGET', draft, 'n' }, { 'HGETALL', draft },
    { 'HEXISTS', draft, 'n' },
    { 'HSET', draft, 'n', '1' }, { 'HDEL', draft, 'n' }, { 'DEL', draft },
    { 'MSET', token, 'a' }, { 'EXISTS', token }, { 'DEL', token },
    { 'ZCARD', IX }, { 'ZADD', IX, '0', 'a' }, { 'ZREM', IX, 'a' }, { 'ZRANGEBYLEX', IX, '-', '+' },
    { 'ZREVRANGEBYLEX', IX, '+', '-' },
    { 'ZCARD', own }, { 'ZCOUNT', own, '0', '0' }, { 'ZADD', own, '0', 'a' }, { 'ZREM', own, 'a' },
    { 'ZLEXCOUNT', own, '-', '+' }, { 'ZRANGEBYLEX', own, '-', '+' }, { 'ZREVRANGEBYLEX', own, '+', '-' },
    { 'XLEN', EV }, { 'XADD', EV, '*', 'a', 'b' }, { 'XDEL', EV, '1-0' }, { 'XRANGE', EV, '-', '+' },
    { 'XINFO', 'STREAM', EV }, { 'PUBLISH', 'cs:hints', 'a' },
}) do
    if not redis.acl_check_cmd(unpack(command)) then
        missing[#missing + 1] = command[1] .. ' ' .. (command[2] or '')
    end
end
return plain(#missing == 0 and 'allowed' or 'forbidden', table.concat(missing, ', '))
