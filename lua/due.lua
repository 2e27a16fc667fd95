-- step: due
-- flags: no-writes
-- keys: meta
-- args: clock ended_before own_dead limit
-- replies: found
-- What a sweep has to do: ids with the time by which they are due, of each kind at most `limit`.

local limit_n = tonumber(limit)
local none = text(now + TRUST_MS)

local function by_time(name, max)
    return redis.call('ZRANGEBYSCORE', PREFIX .. name, '-inf', max, 'WITHSCORES', 'LIMIT', 0, limit_n)
end

-- Stamps of a clock that was wrong lie more than a day ahead.
local function by_wild_time(name, found, wanted)
    if #found >= 2 * limit_n then
        return
    end
    local flat = redis.call('ZREVRANGEBYSCORE', PREFIX .. name, '+inf', '(' .. none, 'WITHSCORES', 'LIMIT', 0, limit_n)
    for at = 1, #flat, 2 do
        local reads, row = pcall(load, flat[at])
        if reads and row and wanted(row) then
            found[#found + 1] = flat[at]
            found[#found + 1] = flat[at + 1]
        end
    end
end

local expired = by_time('due', text(now))
if high > now + TRUST_MS then
    by_wild_time('due', expired, overdue)
end

local orphaned, known = by_time('lease', text(now)), {}
for at = 1, #orphaned, 2 do
    known[orphaned[at]] = true
end
by_wild_time('lease', orphaned, lease_over)
for _, name in ipairs(lines(own_dead)) do
    for _, id in ipairs(redis.call('SRANDMEMBER', PREFIX .. 'n:' .. name, limit_n)) do
        if not known[id] then
            known[id] = true
            orphaned[#orphaned + 1] = id
            orphaned[#orphaned + 1] = '0'
        end
    end
end

local deletable = by_time('ended', '(' .. ended_before)
by_wild_time('ended', deletable, function(row) return row.ended_at ~= nil and row.state ~= 'unverifiable' end)
return { 'found', expired, orphaned, deletable }
