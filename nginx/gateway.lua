-- The gateway: HTTP in front, Redis behind. site.conf names what is here; the endpoints are in gateway/.

local metrics = require "gateway.metrics"
local reply = require "gateway.reply"
local status = require "gateway.status"
local trouble = require "gateway.trouble"

local get_method = ngx.req.get_method
local pcall = pcall

-- An endpoint that can only be read. A mistake in it is told in the log and not to the client.
local function endpoint(answer)
    return function()
        local method = get_method()
        if method ~= "GET" and method ~= "HEAD" then
            ngx.header["Allow"] = "GET, HEAD"
            return reply.fail(405, "method_not_allowed", "only GET and HEAD are allowed")
        end
        local done, mistake = pcall(answer)
        if not done then
            trouble.mistake(mistake)
            return ngx.exit(500)
        end
    end
end

return {
    start = trouble.start,
    count = metrics.count,
    paramquery = endpoint(require "gateway.paramquery"),
    cards = endpoint(require "gateway.cards"),
    healthz = endpoint(status.healthz),
    readyz = endpoint(status.readyz),
    metrics = endpoint(status.metrics),
}
