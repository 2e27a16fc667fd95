-- step: due
-- flags: no-writes
-- keys: meta ix
-- args: clock ended_before own_dead limit
-- replies: found
-- What a sweep has to do: ids with the time by which they are due, of each kind at most `limit`.

local limit_n = tonumber(limit)

-- Ids and their times: of one kind, up to a time.
local function by_time(kind, to)
    local found = {}
    for _, line in ipairs(between('[' .. kind .. ' ', to, limit_n)) do
        local time, id = string.match(line, '^%a+ (%d+) (dr_%x_%w+)$')
        if time then
            found[#found + 1] = id
            found[#found + 1] = time
        end
    end
    return found
end

-- Stamps of a clock that was wrong lie more than a day ahead.
local function by_wild_time(kind, found, wanted)
    local from = '(' .. kind .. ' ' .. place(now + TRUST_MS) .. ' ' .. LAST
    for _, line in ipairs(downward('[' .. kind .. ' ' .. LAST, from, limit_n)) do
        local id = id_of(line)
        local reads, row = pcall(load, id or '')
        if #found < 2 * limit_n and reads and row and wanted(row) then
            found[#found + 1] = id
            found[#found + 1] = '0'
        end
    end
end

local expired = by_time('due', '[due ' .. place(now) .. ' ' .. LAST)
if high > now + TRUST_MS then
    by_wild_time('due', expired, overdue)
end

local orphaned, known = by_time('lease', '[lease ' .. place(now) .. ' ' .. LAST), {}
by_wild_time('lease', orphaned, lease_over)
for at = 1, #orphaned, 2 do
    known[orphaned[at]] = true
end
for _, name in ipairs(lines(own_dead)) do
    for _, line in ipairs(between('[node ' .. name .. '\n', '[node ' .. name .. '\n' .. LAST, limit_n)) do
        local id = id_of(line)
        if id and not known[id] then
            known[id] = true
            orphaned[#orphaned + 1] = id
            orphaned[#orphaned + 1] = '0'
        end
    end
end

local deletable = by_time('ended', '(ended ' .. place(math.max(tonumber(ended_before), 0)))
by_wild_time('ended', deletable, function(row) return row.ended_at ~= nil and row.state ~= 'unverifiable' end)
return { 'found', expired, orphaned, deletable }
