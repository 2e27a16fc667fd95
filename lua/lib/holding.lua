-- A call that comes again. Used by hold and again, behind `looks`.

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

-- A draft that a line of the owner's index names. The line is one of the owner's, or nothing is answered.
local function named(line, what)
    local row = load(id_of(line) or '')
    if not row or row.owner ~= owner then
        corrupt('the line "' .. line .. '" in ' .. OWN .. ' names no draft of this owner: ' .. what)
    end
    return row
end

-- The newest drafts under the call's join key, and the newest of those that may answer; newest first. Most calls meet
-- none, and few more than a handful: the one look has told.
local function under()
    local found = equal
    if #found > LOOK_BACK then
        found = downward(OWN, '[' .. stem .. 'a' .. LAST, '[' .. stem .. 'a', LOOK_BACK)
        for _, line in ipairs(downward(OWN, '[' .. stem .. 'x' .. LAST, '[' .. stem .. 'x', LOOK_BACK)) do
            found[#found + 1] = line
        end
    end
    local order = {}
    for at, line in ipairs(found) do
        local kind, n = string.match(line, '^([ax]) (%d+) dr_', #stem + 1)
        if not kind then
            corrupt('a line under a join key')
        end
        order[at] = { line = line, n = tonumber(n), answers = kind == 'a' }
    end
    table.sort(order, function(one, other) return one.n > other.n end)
    local rows = {}
    for at, one in ipairs(order) do
        if at <= LOOK_BACK or one.answers then
            local row = named(one.line, 'it stands under a join key')
            if join_stem(row.join) ~= stem then
                corrupt('draft ' .. row.id .. ': it stands under a join key that is not its own')
            end
            -- Another call's key may begin alike.
            if row.join == join then
                rows[#rows + 1] = row
            end
        end
    end
    return rows
end

-- How many drafts of the owner are pending and not past their time. What a wrong clock made does not count.
local function pending_now()
    local count = redis.call('ZLEXCOUNT', OWN, '(open ' .. place(now) .. ' ' .. LAST, '[open ' .. LAST)
    if count > 0 and high > now + TRUST_MS then
        local from = '(own ' .. place(now + TRUST_MS) .. ' ' .. LAST
        for _, line in ipairs(between(OWN, from, '[own ' .. LAST, count)) do
            local row = load(id_of(line) or '')
            count = count - (row and row.state == 'pending' and 1 or 0)
        end
    end
    return count
end

-- How many drafts of the owner were made after a time.
local function held_since(since)
    return redis.call('ZLEXCOUNT', OWN, '(own ' .. place(math.max(since, 0)) .. ' ' .. LAST,
        '[own ' .. place(now + TRUST_MS) .. ' ' .. LAST)
end

local function contains(list, value)
    return string.find('\n' .. list .. '\n', '\n' .. value .. '\n', 1, true) ~= nil
end

local function joined(row, session)
    if #lines(row.sessions) < SESSIONS_MAX and not contains(row.sessions or '', session) then
        set(row, 'sessions', row.sessions and row.sessions ~= '' and row.sessions .. '\n' .. session or session)
        store(row, 'draft.joined')
    end
    return reply('joined', row)
end

-- Keeps a draft whose time is over for when writing begins, once.
local function note(over, row)
    if overdue(row) and not over[row.id] then
        over[row.id] = true
        over[#over + 1] = row
    end
end

-- What earlier drafts say to the call: a word of `hold` and the draft it is about. If none of them answers: nothing,
-- nothing, the draft that it may repeat, those that were passed by, and the one whose key becomes free. What is past
-- its time goes into `over`.
local function earlier(over)
    local repeated, behind, key_of = '', {}, nil
    if keyed then
        local row = named(keyed, "it stands under a caller's key")
        if row.ckey ~= ckey then
            corrupt('a key opens a draft that does not have it')
        end
        note(over, row)
        if row.args_hash ~= args_hash then
            return 'key_reused', row
        end
        local said = says(row, true)
        if said == 'join' then
            return 'joined', row
        elseif said == 'refuse' then
            return 'rejected_before', row
        end
        behind[1] = row.id
        key_of = row
    end
    for _, row in ipairs(under()) do
        note(over, row)
        local said = says(row, false)
        if said == 'refuse' then
            return 'rejected_before', row
        elseif not ckey then
            if said == 'join' then
                return 'joined', row
            elseif said == 'flagged' then
                repeated = repeated == '' and row.id or repeated
            else
                behind[#behind + 1] = row.id
            end
        end
    end
    return nil, nil, repeated, behind, key_of
end

-- The answer of an earlier draft or of a bound; nothing if a new draft is to be made. And whether the call's own draft
-- answers.
local function met()
    if is_there then
        local known = load(id)
        if not known then
            corrupt('draft ' .. id .. ': its fixed part is gone')
        end
        local brought = parse(fixed, id)
        if known.token ~= brought.token or known.join ~= join or known.sealed_digest ~= brought.sealed_digest then
            return reply('other_draft')
        end
        return reply(known.epoch == 0 and 'new' or 'joined', known), known.epoch == 0
    end
    if not in_time then
        return plain('clock', text(now))
    end
    local over = {}
    local word, answer, repeated, behind, key_of = earlier(over)
    if not word and not is_few then
        local pending, holds, window = string.match(limits, '^%d+ (%d+) (%d+) (%d+)$')
        if pending_now() >= tonumber(pending) then
            word = 'too_many_pending'
        elseif held_since(now - tonumber(window)) >= tonumber(holds) then
            word = 'rate_limited'
        end
    end
    -- Reading is over, so writing may begin: first the ends of drafts whose time was over.
    for _, row in ipairs(over) do
        expire(row)
    end
    if word == 'joined' then
        return joined(answer, session)
    elseif word == 'key_reused' then
        return plain(word, answer.id)
    elseif word then
        return reply(word, answer)
    end
    if key_of then
        set(key_of, 'ckey', nil)
        store(key_of)
    end
    duplicate, passed = repeated, table.concat(behind, '\n')
    return nil
end
