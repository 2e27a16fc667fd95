-- What a call that is held may meet, for hold and again. Nearly every call meets nothing, so the looks come before
-- everything that only the others need. `made` ends what begins here.

local LOOK_BACK = 16
local OWN = KEYS[5]

ckey = ckey ~= '' and ckey or nil
local stem = join_stem(join)
local begins, ends = tonumber(created_at), tonumber(expires_at)

-- Whether the clock of who asks is near enough to the store's.
local in_time = begins - now <= HOLD_AHEAD_MS and now - begins <= HOLD_BEHIND_MS and ends > now

-- Whether the call's draft is there already, and the lines that its owner's index has under its join key, newest first,
-- and under its caller's key.
local is_there = redis.call('EXISTS', KEYS[4]) == 1
local own_count = redis.call('ZCARD', OWN)
local equal, keyed = {}, nil
if own_count > 0 then
    -- A line with another score can make the server find none of them.
    if redis.call('ZCOUNT', OWN, '0', '0') ~= own_count then
        damaged('somebody else has written into ' .. OWN .. ': look with `ZRANGEBYSCORE ' .. OWN .. ' -inf (0` and `ZRANGEBYSCORE '
            .. OWN .. ' (0 +inf`, give lines that name a draft their score back (`ZADD ' .. OWN .. ' 0 LINE`) and take the'
            .. ' others out (`ZREM ' .. OWN .. ' LINE`)')
    end
    equal = redis.call('ZREVRANGEBYLEX', OWN, '[' .. stem .. 'x' .. LAST, '[' .. stem .. 'a', 'LIMIT', 0, LOOK_BACK + 1)
    if ckey then
        local from = '[' .. key_stem(ckey)
        keyed = redis.call('ZRANGEBYLEX', OWN, from, from .. LAST, 'LIMIT', 0, 1)[1]
    end
end

-- Whether the owner has too few lines for any of its limits. `limits` is four numbers: how many lines are enough for the
-- lower one, drafts pending, drafts held, and within how many milliseconds.
local is_few = own_count < tonumber(string.match(limits, '^%d+'))

-- What the new draft notes: the one that it may repeat, and those that were passed by.
local duplicate, passed = '', ''
