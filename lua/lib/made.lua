-- Writes the new draft, for hold and again: nothing answers the call. It stands behind everything else, in the open: a
-- function would cost more than some of the writes. Nothing was written if the first write fails, of the event; of the
-- other keys the index is looked at here, the owner's and the draft's were, and a token's may be of any kind. The times
-- come in sixteen digits.

last_n, high = last_n + 1, math.max(high, begins)
redis.call('ZCARD', IX)
emit({ id = id, status = 'pending', epoch = 0, tenant = tenant, owner = owner, tool = tool, args_hash = args_hash },
    'draft.held', nil, nil, KEYS[6])
redis.call('ZADD', IX, '0', 'st pending ' .. id, '0', 'due ' .. expires_at .. ' ' .. id)
redis.call('ZADD', OWN, '0', 'own ' .. created_at .. ' ' .. id, '0', stem .. 'a ' .. place(last_n) .. ' ' .. id,
    '0', 'open ' .. expires_at .. ' ' .. id)
redis.call('HSET', KEYS[4], 'fixed', fixed, 'state', 'pending', 'epoch', '0', 'attempts', '0', 'sessions', session,
    'n', text(last_n), 'sealed', sealed)
if ckey then
    redis.call('ZADD', OWN, '0', key_stem(ckey) .. id)
    redis.call('HSET', KEYS[4], 'ckey', ckey)
end
if duplicate ~= '' then
    redis.call('HSET', KEYS[4], 'dup', duplicate)
end
if passed ~= '' then
    redis.call('HSET', KEYS[4], 'passed', passed)
end
if duplicate == '' and passed == '' then
    return plain('made')
end
return plain('made', duplicate, passed)
