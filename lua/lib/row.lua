-- Reading and writing one draft. Stands in front of every step, behind `begin`.

-- The whole number that a text spells, or a failure that names it: a field, and the draft that has it. Nothing was
-- written yet.
local function whole(value, what, id)
    -- Digits alone: what else Lua takes for a number (0x10, 1e3) the guard could not read.
    local number = string.find(value or '', '^%d+$') and tonumber(value)
    if not number or number > CEILING then
        corrupt('draft ' .. id .. ': ' .. what .. ' is not a number')
    end
    return number
end

local function parse(fixed, id)
    local row, at, names = {}, 0, FIXED()
    for value in string.gmatch(fixed, '([^\n]+)') do
        at = at + 1
        if not names[at] then
            corrupt('draft ' .. id .. ': its fixed part is too long')
        end
        row[names[at]] = value
    end
    if at ~= #names then
        corrupt('draft ' .. id .. ': its fixed part is too short')
    end
    row.created_at = whole(row.created_at, 'created_at', id)
    row.expires_at = whole(row.expires_at, 'expires_at', id)
    row.replay_ms = whole(row.replay_ms, 'the replay window', id)
    row.refusal_ms = whole(row.refusal_ms, 'the refusal memory', id)
    return row
end

-- The draft, or nil. What this step needs of it can be read, or the step fails before it writes.
local function load(id)
    local names = NAMES()
    local values = redis.call('HMGET', PREFIX .. 'd:' .. id, unpack(names))
    if not values[1] then
        return nil
    end
    local row = parse(values[1], id)
    for at, name in ipairs(names) do
        if at > 1 and values[at] then
            row[name] = values[at]
        end
    end
    for _, name in ipairs({ 'epoch', 'attempts', 'lease_until', 'claimed_at', 'sent_at', 'seen_at', 'r_at', 'ended_at',
        'collected_at', 'n' }) do
        if row[name] then
            row[name] = whole(row[name], name, id)
        end
    end
    if not row.state or not row.epoch or not row.attempts or not row.n or not STATUS()[row.state] then
        corrupt('draft ' .. id .. ': a part of it is gone')
    end
    row.id, row.changes = id, {}
    return row
end

-- A line of an index: what it is, a number that sorts, the draft.
local function line_of(kind, number, id)
    return kind .. ' ' .. place(number) .. ' ' .. id
end

-- A draft's lines in the partition's index, each behind its score, as ZADD takes them.
local function lines_of(row)
    local id, state = row.id, row.state
    local found = { '0', 'st ' .. STATUS()[state] .. ' ' .. id }
    local function also(line)
        found[#found + 1] = '0'
        found[#found + 1] = line
    end
    if state == 'pending' then
        also(line_of('due', row.expires_at, id))
    end
    if row.lease_until then
        also(line_of('lease', row.lease_until, id))
    end
    if row.lease_node then
        also('node ' .. row.lease_node .. '\n' .. id)
    end
    if row.ended_at and state ~= 'unverifiable' then
        also(line_of('ended', row.ended_at, id))
    end
    return found
end

-- A draft's lines in its owner's index, likewise: by time, by join key (drafts that may answer an equal call, `a`, before
-- those that are gone, `x`), while it is pending by its end, and by the caller's key.
local function own_lines(row)
    local id, state = row.id, row.state
    local gone = state == 'expired' or state == 'withdrawn'
    local found = {
        '0', line_of('own', row.created_at, id),
        '0', line_of(join_stem(row.join) .. (gone and 'x' or 'a'), row.n, id),
    }
    if state == 'pending' then
        found[5], found[6] = '0', line_of('open', row.expires_at, id)
    end
    if row.ckey then
        found[#found + 1] = '0'
        found[#found + 1] = key_stem(row.ckey) .. id
    end
    return found
end

-- Lines of an index between two texts, both included; `LAST` behind the second takes all that begin with it.
local function between(index, from, to, count)
    return redis.call('ZRANGEBYLEX', index, from, to, 'LIMIT', 0, count)
end

-- The same, from the last one down.
local function downward(index, to, from, count)
    return redis.call('ZREVRANGEBYLEX', index, to, from, 'LIMIT', 0, count)
end

-- The id at the end of a line.
local function id_of(line)
    return string.match(line, '(dr_%x_%w+)$')
end

-- Changes a field; nil takes it away.
local function set(row, name, value)
    row.lines, row.own = row.lines or lines_of(row), row.own or own_lines(row)
    row[name] = value
    if value == nil then
        value = false
    end
    row.changes[name] = value
end

-- Moves the draft by the one table; false and no change if the table refuses.
local function moved(row, step)
    local to = NEXT()[row.state .. ' ' .. step]
    if not to then
        return false
    end
    set(row, 'state', to)
    return true
end

local function overdue(row)
    return row.state == 'pending' and (now >= row.expires_at or wild(row.created_at))
end

local function within(at, window)
    return not wild(at) and now - at < window
end

local function lease_over(row)
    return row.lease_until == nil or now >= row.lease_until or wild(row.lease_until)
end

-- Whether somebody works on it.
local function works(row)
    return row.state == 'verifying' or STATUS()[row.state] == 'running'
end

-- Writes the time that a step has seen: also where nothing else changed, so that a step that is asked again has a
-- write whose acknowledgement stands for the first one's.
local function touch()
    if not touched then
        keep()
    end
end

-- Of two lists of lines, what is not in the second any more, and what is new there as ZADD takes it.
local function changed(before, after)
    local stale, old, fresh = {}, {}, {}
    for at = 2, #before, 2 do
        stale[before[at]] = true
    end
    for at = 2, #after, 2 do
        if stale[after[at]] then
            stale[after[at]] = nil
        else
            fresh[#fresh + 1] = '0'
            fresh[#fresh + 1] = after[at]
        end
    end
    for line in pairs(stale) do
        old[#old + 1] = line
    end
    return old, fresh
end

-- What is new first: an index that lost its last line would be no key any more, and a node that a slot moves away from
-- would not make it again.
local function rewrite(index, old, fresh)
    if #fresh > 0 then
        redis.call('ZADD', index, unpack(fresh))
    end
    if #old > 0 then
        redis.call('ZREM', index, unpack(old))
    end
end

-- Writes a changed draft, its event if there is one, and its lines as far as they changed. Fails before the first write
-- where a key is not what it should be: Redis keeps what a script that fails has written. The event is the first, because
-- the stream may refuse it.
local function store(row, kind, by, reason)
    local key, values, gone = PREFIX .. 'd:' .. row.id, {}, {}
    for name, value in pairs(row.changes) do
        if value == false then
            gone[#gone + 1] = name
        else
            values[#values + 1] = name
            values[#values + 1] = type(value) == 'number' and text(value) or value
        end
    end
    local old, fresh, own_old, own_fresh = {}, {}, {}, {}
    if row.lines then
        old, fresh = changed(row.lines, lines_of(row))
        own_old, own_fresh = changed(row.own, own_lines(row))
    end
    local own = PREFIX .. 'o:' .. row.owner
    redis.call('ZCARD', IX)
    redis.call('XLEN', EV)
    if #own_old > 0 or #own_fresh > 0 then
        redis.call('EXISTS', key, own)
        redis.call('ZCARD', own)
    end
    if kind then
        emit(row, kind, by, reason)
    end
    if #values > 0 then
        redis.call('HSET', key, unpack(values))
    end
    if #gone > 0 then
        redis.call('HDEL', key, unpack(gone))
    end
    rewrite(IX, old, fresh)
    rewrite(own, own_old, own_fresh)
    row.changes, row.lines, row.own = {}, nil, nil
end

-- Expires a pending draft whose time is over; every step that meets one does this.
local function expire(row)
    if overdue(row) and moved(row, 'expire') then
        set(row, 'r_by', '')
        set(row, 'r_reason', EXPIRED)
        set(row, 'r_at', now)
        set(row, 'ended_at', now)
        store(row, 'draft.expired')
        return true
    end
    return false
end

-- What a draft remembers of a step id: nil (the step runs), 'superseded', or the answer that it got.
local function recall(row, name, id)
    local memo = row['m:' .. name]
    if not memo then
        return nil
    end
    local known, epoch, answer = string.match(memo, '^(%x+) (%d+) (.*)$')
    if not known then
        corrupt('draft ' .. row.id .. ': the memory of ' .. name)
    end
    if known ~= id then
        return nil
    end
    return epoch == text(row.epoch) and answer or 'superseded'
end

local function remember(row, name, id, answer)
    set(row, 'm:' .. name, id .. ' ' .. text(row.epoch) .. ' ' .. answer)
end

local function next_epoch(row)
    if row.epoch >= CEILING then
        corrupt('draft ' .. row.id .. ': its epoch is the last that can be counted')
    end
    return row.epoch + 1
end

local function reply(word, row, one, two)
    touch()
    if not row then
        return plain(word, one, two)
    end
    return { word, one or '', two or '', redis.call('HGETALL', PREFIX .. 'd:' .. row.id), row.id }
end

-- The lines of a list that is kept in one field.
local function lines(value)
    local found = {}
    if value then
        for line in string.gmatch(value, '([^\n]+)') do
            found[#found + 1] = line
        end
    end
    return found
end
