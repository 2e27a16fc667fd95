-- A call that comes again, and a new draft. Used by hold and again.

local LOOK_BACK = 16
local SESSIONS_MAX = 16

-- The table of docs/lifecycle.md: what an earlier draft says to an equal call.
local function says(row, same_key)
    local state = row.state
    if overdue(row) then
        return 'new'
    end
    if state == 'failed' and row.failure and NOT_SENT[row.failure] then
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

-- The newest drafts under a join key, and the newest of those that may answer; newest first.
local function under(join)
    local found, order = {}, {}
    for _, kind in ipairs({ 'j:', 'x:' }) do
        local flat = redis.call('ZREVRANGE', PREFIX .. kind .. join, 0, LOOK_BACK - 1, 'WITHSCORES')
        for at = 1, #flat, 2 do
            local one = { id = flat[at], n = tonumber(flat[at + 1]), answers = kind == 'j:' }
            order[#order + 1] = one
        end
    end
    table.sort(order, function(one, other) return one.n > other.n end)
    for at, one in ipairs(order) do
        if at <= LOOK_BACK or one.answers then
            local row = load(one.id)
            if not row or row.join ~= join then
                corrupt('draft ' .. one.id .. ': it stands under a join key that is not its own')
            end
            found[#found + 1] = row
        end
    end
    return found
end

local function count_wild(owner)
    if high <= now + TRUST_MS then
        return 0, 0
    end
    local pending = 0
    local ids = redis.call('ZRANGEBYSCORE', PREFIX .. 'o:' .. owner, '(' .. text(now + TRUST_MS), '+inf')
    for _, id in ipairs(ids) do
        if redis.call('ZSCORE', PREFIX .. 'p:' .. owner, id) then
            pending = pending + 1
        end
    end
    return #ids, pending
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
    last_n = last_n + 1
    local values = {
        'fixed', ask.fixed, 'state', 'pending', 'epoch', '0', 'attempts', '0', 'sessions', ask.session,
        'n', text(last_n), 'sealed', ask.sealed,
    }
    local function also(name, value)
        if value ~= '' then
            values[#values + 1] = name
            values[#values + 1] = value
        end
    end
    also('ckey', ask.ckey)
    also('dup', duplicate)
    also('passed', passed)
    redis.call('HSET', PREFIX .. 'd:' .. ask.id, unpack(values))
    redis.call('SET', PREFIX .. 't:' .. ask.token, ask.id)
    redis.call('ZADD', PREFIX .. 'j:' .. ask.join, last_n, ask.id)
    if ask.ckey ~= '' then
        redis.call('SET', PREFIX .. 'k:' .. ask.ckey, ask.id)
    end
    redis.call('ZADD', PREFIX .. 'o:' .. ask.owner, ask.created_at, ask.id)
    redis.call('ZADD', PREFIX .. 'p:' .. ask.owner, ask.expires_at, ask.id)
    redis.call('ZADD', PREFIX .. 'due', ask.expires_at, ask.id)
    redis.call('ZADD', PREFIX .. 'st:pending', 0, ask.id)
    redis.call('HSET', KEYS[1], 'n', text(last_n), 'high', text(math.max(high, ask.created_at)))
    ask.epoch, ask.state = 0, 'pending'
    emit(ask, 'draft.held')
    return plain('made', duplicate, passed)
end

-- Holds a call. `ask` is the parsed fixed part with id, fixed, session, ckey, sealed and the owner's bounds.
local function hold_call(ask, pending_max, holds_max, window, ahead, behind)
    local known = load(ask.id)
    if known then
        if known.token ~= ask.token or known.join ~= ask.join or known.sealed_digest ~= ask.sealed_digest then
            return reply('other_draft')
        end
        return reply(known.epoch == 0 and 'new' or 'joined', known)
    end
    if ask.created_at - now > ahead or now - ask.created_at > behind or ask.expires_at <= now then
        return plain('clock', text(now))
    end
    local over, seen_ids, passed, duplicate, key_of, word, answer = {}, {}, {}, '', nil, nil, nil
    local function note(row)
        if overdue(row) and not seen_ids[row.id] then
            seen_ids[row.id] = true
            over[#over + 1] = row
        end
    end
    local key_id = ask.ckey ~= '' and redis.call('GET', PREFIX .. 'k:' .. ask.ckey)
    if key_id then
        local row = load(key_id)
        if not row or row.ckey ~= ask.ckey then
            corrupt('draft ' .. key_id .. ': it stands under a key that is not its own')
        end
        note(row)
        if row.args_hash ~= ask.args_hash then
            word, answer = 'key_reused', row
        else
            local said = says(row, true)
            if said == 'join' then
                word, answer = 'joined', row
            elseif said == 'refuse' then
                word, answer = 'rejected_before', row
            else
                passed[#passed + 1] = row.id
                key_of = row
            end
        end
    end
    if not word then
        for _, row in ipairs(under(ask.join)) do
            note(row)
            local said = says(row, false)
            if said == 'refuse' then
                word, answer = 'rejected_before', row
                break
            elseif ask.ckey == '' then
                if said == 'join' then
                    word, answer = 'joined', row
                    break
                elseif said == 'flagged' then
                    duplicate = duplicate == '' and row.id or duplicate
                else
                    passed[#passed + 1] = row.id
                end
            end
        end
    end
    if not word then
        local wild_made, wild_pending = count_wild(ask.owner)
        local pending = redis.call('ZCOUNT', PREFIX .. 'p:' .. ask.owner, '(' .. text(now), '+inf') - wild_pending
        local holds = redis.call('ZCOUNT', PREFIX .. 'o:' .. ask.owner, '(' .. text(now - window), '+inf') - wild_made
        if pending >= pending_max then
            word = 'too_many_pending'
        elseif holds >= holds_max then
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
        local old = load(key_of.id)
        set(old, 'ckey', nil)
        store(old)
    end
    return made(ask, duplicate, table.concat(passed, '\n'))
end
