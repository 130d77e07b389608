-- GET /healthz, /readyz and /metrics: how the gateway is, how the tables are, and what was counted.

local ready_tables = require("gateway.settings").ready_tables
local metrics = require "gateway.metrics"
local redis = require "gateway.redis"
local reply = require "gateway.reply"

-- What the module counts, as INFO names it; totals only grow.
local FIGURES = {
    { "tables", "gauge", "Tables of cards." },
    { "records", "gauge", "Cards in all tables." },
    { "bytes", "gauge", "Memory that the tables take." },
    { "hits", "counter", "Cards that were asked for and found." },
    { "misses", "counter", "Cards that were asked for and not found." },
    { "errors", "counter", "Commands and queries that failed." },
    { "loads", "counter", "Loads that succeeded." },
    { "failed_loads", "counter", "Loads that failed." },
    { "loads_under_way", "gauge", "Loads that run or wait." },
}

local M = {}

function M.healthz()
    reply.send(200, '{"status":"ok"}')
end

-- What CARD.INFO tells of a table, by name; nil and a sentence if it tells nothing.
local function info_of(table_name)
    local pairs_in_turn, reason, refused = redis.ask("CARD.INFO", table_name)
    if type(pairs_in_turn) == "table" then
        local info = {}
        for at = 1, #pairs_in_turn, 2 do
            info[pairs_in_turn[at]] = pairs_in_turn[at + 1]
        end
        return info
    elseif refused and reason:find("^ERR no such table") then
        return nil, "there is no such table"
    elseif refused then
        return nil, "Redis refuses to tell: " .. reply.escaped(reason:match("^%S*"))
    end
    return nil, "Redis does not answer"
end

local function number_or_null(value)
    return type(value) == "number" and ("%.0f"):format(value) or "null"
end

-- A table as JSON, and whether it is ready.
local function described(table_name)
    local info, problem = info_of(table_name)
    local name = '{"table":"' .. reply.escaped(table_name) .. '",'
    if not info then
        return name .. '"ready":false,"message":"' .. problem .. '"}', false
    end
    local ready = info.ready == 1
    local loaded_at = info.loaded_at
    local age = type(loaded_at) == "number" and math.max(0, ngx.time() - loaded_at)
    return name .. '"ready":' .. tostring(ready)
        .. ',"version":' .. number_or_null(info.version)
        .. ',"records":' .. number_or_null(info.records)
        .. ',"age_seconds":' .. number_or_null(age)
        .. ',"stale":' .. tostring(info.stale == 1)
        .. ',"loading":' .. tostring(type(info.loading) == "table") .. "}", ready
end

function M.readyz()
    local tables, all_ready = {}, true
    for at, table_name in ipairs(ready_tables) do
        local json, ready = described(table_name)
        tables[at] = json
        all_ready = all_ready and ready
    end
    local body = '{"ready":' .. tostring(all_ready) .. ',"tables":[' .. table.concat(tables, ",") .. "]}"
    if all_ready then
        return reply.send(200, body)
    end
    return reply.unavailable(body)
end

local function write_figures(lines, info)
    for _, figure in ipairs(FIGURES) do
        local name, kind, help = unpack(figure)
        local value = info:match("\ncard_" .. name .. ":(%d+)")
        if value then
            local full = "redis_card_" .. name .. (kind == "counter" and "_total" or "")
            metrics.describe(lines, full, kind, help)
            lines[#lines + 1] = full .. " " .. value
        end
    end
end

function M.metrics()
    local lines = {}
    metrics.write(lines)
    local info = redis.ask("INFO", "card")
    local is_up = type(info) == "string"
    metrics.describe(lines, "redis_up", "gauge", "Whether Redis answers.")
    lines[#lines + 1] = "redis_up " .. (is_up and 1 or 0)
    if is_up then
        write_figures(lines, info)
    end
    ngx.header["Content-Type"] = "text/plain; version=0.0.4"
    reply.send(200, table.concat(lines, "\n") .. "\n")
end

return M
