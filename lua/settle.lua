-- step: settle
-- uses: ending
-- flags: allow-oom
-- keys: meta ix ev draft
-- args: clock id step epoch verdict evidence failure receipt outcome has_response response
-- replies: not_found superseded done
-- Ends a running or verifying draft under its epoch.

local row = load(id)
if not row then
    return plain('not_found')
end
local again = same_again(row, 'settle', step)
if again then
    return again
end
expire(row)
if text(row.epoch) ~= epoch or not moved(row, 'settle:' .. verdict) then
    return reply('superseded', row)
end
local ask = { step = step, evidence = evidence, failure = failure, receipt = receipt, outcome = outcome,
    has_response = has_response, response = response }
return ended(row, ask, 'settle', 'draft.' .. verdict)
