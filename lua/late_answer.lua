-- step: late_answer
-- uses: ending
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id step verdict evidence failure event_reason receipt outcome has_response response
-- replies: not_found superseded done
-- Records an answer that came after its attempt was given up.

local row = load(id)
if not row then
    return plain('not_found')
end
local again = same_again(row, 'late_answer', step)
if again then
    return again
end
expire(row)
if row.attempts == 0 then
    -- No attempt was marked, so this is no answer to one.
    return reply('superseded', row)
end
if moved(row, 'late_answer:' .. verdict) then
    local ask = { step = step, evidence = evidence, failure = failure, receipt = receipt, outcome = outcome,
        has_response = has_response, response = response }
    return ended(row, ask, 'late_answer', 'draft.late_answer')
end
note_evidence(row, evidence)
remember(row, 'late_answer', step, 'noted')
store(row, 'draft.late_answer', '', event_reason)
return reply('superseded', row)
