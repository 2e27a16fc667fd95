-- What every step begins with: the store's time, reading and writing one draft, its index, its event.
-- The text of this file stands in front of every step. What stands in front of it is written by the guard from
-- its own tables: the arguments by their names, READS (whether the step may not write), TRUST_MS, EVENTS_KEPT_MS and EXPIRED, and functions that give NAMES
-- (a draft's fields without its sealed bytes and response), FIXED (what never changes, one value to a line of the
-- field `fixed`), NEXT (the transition table), STATUS (the status of a state) and NOT_SENT. They are functions so that
-- a step makes only the tables that it uses.
--
-- One partition is one slot; every key begins with its `cs:{N}:`, so no step leaves its slot. Every key that a step
-- surely writes is named in KEYS: while a Cluster moves a slot, a step is then refused before it begins and not in its
-- middle. Drafts that a step comes upon are read before its first write, which refuses it in the same way:
--   meta      hash: clock (highest time a step has seen), raw (the server's time then), seq (last event), oldest (time of the oldest event),
--             n (last draft), high (latest created_at)
--   d:<id>    hash: a draft
--   ix        sorted set, all scores 0: every way in which a draft is found, as a line in byte order (see `entries`)
--   ev        stream: the outbox
-- One index and not one for each question: a call from here costs more than the work that it asks for.
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

-- The whole number that a text spells, or a failure that names it: a field, and the draft that has it, or the
-- partition's meta. Nothing was written yet.
local function whole(value, what, id)
    -- Digits alone: what else Lua takes for a number (0x10, 1e3) the guard could not read.
    local number = string.find(value or '', '^%d+$') and tonumber(value)
    if not number or number > CEILING then
        if not id then
            damaged(what .. ' is not a number')
        end
        corrupt('draft ' .. id .. ': ' .. what .. ' is not a number')
    end
    return number
end

local meta = redis.call('HMGET', KEYS[1], 'clock', 'seq', 'n', 'high', 'oldest', 'raw')
local seq = meta[2] and whole(meta[2], 'the number of the last event') or 0
local last_n = meta[3] and whole(meta[3], 'the number of the last draft') or 0
local high = meta[4] and whole(meta[4], 'the latest time of a hold') or 0
if seq >= CEILING or last_n >= CEILING then
    damaged('the number of the last event or draft is the last that can be counted')
end
local oldest = meta[5] and whole(meta[5], 'the time of the oldest event')

-- The store's time: the server's, but never before what a step has seen. Where the server's clock was set back, it
-- goes on at half speed until that has caught up, so that leases and lives still end. A time more than a day ahead
-- of the server's was written by a wrong clock and is not believed.
local raw
if clock ~= '' then
    raw = whole(clock, 'the handed clock')
else
    local time = redis.call('TIME')
    raw = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local now, mark = raw, raw
local seen = meta[1] and whole(meta[1], 'the clock') or 0
if seen > raw and seen <= raw + TRUST_MS then
    mark = meta[6] and whole(meta[6], "the server's time") or raw
    if mark > raw then
        -- Set back since: what stood there says nothing any more, and the next step counts from here.
        mark = raw
        if not READS then
            redis.call('HSET', KEYS[1], 'raw', text(raw))
        end
    end
    local half = math.floor((raw - mark) / 2)
    now, mark = seen + half, mark + 2 * half
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

-- The lines under which a draft is found, each behind its score, as ZADD takes them.
local function entries(row)
    local id, state = row.id, row.state
    local gone = state == 'expired' or state == 'withdrawn'
    local found = {
        '0', 'tok ' .. row.token .. ' ' .. id,
        '0', 'own ' .. row.owner .. ' ' .. place(row.created_at) .. ' ' .. id,
        '0', 'join ' .. row.join .. (gone and ' x ' or ' a ') .. place(row.n) .. ' ' .. id,
        '0', 'st ' .. STATUS()[state] .. ' ' .. id,
    }
    local function also(line)
        found[#found + 1] = '0'
        found[#found + 1] = line
    end
    if state == 'pending' then
        local till = place(row.expires_at) .. ' ' .. id
        also('due ' .. till)
        also('open ' .. row.owner .. ' ' .. till)
    end
    if row.ckey then
        also('key ' .. row.ckey .. ' ' .. id)
    end
    if row.lease_until then
        also('lease ' .. place(row.lease_until) .. ' ' .. id)
    end
    if row.lease_node then
        also('node ' .. row.lease_node .. '\n' .. id)
    end
    if row.ended_at and state ~= 'unverifiable' then
        also('ended ' .. place(row.ended_at) .. ' ' .. id)
    end
    return found
end

-- Lines of the index between two texts, both included; `LAST` behind the second takes all that begin with it.
local function between(from, to, count)
    return redis.call('ZRANGEBYLEX', IX, from, to, 'LIMIT', 0, count)
end

-- The same, from the last one down.
local function downward(to, from, count)
    return redis.call('ZREVRANGEBYLEX', IX, to, from, 'LIMIT', 0, count)
end

-- The id at the end of a line.
local function id_of(line)
    return string.match(line, '(dr_%x_%w+)$')
end

-- Changes a field; nil takes it away.
local function set(row, name, value)
    row.before = row.before or entries(row)
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

local function wild(at)
    return at > now + TRUST_MS
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
local touched = false
local function touch()
    if not touched then
        redis.call('HSET', KEYS[1], 'clock', text(now), 'raw', text(mark))
    end
end

-- Fails before the first write where a key of the partition is not what it should be: Redis keeps what a script
-- that fails has written.
local function writable()
    redis.call('ZCARD', IX)
    redis.call('XLEN', EV)
end

-- Writes a changed draft, and its lines of the index as far as they changed.
local function store(row)
    writable()
    local key, values, gone = PREFIX .. 'd:' .. row.id, {}, {}
    for name, value in pairs(row.changes) do
        if value == false then
            gone[#gone + 1] = name
        else
            values[#values + 1] = name
            values[#values + 1] = type(value) == 'number' and text(value) or value
        end
    end
    if #values > 0 then
        redis.call('HSET', key, unpack(values))
    end
    if #gone > 0 then
        redis.call('HDEL', key, unpack(gone))
    end
    local stale, fresh, old = {}, {}, {}
    local before, after = row.before or {}, entries(row)
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
    if #old > 0 then
        redis.call('ZREM', IX, unpack(old))
    end
    if #fresh > 0 then
        redis.call('ZADD', IX, unpack(fresh))
    end
    row.changes, row.before = {}, nil
end

-- The time of an event; nothing where it is none, as with an entry that somebody else has made.
local function at_of(entry)
    for at = 1, #entry[2], 2 do
        if entry[2][at] == 'at' then
            local time = string.find(entry[2][at + 1], '^%d+$') and tonumber(entry[2][at + 1])
            return time and time <= CEILING and time or nil
        end
    end
end

-- Drops at most two of the oldest events that are past their time; the newest always stays.
local function trim()
    if oldest and oldest >= now - EVENTS_KEPT_MS and not wild(oldest) then
        return
    end
    local first = redis.call('XRANGE', EV, '-', '+', 'COUNT', 3)
    for at, entry in ipairs(first) do
        local time = at_of(entry)
        local kept = time and time >= now - EVENTS_KEPT_MS and not wild(time)
        if at == 3 or kept or entry[1] == text(seq) .. '-0' then
            oldest = time or now
            redis.call('HSET', KEYS[1], 'oldest', text(oldest))
            return
        end
        redis.call('XDEL', EV, entry[1])
    end
end

-- Adds an event to the stream under the next number; what the server says.
local function append(row, kind, by, reason)
    return redis.pcall('XADD', EV, text(seq) .. '-0', 'at', text(now), 'kind', kind, 'draft', row.id,
        'tenant', row.tenant, 'owner', row.owner, 'tool', row.tool, 'status', STATUS()[row.state],
        'epoch', text(row.epoch), 'args', row.args_hash, 'by', by or '', 'reason', reason or '')
end

-- Writes the event of a step and tells whoever listens on any node.
local function emit(row, kind, by, reason)
    seq, touched = seq + 1, true
    local added = append(row, kind, by, reason)
    if type(added) == 'table' and added.err then
        -- Somebody put numbers into the stream, or took the counter back: go on behind what stands there.
        local top = redis.call('XREVRANGE', EV, '+', '-', 'COUNT', 1)[1]
        seq = math.max(seq, top and tonumber(string.match(top[1], '^%d+')) or 0) + 1
        added = append(row, kind, by, reason)
        if type(added) == 'table' and added.err then
            error(added)
        end
    end
    redis.call('HSET', KEYS[1], 'seq', text(seq), 'clock', text(now), 'raw', text(mark), 'n', text(last_n),
        'high', text(high))
    trim()
    redis.call('PUBLISH', 'cs:hints', row.id)
end

-- Expires a pending draft whose time is over; every step that meets one does this.
local function expire(row)
    if overdue(row) and moved(row, 'expire') then
        set(row, 'r_by', '')
        set(row, 'r_reason', EXPIRED)
        set(row, 'r_at', now)
        set(row, 'ended_at', now)
        store(row)
        emit(row, 'draft.expired')
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

-- The answer of a step: a word, two values that it may have, a draft as it stands and its id.
local function plain(word, one, two)
    return { word, one or '', two or '', {}, '' }
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
