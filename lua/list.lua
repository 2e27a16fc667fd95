-- step: list
-- flags: no-writes
-- keys: meta ix
-- args: clock before statuses tenant owner initiator tool risk limit
-- replies: found
-- Ids of drafts that fit, newest first, and where to go on: the last id that was looked at, or nothing.
-- Looks at a bounded number, so that a filter that hardly anything fits does not keep the server busy.

local LOOKS_MAX = 2000
local limit_n = tonumber(limit)
local wanted = { tenant = tenant, owner = owner, initiator = initiator, tool = tool, risk = risk }

local order, cut = {}, false
for _, status in ipairs(lines(statuses)) do
    local stem = 'st ' .. status .. ' '
    local found = downward(IX, before == '' and '[' .. stem .. LAST or '(' .. stem .. before, '[' .. stem, LOOKS_MAX)
    cut = cut or #found == LOOKS_MAX
    for _, line in ipairs(found) do
        order[#order + 1] = string.sub(line, #stem + 1)
    end
end
table.sort(order, function(one, other) return one > other end)

local found, at = {}, 0
while at < #order and at < LOOKS_MAX and #found < limit_n do
    at = at + 1
    local fixed = redis.call('HGET', PREFIX .. 'd:' .. order[at], 'fixed')
    -- What cannot be read is left out, so that the others are still served.
    local reads, row = pcall(parse, fixed or '', order[at])
    local fits = reads
    for name, value in pairs(wanted) do
        fits = fits and (value == '' or row[name] == value)
    end
    if fits then
        found[#found + 1] = order[at]
    end
end
return { 'found', found, (at < #order or cut) and order[at] or '', {} }
