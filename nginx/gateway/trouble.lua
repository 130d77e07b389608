-- What goes wrong, for nginx's log. Not from within a request: nginx adds the request to what it logs, and in
-- it is the card. So it is counted, and a timer tells, which keeps the log short while Redis is away.

local metrics = require "gateway.metrics"

local M = {}

local counts = {}

-- Notes why a request was not answered. What Redis says may quote the command, with the card: only the words
-- before that are kept.
function M.note(reason)
    metrics.add("failures")
    reason = tostring(reason):match("^[%a ]*")
    counts[reason] = (counts[reason] or 0) + 1
end

-- Notes a mistake in the gateway itself; Lua's messages have names and lines, and no values.
function M.mistake(message)
    message = tostring(message)
    counts[message] = (counts[message] or 0) + 1
end

local function tell()
    for reason, count in pairs(counts) do
        ngx.log(ngx.ERR, "the gateway failed ", count, " times: ", reason)
    end
    counts = {}
end

-- Called as a worker starts, where no request is near.
function M.start()
    assert(ngx.timer.every(1, tell))
end

return M
