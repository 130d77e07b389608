-- One question to Redis, over a connection from the pool.

local settings = require("gateway.settings").redis
local metrics = require "gateway.metrics"

-- OpenResty's client, or Debian's package of it.
local found, redis = pcall(require, "resty.redis")
if not found then
    redis = require "nginx.redis"
end

-- More requests than a worker can have.
local MOST_WAITING = 100000

local M = {}

-- An address as the arguments of connect. The pool has a name of its own, so that nobody else's connections,
-- with another user's rights, come from it.
local function target(address)
    local name = "redis-card " .. address
    local options = { pool = name, pool_size = settings.pool_size, backlog = MOST_WAITING }
    -- From this pool nothing ever comes, because nothing is put into it.
    local fresh = { pool = name .. " fresh" }
    if address:find("^unix:") then
        return { pooled = { address, options }, fresh = { address, fresh } }
    end
    local host, port = address:match("^(.+):(%d+)$")
    assert(host, "gateway/settings.lua: an address is unix:/path or host:port, not " .. address)
    return { pooled = { host, tonumber(port), options }, fresh = { host, tonumber(port), fresh } }
end

local targets = {}
for at, address in ipairs(settings.addresses) do
    targets[at] = target(address)
end
-- The one that worked last.
local preferred = 1

local function connect(client, kind)
    local problem
    for turn = 0, #targets - 1 do
        local at = (preferred - 1 + turn) % #targets + 1
        local connected, err = client:connect(unpack(targets[at][kind]))
        if connected then
            preferred = at
            return true
        elseif err == "timeout" then
            -- Redis hangs, or too many wait: another way to it would be no quicker.
            return nil, err
        end
        problem = err
    end
    preferred = 1
    return nil, problem
end

-- A connection that has been authenticated, and how often it was used before.
local function open(kind)
    local client, err = redis:new()
    if not client then
        return nil, err
    end
    client:set_timeout(settings.timeout_ms)
    local connected, problem = connect(client, kind)
    if not connected then
        return nil, problem
    end
    local used = client:get_reused_times()
    if used == 0 then
        metrics.add("connections")
        if settings.user then
            local welcome, refusal = client:auth(settings.user, settings.password)
            if not welcome then
                client:close()
                return nil, refusal
            end
        end
    end
    return client, used
end

-- Sends a command. Returns its reply; or nil and why there is none, and true if it was Redis that refused.
function M.ask(command, ...)
    local client, used = open("pooled")
    if not client then
        return nil, used
    end
    local reply, err = client[command](client, ...)
    if reply == nil and used > 0 and err ~= "timeout" then
        -- Redis has closed it while it was in the pool, and so perhaps all that are there.
        metrics.add("retries")
        client:close()
        client, used = open("fresh")
        if not client then
            return nil, used
        end
        reply, err = client[command](client, ...)
        client:close()
    elseif reply == nil then
        client:close()
    else
        client:set_keepalive(settings.pool_idle_ms)
    end
    if reply then
        return reply
    end
    return nil, err, reply == false
end

return M
