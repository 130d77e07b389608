-- The least that a gateway can do, to compare ours with: one PING to Redis, and a constant. It takes the
-- place of gateway/paramquery.lua; all else of nginx stays as it is.

local redis = require "gateway.redis"
local reply = require "gateway.reply"

local ANSWER = '{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0",'
    .. '"serialno":"1005","version":"201708031"}'

return function()
    if redis.ask("PING") == "PONG" then
        return reply.send(200, ANSWER)
    end
    return reply.unavailable(ANSWER)
end
