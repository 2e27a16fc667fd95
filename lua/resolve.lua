-- step: resolve
-- uses: ending
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id step verdict evidence failure receipt outcome has_response response by_name
-- replies: not_found superseded done
-- Settles an unverifiable draft by a named person.

local row = load(id)
if not row then
    return plain('not_found')
end
local again = same_again(row, 'resolve', step)
if again then
    return again
end
expire(row)
if not moved(row, 'resolve:' .. verdict) then
    return reply('superseded', row)
end
local ask = { step = step, evidence = evidence, failure = failure, receipt = receipt, outcome = outcome,
    has_response = has_response, response = response, by = by_name }
return ended(row, ask, 'resolve', 'draft.resolved')
