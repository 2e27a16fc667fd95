-- step: note_seen
-- keys: meta ix ev draft
-- args: clock id
-- replies: done
-- Notes that an approver opened the card of a pending draft; the first time counts.

local row = load(id)
if row then
    expire(row)
    if row.state == 'pending' and not row.seen_at then
        set(row, 'seen_at', now)
        store(row, 'draft.seen')
    end
end
return plain('done')
