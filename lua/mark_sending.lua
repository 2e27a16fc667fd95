-- step: mark_sending
-- keys: meta ix ev draft
-- args: clock id epoch step send_window_ms
-- replies: superseded lease_too_short marked
-- Writes the mark before the first byte (promise 4).

local row = load(id)
if not row then
    return plain('superseded')
end
local memory = recall(row, 'mark_sending', step)
if memory then
    touch()
    local attempt, sent_at = string.match(memory, '^marked (%d+) (%d+)$')
    return plain(attempt and 'marked' or 'superseded', attempt, sent_at)
end
expire(row)
if text(row.epoch) ~= epoch or row.state ~= 'running/claimed' then
    return plain('superseded')
end
if lease_over(row) or row.lease_until - now <= tonumber(send_window_ms) then
    return plain('lease_too_short')
end
if row.attempts >= 4294967295 then
    corrupt('draft ' .. id .. ': its attempt is the last that can be counted')
end
if not moved(row, 'mark_sending') then
    return plain('superseded')
end
set(row, 'attempts', row.attempts + 1)
set(row, 'sent_at', now)
remember(row, 'mark_sending', step, 'marked ' .. text(row.attempts) .. ' ' .. text(now))
store(row, 'draft.sending')
return plain('marked', text(row.attempts), text(now))
