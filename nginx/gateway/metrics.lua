-- What the gateway counts, for Prometheus. The workers share the numbers.

local ngx = ngx
local counts = ngx.shared.gateway_metrics
local now, start_time = ngx.now, ngx.req.start_time
local var = ngx.var

-- nginx's clock has milliseconds: finer buckets would tell nothing.
local BUCKETS = { 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1 }

local EVENTS = {
    { "connections", "Connections to Redis that were opened; all other requests found one in the pool." },
    { "retries", "Requests sent again over a fresh connection, because the one from the pool was broken." },
    { "failures", "Requests that Redis did not answer." },
}

local M = {}

-- Counts something that seldom happens.
function M.add(event)
    counts:incr(event, 1, 0)
end

-- Counts a request, when it has been answered. One number tells outcome and time, so that it costs two steps.
function M.count()
    local endpoint = var.endpoint
    if endpoint == "" then
        endpoint = "other"
    end
    local seconds = now() - start_time()
    local bucket = 1
    while bucket <= #BUCKETS and seconds > BUCKETS[bucket] do
        bucket = bucket + 1
    end
    counts:incr(endpoint .. " " .. ngx.status .. " " .. bucket, 1, 0)
    counts:incr(endpoint, seconds, 0)
end

local function put(lines, format, ...)
    lines[#lines + 1] = format:format(...)
end

-- One family of numbers begins.
function M.describe(lines, name, kind, help)
    put(lines, "# HELP %s %s", name, help)
    put(lines, "# TYPE %s %s", name, kind)
end

-- By endpoint: how many requests with each status, and how many in each bucket.
local function collected()
    local endpoints = {}
    for _, key in ipairs(counts:get_keys(0)) do
        local endpoint, status, bucket = key:match("^(%a+) (%d+) (%d+)$")
        if endpoint then
            local of = endpoints[endpoint] or { statuses = {}, buckets = {}, total = 0 }
            local count = counts:get(key)
            endpoints[endpoint] = of
            of.statuses[status] = (of.statuses[status] or 0) + count
            of.buckets[tonumber(bucket)] = (of.buckets[tonumber(bucket)] or 0) + count
            of.total = of.total + count
        end
    end
    return endpoints
end

local function sorted_keys(of)
    local keys = {}
    for key in pairs(of) do
        keys[#keys + 1] = key
    end
    table.sort(keys)
    return keys
end

-- Writes what the gateway has counted, in Prometheus's text format.
function M.write(lines)
    local endpoints = collected()
    local names = sorted_keys(endpoints)
    local requests = "redis_card_http_requests_total"
    M.describe(lines, requests, "counter", "Requests, by endpoint and status.")
    for _, endpoint in ipairs(names) do
        local statuses = endpoints[endpoint].statuses
        for _, status in ipairs(sorted_keys(statuses)) do
            put(lines, '%s{endpoint="%s",code="%s"} %d', requests, endpoint, status, statuses[status])
        end
    end

    local duration = "redis_card_http_request_duration_seconds"
    M.describe(lines, duration, "histogram", "How long requests took, from their first byte.")
    for _, endpoint in ipairs(names) do
        local of = endpoints[endpoint]
        local so_far = 0
        for at, bound in ipairs(BUCKETS) do
            so_far = so_far + (of.buckets[at] or 0)
            put(lines, '%s_bucket{endpoint="%s",le="%s"} %d', duration, endpoint, bound, so_far)
        end
        put(lines, '%s_bucket{endpoint="%s",le="+Inf"} %d', duration, endpoint, of.total)
        put(lines, '%s_sum{endpoint="%s"} %.3f', duration, endpoint, counts:get(endpoint) or 0)
        put(lines, '%s_count{endpoint="%s"} %d', duration, endpoint, of.total)
    end

    for _, event in ipairs(EVENTS) do
        local name = "redis_card_http_redis_" .. event[1] .. "_total"
        M.describe(lines, name, "counter", event[2])
        put(lines, "%s %d", name, counts:get(event[1]) or 0)
    end
end

return M
