-- What the end of an attempt writes. Used by settle, late_answer and resolve.

local EVIDENCE_MAX = 16

-- Adds a piece of evidence; the first, the latest and the outcome's stay.
local function note_evidence(row, piece)
    local kept = lines(row.evidence)
    while #kept >= EVIDENCE_MAX do
        table.remove(kept, row.out_ev and kept[2] == row.out_ev and 3 or 2)
    end
    kept[#kept + 1] = piece
    set(row, 'evidence', table.concat(kept, '\n'))
end

-- Writes an end; the state is moved already.
local function ended(row, ask, name, kind)
    set(row, 'failure', ask.failure ~= '' and ask.failure or nil)
    set(row, 'receipt', ask.receipt ~= '' and ask.receipt or nil)
    note_evidence(row, ask.evidence)
    set(row, 'outcome', ask.outcome)
    set(row, 'out_ev', ask.evidence)
    set(row, 'ended_at', now)
    set(row, 'lease_until', nil)
    set(row, 'lease_node', nil)
    if ask.has_response == '1' then
        set(row, 'kept', '1')
        row.changes.response = ask.response
    else
        set(row, 'kept', nil)
        row.changes.response = false
    end
    remember(row, name, ask.step, 'done')
    store(row, kind, ask.by, ask.failure)
    return reply('done', row)
end

-- The answer to a step id that the draft remembers, or nil.
local function same_again(row, name, step)
    local memory = recall(row, name, step)
    if not memory then
        return nil
    end
    return reply(memory == 'done' and 'done' or 'superseded', row)
end
