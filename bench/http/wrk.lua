-- Asks wrk's server for the paths in a file, one after the other, and tells in the end what came of it.
-- luacheck: globals wrk init request done

local paths = {}
local at = 0

function init(args)
    for path in io.lines(args[1]) do
        paths[#paths + 1] = wrk.format("GET", path)
    end
    -- Threads begin at different places.
    at = math.random(#paths)
end

function request()
    at = at % #paths + 1
    return paths[at]
end

function done(summary, latency)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format("RESULT %f %f %f %f %d\n", summary.requests / summary.duration * 1e6,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3, failed))
end
