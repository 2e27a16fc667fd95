-- step: due
-- flags: allow-oom
-- keys: meta ix
-- args: clock ended_before own_dead limit
-- replies: found
-- Writes nothing but the server's time, where that was set back. What a sweep has to do: ids with the time by which they are due, of each kind at most `limit`.

local limit_n = tonumber(limit)

-- How many lines are looked at for each kind: what is damaged must not hide what is due, nor keep the server busy.
local LOOKS_MAX = 5000

-- Ids and their times: of one kind, up to a time, of drafts that can be worked on.
local function by_time(kind, to, wanted)
    local found, from, looked = {}, '[' .. kind .. ' ', 0
    while #found < 2 * limit_n and looked < LOOKS_MAX do
        local some = between(IX, from, to, limit_n)
        for _, line in ipairs(some) do
            local time, id = string.match(line, '^%a+ (%d+) (dr_%x_%w+)$')
            local reads, row = pcall(load, id or '')
            if #found < 2 * limit_n and reads and row and wanted(row) then
                found[#found + 1] = id
                found[#found + 1] = time
            end
            from, looked = '(' .. line, looked + 1
        end
        if #some < limit_n then
            break
        end
    end
    return found
end

-- Stamps of a clock that was wrong lie more than a day ahead.
local function by_wild_time(kind, found, wanted)
    local from = '(' .. kind .. ' ' .. place(now + TRUST_MS) .. ' ' .. LAST
    for _, line in ipairs(downward(IX, '[' .. kind .. ' ' .. LAST, from, limit_n)) do
        local id = id_of(line)
        local reads, row = pcall(load, id or '')
        if #found < 2 * limit_n and reads and row and wanted(row) then
            found[#found + 1] = id
            found[#found + 1] = '0'
        end
    end
end

local expired = by_time('due', '[due ' .. place(now) .. ' ' .. LAST, overdue)
if high > now + TRUST_MS then
    by_wild_time('due', expired, overdue)
end

-- Nobody works on it any more.
local function orphan(row)
    return works(row) and lease_over(row)
end

local orphaned, known = by_time('lease', '[lease ' .. place(now) .. ' ' .. LAST, orphan), {}
by_wild_time('lease', orphaned, orphan)
for at = 1, #orphaned, 2 do
    known[orphaned[at]] = true
end
for _, name in ipairs(lines(own_dead)) do
    for _, line in ipairs(between(IX, '[node ' .. name .. '\n', '[node ' .. name .. '\n' .. LAST, limit_n)) do
        local id = id_of(line)
        if id and not known[id] then
            known[id] = true
            orphaned[#orphaned + 1] = id
            orphaned[#orphaned + 1] = '0'
        end
    end
end

local function ended(row)
    return row.ended_at ~= nil and row.state ~= 'unverifiable'
end

local deletable = by_time('ended', '(ended ' .. place(math.max(tonumber(ended_before), 0)), ended)
by_wild_time('ended', deletable, ended)
return { 'found', expired, orphaned, deletable }
