-- What every step begins with: the store's time, reading and writing one draft, its indices, its event.
-- The text of this file stands in front of every step. What stands in front of it is written by the guard from
-- its own tables: the arguments by their names, NAMES (a draft's fields without its sealed bytes and response), FIXED
-- (what never changes, one value to a line of the field `fixed`), NEXT (the transition table), STATUS (the status of
-- a state), NOT_SENT, TRUST_MS, EVENTS_KEPT_MS, EXPIRED.
--
-- One partition is one slot, and KEYS[1], its `meta`, names it. Every other key begins with the same
-- `cs:{N}:`, so no step leaves its slot:
--   meta        hash: clock (highest time a step has seen), seq (last event), oldest (time of the oldest event),
--               n (last draft), high (latest created_at)
--   d:<id>      hash: the draft
--   t:<digest>  the draft that a token opens;  k:<digest>  the draft that has a caller's key
--   j:<digest>  drafts under a join key by number;  x:<digest>  those of them that expired or were withdrawn
--   o:<owner>   an owner's drafts by created_at;  p:<owner>  those that are pending, by expires_at
--   st:<status> drafts of a status, in the order of their ids
--   due, lease, ended   what a sweep looks for, by time;  n:<node>  drafts that a process works on
--   ev          stream: the outbox
--
-- Numbers of Lua are doubles: everything that is compared or added here is below 2^53, or it is refused.

local CEILING = 9007199254740990
local PREFIX = string.sub(KEYS[1], 1, -5)

local function corrupt(what)
    error({ err = 'CORRUPT ' .. what })
end

-- A whole number, as text without an exponent.
local function text(number)
    return string.format('%.0f', number)
end

-- The whole number that a text spells, or a failure that names it. Nothing was written yet.
local function whole(value, what)
    if type(value) ~= 'string' or not string.find(value, '^%d+$') or #value > 16 or tonumber(value) > CEILING then
        corrupt(what .. ' is not a number')
    end
    return tonumber(value)
end

local meta = redis.call('HMGET', KEYS[1], 'clock', 'seq', 'n', 'high', 'oldest')
local seq = meta[2] and whole(meta[2], 'the number of the last event') or 0
local last_n = meta[3] and whole(meta[3], 'the number of the last draft') or 0
local high = meta[4] and whole(meta[4], 'the latest time of a hold') or 0
local oldest = meta[5] and whole(meta[5], 'the time of the oldest event')

-- The store's time: the server's, but never before what a step has seen. A time more than a day ahead of the
-- server's was written by a wrong clock and is not believed.
local now
if clock ~= '' then
    now = whole(clock, 'the handed clock')
else
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local seen = meta[1] and whole(meta[1], 'the clock') or 0
if seen > now and seen <= now + TRUST_MS then
    now = seen
end

local function parse(fixed, what)
    local row, at = {}, 0
    for value in string.gmatch(fixed, '([^\n]+)') do
        at = at + 1
        if not FIXED[at] then
            corrupt(what .. ': its fixed part is too long')
        end
        row[FIXED[at]] = value
    end
    if at ~= #FIXED then
        corrupt(what .. ': its fixed part is too short')
    end
    row.created_at = whole(row.created_at, what .. ': created_at')
    row.expires_at = whole(row.expires_at, what .. ': expires_at')
    row.replay_ms = whole(row.replay_ms, what .. ': the replay window')
    row.refusal_ms = whole(row.refusal_ms, what .. ': the refusal memory')
    return row
end

local TIMES = { 'epoch', 'attempts', 'lease_until', 'claimed_at', 'sent_at', 'seen_at', 'r_at', 'ended_at', 'collected_at', 'n' }

-- The draft, or nil. What this step needs of it can be read, or the step fails before it writes.
local function load(id)
    local values = redis.call('HMGET', PREFIX .. 'd:' .. id, unpack(NAMES))
    if not values[1] then
        return nil
    end
    local what = 'draft ' .. id
    local row = parse(values[1], what)
    for at, name in ipairs(NAMES) do
        if at > 1 and values[at] then
            row[name] = values[at]
        end
    end
    for _, name in ipairs(TIMES) do
        if row[name] then
            row[name] = whole(row[name], what .. ': ' .. name)
        end
    end
    if not row.state or not row.epoch or not row.attempts or not row.n or not STATUS[row.state] then
        corrupt(what .. ': a part of it is gone')
    end
    row.id, row.changes, row.was = id, {}, { state = row.state, lease_node = row.lease_node, ckey = row.ckey,
        lease_until = row.lease_until, ended_at = row.ended_at }
    return row
end

local function set(row, name, value)
    row[name] = value
    if value == nil then
        value = false
    end
    row.changes[name] = value
end

-- Moves the draft by the one table; false and no change if the table refuses.
local function moved(row, step)
    local to = NEXT[row.state .. ' ' .. step]
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

-- Writes that a step is told of, and the time that it has seen: also where nothing else changed, so that a step
-- that is asked again has a write whose acknowledgement stands for the first one's.
local function touch()
    redis.call('HSET', KEYS[1], 'clock', text(now))
end

-- Keeps the indices that find a draft in step with it.
local function index(row)
    local id, was = row.id, row.was
    if was.state ~= row.state then
        local before, after = STATUS[was.state], STATUS[row.state]
        if before ~= after then
            redis.call('ZREM', PREFIX .. 'st:' .. before, id)
            redis.call('ZADD', PREFIX .. 'st:' .. after, 0, id)
        end
        if was.state == 'pending' then
            redis.call('ZREM', PREFIX .. 'due', id)
            redis.call('ZREM', PREFIX .. 'p:' .. row.owner, id)
        end
        if row.state == 'expired' or row.state == 'withdrawn' then
            redis.call('ZREM', PREFIX .. 'j:' .. row.join, id)
            redis.call('ZADD', PREFIX .. 'x:' .. row.join, row.n, id)
        end
    end
    if was.lease_until ~= row.lease_until then
        if row.lease_until then
            redis.call('ZADD', PREFIX .. 'lease', row.lease_until, id)
        else
            redis.call('ZREM', PREFIX .. 'lease', id)
        end
    end
    if was.lease_node ~= row.lease_node then
        if was.lease_node then
            redis.call('SREM', PREFIX .. 'n:' .. was.lease_node, id)
        end
        if row.lease_node then
            redis.call('SADD', PREFIX .. 'n:' .. row.lease_node, id)
        end
    end
    if was.ended_at ~= row.ended_at or was.state ~= row.state then
        if row.ended_at and row.state ~= 'unverifiable' then
            redis.call('ZADD', PREFIX .. 'ended', row.ended_at, id)
        end
    end
    if was.ckey ~= row.ckey then
        if was.ckey and redis.call('GET', PREFIX .. 'k:' .. was.ckey) == id then
            redis.call('DEL', PREFIX .. 'k:' .. was.ckey)
        end
        if row.ckey then
            redis.call('SET', PREFIX .. 'k:' .. row.ckey, id)
        end
    end
end

local function store(row)
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
    index(row)
    row.changes, row.was = {}, { state = row.state, lease_node = row.lease_node, ckey = row.ckey,
        lease_until = row.lease_until, ended_at = row.ended_at }
end

local function at_of(entry)
    for place = 1, #entry[2], 2 do
        if entry[2][place] == 'at' then
            return tonumber(entry[2][place + 1])
        end
    end
end

-- Drops at most two of the oldest events that are past their time; the newest always stays.
local function trim()
    if oldest and oldest >= now - EVENTS_KEPT_MS and not wild(oldest) then
        return
    end
    local entries = redis.call('XRANGE', PREFIX .. 'ev', '-', '+', 'COUNT', 3)
    for place, entry in ipairs(entries) do
        local at = at_of(entry)
        if place == 3 or entry[1] == text(seq) .. '-0' or (at and at >= now - EVENTS_KEPT_MS and not wild(at)) then
            redis.call('HSET', KEYS[1], 'oldest', text(at or now))
            return
        end
        redis.call('XDEL', PREFIX .. 'ev', entry[1])
    end
end

-- Writes the event of a step and tells whoever listens on any node.
local function emit(row, kind, by, reason)
    seq = seq + 1
    redis.call('HSET', KEYS[1], 'seq', text(seq), 'clock', text(now))
    redis.call('XADD', PREFIX .. 'ev', text(seq) .. '-0', 'at', text(now), 'kind', kind, 'draft', row.id,
        'tenant', row.tenant, 'owner', row.owner, 'tool', row.tool, 'status', STATUS[row.state],
        'epoch', text(row.epoch), 'args', row.args_hash, 'by', by or '', 'reason', reason or '')
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
