-- What every step begins with: its names, the store's time, its event. Stands in front of everything else.
-- What stands in front of it is written by the guard from its own tables: the argument `clock`, READS (whether the step
-- may not write), TRUST_MS, EVENTS_KEPT_MS, HOLD_AHEAD_MS and HOLD_BEHIND_MS, and STATUS, which gives the status of a
-- state. What is written behind it: the other arguments by their names, EXPIRED, and functions that give NAMES (a draft's
-- fields without its sealed bytes and response), FIXED (what never changes, one value to a line of the field `fixed`),
-- NEXT (the transition table) and NOT_SENT. They are functions so that a step makes only the tables that it uses.
--
-- One partition is one slot; every key begins with its `cs:{N}:`, so no step leaves its slot. Every key that a step
-- surely writes is named in KEYS: while a Cluster moves a slot, a step is then refused before it begins and not in its
-- middle. A key that a step comes upon is read before its first write, in one command with the draft's: so the server
-- refuses the step while one of them is on the other node, where a key that has not come yet would pass for none.
--   meta       text, six numbers: the highest time that a step has seen, the server's time then, the last event, the last
--              draft, the latest created_at, the time of the oldest event
--   d:<id>     hash: a draft
--   t:<digest> text: the id of the draft that a token opens
--   o:<owner>  sorted set, all scores 0: what a call of this owner may meet, as lines in byte order (see `own_lines` in row.lua)
--   ix         sorted set, all scores 0: the drafts by status and by what is due, likewise (see `lines_of` there)
--   ev         stream: the outbox
-- An owner's lines are at most 64 bytes and mostly few, so the server keeps them in one flat piece; what all owners share
-- grows at its end. So a step costs the same beside many drafts.
--
-- Numbers of Lua are doubles: everything that is compared or added here is below 2^53, or it is refused.

local CEILING = 9007199254740990
local PREFIX = string.sub(KEYS[1], 1, -5)
local IX, EV = KEYS[2], KEYS[3]
-- Sorts behind everything that a line can go on with.
local LAST = '\255'

local function corrupt(what)
    error({ err = 'CORRUPT ' .. what })
end

-- What all steps of a partition need cannot be read: no draft is at fault.
local function damaged(what)
    error({ err = 'DAMAGED ' .. what })
end

-- A whole number, as text without an exponent. `%d` and not `%.0f`: that one is ten times as slow.
local function text(number)
    return string.format('%d', number)
end

-- A whole number in sixteen digits, which sorts as the number does.
local function place(number)
    return string.format('%016d', number)
end

-- The partition's numbers.
local seen, seen_raw, seq, last_n, high, oldest = 0, 0, 0, 0, 0, 0
local kept = redis.pcall('GET', KEYS[1])
if kept then
    seen = nil
    if type(kept) == 'string' then
        seen, seen_raw, seq, last_n, high, oldest = string.match(kept, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    end
    if type(kept) == 'table' and not string.find(kept.err or '', '^WRONGTYPE') then
        error({ err = kept.err .. ' (GET ' .. KEYS[1] .. ')' })
    elseif not seen then
        damaged(KEYS[1] .. ' is not the six numbers of a partition')
    end
    seen, seen_raw, seq = tonumber(seen), tonumber(seen_raw), tonumber(seq)
    last_n, high, oldest = tonumber(last_n), tonumber(high), tonumber(oldest)
    if math.max(seen, seen_raw, seq + 1, last_n + 1, high, oldest) > CEILING then
        damaged('a number in ' .. KEYS[1] .. ' is larger than can be counted')
    end
end

-- The store's time: the server's, but never before what a step has seen. Where the server's clock was set back, it
-- goes on at half speed until that has caught up, so that leases and lives still end. A time more than a day ahead
-- of the server's was written by a wrong clock and is not believed.
local now
if clock ~= '' then
    now = tonumber(clock)
else
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local raw = now

-- Keeps the partition's numbers; with them, in one command, the id under a token.
local function keep(token, id)
    local numbers = string.format('%d %d %d %d %d %d', now, raw, seq, last_n, high, oldest)
    if token then
        redis.call('MSET', KEYS[1], numbers, token, id)
    else
        redis.call('SET', KEYS[1], numbers)
    end
end

if seen > raw and seen <= raw + TRUST_MS then
    local half = math.floor((raw - seen_raw) / 2)
    if half < 0 then
        -- Set back since: what stood there says nothing any more, and the next step counts from here.
        now, half = seen, 0
        if not READS then
            keep()
        end
    else
        now, raw = seen + half, seen_raw + 2 * half
    end
end

local function wild(at)
    return at > now + TRUST_MS
end

-- What the lines of a join key and of a caller's key begin with. Each is cut, so that a line stays short. Calls whose join
-- keys begin alike are told apart by their drafts; callers' keys that begin alike, in 124 bits, are not there.
local function join_stem(join)
    return 'j' .. string.sub(join, 1, 13)
end

local function key_stem(ckey)
    return 'k' .. string.sub(ckey, 1, 31) .. ' '
end

-- Drops at most two of the oldest events that are past their time; the newest always stays.
local function trim()
    local first = redis.call('XRANGE', EV, '-', '+', 'COUNT', 3)
    for at, entry in ipairs(first) do
        -- What somebody else has made has no time.
        local time = entry[2][1] == 'e' and tonumber(string.match(entry[2][2], '^(%d+)\n'))
        local stays = time and time <= CEILING and time >= now - EVENTS_KEPT_MS and not wild(time)
        if at == 3 or stays or entry[1] == text(seq) .. '-0' then
            oldest = time and time <= CEILING and time or now
            return
        end
        redis.call('XDEL', EV, entry[1])
    end
end

-- Whether this step has written the time that it has seen.
local touched = false

-- Writes the event of a step under the next number, and tells whoever listens on any node. What has no line break is one
-- field, what may have is others: fewer pieces cost less. `token` is written with it.
local function emit(row, kind, by, reason, token)
    touched = true
    local event = text(now) .. '\n' .. kind .. '\n' .. row.id .. '\n' .. row.tenant .. '\n' .. row.owner .. '\n' .. row.tool .. '\n'
        .. (row.status or STATUS()[row.state]) .. '\n' .. text(row.epoch) .. '\n' .. row.args_hash
    for try = 1, 2 do
        seq = seq + 1
        local added
        if by or reason then
            added = redis.pcall('XADD', EV, text(seq) .. '-0', 'e', event, 'by', by or '', 'reason', reason or '')
        else
            added = redis.pcall('XADD', EV, text(seq) .. '-0', 'e', event)
        end
        if type(added) ~= 'table' or not added.err then
            break
        elseif try == 2 then
            error(added)
        end
        -- Somebody put numbers into the stream, or took the counter back: go on behind what stands there.
        local info = redis.call('XINFO', 'STREAM', EV)
        for at = 1, #info, 2 do
            if info[at] == 'last-generated-id' then
                seq = math.max(seq, tonumber(string.match(info[at + 1], '^%d+')))
            end
        end
        if seq >= CEILING then
            damaged('the last number that ' .. EV .. ' has had is larger than can be counted')
        end
    end
    if oldest < now - EVENTS_KEPT_MS or wild(oldest) then
        trim()
    end
    keep(token, row.id)
    redis.call('PUBLISH', 'cs:hints', row.id)
end

-- The answer of a step: a word alone, or a word, two values that it may have, a draft as it stands and its id.
local function plain(word, one, two)
    if not one and not two then
        return word
    end
    return { word, one or '', two or '', {}, '' }
end
