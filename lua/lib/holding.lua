-- A call that comes again, and a new draft. Used by hold and again.

local LOOK_BACK = 16
local SESSIONS_MAX = 16

-- The table of docs/lifecycle.md: what an earlier draft says to an equal call.
local function says(row, same_key)
    local state = row.state
    if overdue(row) then
        return 'new'
    end
    if state == 'failed' and row.failure and NOT_SENT()[row.failure] then
        return 'new'
    end
    if state == 'succeeded' or state == 'failed' then
        local replays = row.collected_at == nil or within(row.collected_at, row.replay_ms)
        return (same_key or replays) and 'join' or 'flagged'
    end
    if state == 'rejected' then
        local by_person = row.r_person == '1'
        local remembered = by_person and row.r_at and within(row.r_at, row.refusal_ms)
        return (remembered or (same_key and by_person)) and 'refuse' or 'new'
    end
    if state == 'expired' or state == 'withdrawn' then
        return 'new'
    end
    return 'join'
end

-- The newest drafts under a join key, and the newest of those that may answer; newest first. Most calls meet none,
-- and few more than a handful: one look tells.
local function under(join)
    local stem = 'join ' .. join
    local found = downward('[' .. stem .. ' x' .. LAST, '[' .. stem .. ' a', LOOK_BACK + 1)
    if #found > LOOK_BACK then
        found = downward('[' .. stem .. ' a ' .. LAST, '[' .. stem .. ' a ', LOOK_BACK)
        for _, line in ipairs(downward('[' .. stem .. ' x ' .. LAST, '[' .. stem .. ' x ', LOOK_BACK)) do
            found[#found + 1] = line
        end
    end
    local order = {}
    for at, line in ipairs(found) do
        local kind, n, id = string.match(line, '^join %x+ ([ax]) (%d+) (dr_%x_%w+)$')
        if not kind then
            corrupt('a line under a join key')
        end
        order[at] = { id = id, n = tonumber(n), answers = kind == 'a' }
    end
    table.sort(order, function(one, other) return one.n > other.n end)
    local rows = {}
    for at, one in ipairs(order) do
        if at <= LOOK_BACK or one.answers then
            local row = load(one.id)
            if not row or row.join ~= join then
                corrupt('draft ' .. one.id .. ': it stands under a join key that is not its own')
            end
            rows[#rows + 1] = row
        end
    end
    return rows
end

-- How many drafts of an owner are pending and not past their time. What a wrong clock made does not count.
local function pending_of(owner)
    local stem = 'open ' .. owner .. ' '
    local count = redis.call('ZLEXCOUNT', IX, '(' .. stem .. place(now) .. ' ' .. LAST, '[' .. stem .. LAST)
    if count > 0 and high > now + TRUST_MS then
        local own = 'own ' .. owner .. ' '
        for _, line in ipairs(between('(' .. own .. place(now + TRUST_MS) .. ' ' .. LAST, '[' .. own .. LAST, count)) do
            local row = load(id_of(line) or '')
            count = count - (row and row.state == 'pending' and 1 or 0)
        end
    end
    return count
end

-- How many drafts of an owner were made after a time.
local function holds_of(owner, since)
    local stem = 'own ' .. owner .. ' '
    return redis.call('ZLEXCOUNT', IX, '(' .. stem .. place(math.max(since, 0)) .. ' ' .. LAST,
        '[' .. stem .. place(now + TRUST_MS) .. ' ' .. LAST)
end

local function contains(list, value)
    return string.find('\n' .. list .. '\n', '\n' .. value .. '\n', 1, true) ~= nil
end

local function joined(row, session)
    if #lines(row.sessions) < SESSIONS_MAX and not contains(row.sessions or '', session) then
        set(row, 'sessions', row.sessions and row.sessions ~= '' and row.sessions .. '\n' .. session or session)
        store(row)
        emit(row, 'draft.joined')
    end
    return reply('joined', row)
end

local function made(ask, duplicate, passed)
    last_n, high = last_n + 1, math.max(high, ask.created_at)
    ask.n, ask.state, ask.epoch = last_n, 'pending', 0
    writable()
    local values = {
        'fixed', ask.fixed, 'state', 'pending', 'epoch', '0', 'attempts', '0', 'sessions', ask.session,
        'n', text(last_n), 'sealed', ask.sealed,
    }
    local function also(name, value)
        if value and value ~= '' then
            values[#values + 1] = name
            values[#values + 1] = value
        end
    end
    also('ckey', ask.ckey)
    also('dup', duplicate)
    also('passed', passed)
    redis.call('HSET', PREFIX .. 'd:' .. ask.id, unpack(values))
    redis.call('ZADD', IX, unpack(entries(ask)))
    emit(ask, 'draft.held')
    return plain('made', duplicate, passed)
end

-- Keeps a draft whose time is over for when writing begins, once.
local function note(over, row)
    if overdue(row) and not over[row.id] then
        over[row.id] = true
        over[#over + 1] = row
    end
end

-- What earlier drafts say to a call: a word of `hold` and the draft it is about. If none of them answers: nothing,
-- nothing, the draft that it may repeat, those that were passed by, and the one whose key becomes free. What is past
-- its time goes into `over`.
local function earlier(ask, over)
    local duplicate, passed, key_of = '', {}, nil
    local keyed = ask.ckey and between('[key ' .. ask.ckey .. ' ', '[key ' .. ask.ckey .. ' ' .. LAST, 1)[1]
    if keyed then
        local row = load(id_of(keyed) or '')
        if not row or row.ckey ~= ask.ckey then
            corrupt('a key opens a draft that does not have it')
        end
        note(over, row)
        if row.args_hash ~= ask.args_hash then
            return 'key_reused', row
        end
        local said = says(row, true)
        if said == 'join' then
            return 'joined', row
        elseif said == 'refuse' then
            return 'rejected_before', row
        end
        passed[1] = row.id
        key_of = row
    end
    for _, row in ipairs(under(ask.join)) do
        note(over, row)
        local said = says(row, false)
        if said == 'refuse' then
            return 'rejected_before', row
        elseif not ask.ckey then
            if said == 'join' then
                return 'joined', row
            elseif said == 'flagged' then
                duplicate = duplicate == '' and row.id or duplicate
            else
                passed[#passed + 1] = row.id
            end
        end
    end
    return nil, nil, duplicate, passed, key_of
end

-- Holds a call. `ask` has what a draft's fixed part has and this step needs, and id, fixed, session, ckey, sealed.
local function hold_call(ask, pending_max, holds_max, window, ahead, behind)
    if redis.call('EXISTS', PREFIX .. 'd:' .. ask.id) == 1 then
        local known = load(ask.id)
        if not known then
            corrupt('draft ' .. ask.id .. ': its fixed part is gone')
        end
        if known.token ~= ask.token or known.join ~= ask.join or known.sealed_digest ~= ask.sealed_digest then
            return reply('other_draft')
        end
        return reply(known.epoch == 0 and 'new' or 'joined', known)
    end
    if ask.created_at - now > ahead or now - ask.created_at > behind or ask.expires_at <= now then
        return plain('clock', text(now))
    end
    local over = {}
    local word, answer, duplicate, passed, key_of = earlier(ask, over)
    -- An owner with fewer drafts in all than either limit, which is nearly every one, is counted once.
    if not word and holds_of(ask.owner, 0) >= math.min(pending_max, holds_max) then
        if pending_of(ask.owner) >= pending_max then
            word = 'too_many_pending'
        elseif holds_of(ask.owner, now - window) >= holds_max then
            word = 'rate_limited'
        end
    end
    -- Reading is over, so writing may begin: first the ends of drafts whose time was over.
    for _, row in ipairs(over) do
        expire(row)
    end
    if word == 'joined' then
        return joined(answer, ask.session)
    elseif word == 'key_reused' then
        return plain(word, answer.id)
    elseif word then
        return reply(word, answer)
    end
    if key_of then
        set(key_of, 'ckey', nil)
        store(key_of)
    end
    return made(ask, duplicate, table.concat(passed, '\n'))
end
