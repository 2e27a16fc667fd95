-- step: collect
-- keys: meta ix ev draft
-- args: clock id
-- replies: done
-- Notes that the agent got the result; the first time counts.

local row = load(id)
if row then
    expire(row)
    if row.state ~= 'pending' and not works(row) and row.state ~= 'unverifiable' and not row.collected_at then
        set(row, 'collected_at', now)
        store(row, 'draft.collected')
    end
end
return plain('done')
