-- Nearly every hold: there is no such call yet, and its owner has few drafts. Then the step goes on with `made`.

local is_fresh = not is_there and #equal == 0 and not keyed and is_few and in_time
