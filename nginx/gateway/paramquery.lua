-- GET /paramquery: the query of gates and terminals. CARD.QUERY reads the query string and writes the answer;
-- here is decided which list it asks, and which status the answer has.

local lists = require("gateway.settings").lists
local redis = require "gateway.redis"
local reply = require "gateway.reply"
local trouble = require "gateway.trouble"

local ask = redis.ask
local byte, find, sub = string.byte, string.find, string.sub
local send = reply.send
local unescape = ngx.unescape_uri
local var = ngx.var

-- Every answer begins with one of these. What a client has sent comes later, so that it cannot forge them.
local LISTED = '{"cmdtype":"blacklistqueryresult","darkstatus0":"'
local CODE = '{"cmdtype":"blacklistqueryresult","errorcode":"'
local STATUS = { [byte("0")] = 200, [byte("1")] = 400, [byte("2")] = 400, [byte("3")] = 503 }

-- A parameter, where its name is not encoded: that is, nearly always. One that is given twice is left to
-- CARD.QUERY to refuse.
local function plain(args, first, later)
    local from
    if find(args, first, 1, true) == 1 then
        from = #first + 1
    else
        local _, last = find(args, later, 1, true)
        if not last then
            return nil
        end
        from = last + 1
    end
    local next_one = find(args, "&", from, true)
    return sub(args, from, next_one and next_one - 1)
end

-- Without patterns, which would keep LuaJIT from compiling what every request runs through.
local function is_digits(text)
    for at = 1, #text do
        local digit = byte(text, at)
        if digit < 48 or digit > 57 then
            return false
        end
    end
    return true
end

-- A parameter, however it is spelt.
local function spelt(args, wanted)
    for pair in args:gmatch("[^&]+") do
        local name, value = pair:match("^([^=]*)=?(.*)$")
        if unescape(name) == wanted then
            return value
        end
    end
end

local function parameter(args, name, first, later)
    local value = plain(args, first, later) or spelt(args, name)
    if value and find(value, "%", 1, true) then
        return unescape(value)
    end
    return value
end

-- What is sent back as it came, if that takes no escaping.
local function echoed(args, name)
    local value = parameter(args, name, name .. "=", "&" .. name .. "=")
    return value and #value <= 64 and value:match("^[%w._-]*$") or ""
end

-- A failure as CARD.QUERY tells it.
local function failure(args, code, message)
    return CODE .. code .. '","errormsg":"' .. message .. '","serialno":"' .. echoed(args, "serialno")
        .. '","version":"' .. echoed(args, "version") .. '"}'
end

local function unavailable(args, reason)
    trouble.note(reason)
    reply.unavailable(failure(args, "3", "the list cannot be asked now"))
end

return function()
    -- As it was sent: nginx's own view of it ends at a #, and a card without its end is another card.
    local uri = var.request_uri
    local mark = find(uri, "?", 1, true)
    local args = mark and sub(uri, mark + 1) or ""
    if find(args, "#", 1, true) then
        return send(400, failure(args, "1", "the query has a #, which must be encoded"))
    end
    local tbtype = parameter(args, "tbtype", "tbtype=", "&tbtype=")
    if not tbtype or tbtype == "" then
        return send(400, failure(args, "1", "tbtype is missing"))
    end
    if #tbtype > 20 or not is_digits(tbtype) then
        return send(400, failure(args, "1", "tbtype must be 1 to 20 digits"))
    end
    -- Another cmdtype is CARD.QUERY's to refuse; the key without a list makes sure that it is no answer.
    local list = lists[parameter(args, "cmdtype", "cmdtype=", "&cmdtype=")] or "no list:"

    local answer, reason = ask("CARD.QUERY", list .. tbtype, args)
    if type(answer) ~= "string" then
        return unavailable(args, reason or "an unexpected reply")
    end
    if find(answer, LISTED, 1, true) == 1 then
        return send(200, answer)
    end
    local status = find(answer, CODE, 1, true) == 1 and STATUS[byte(answer, #CODE + 1)]
    if status == 503 then
        trouble.note("a list is missing or not loaded")
        return reply.unavailable(answer)
    elseif status then
        return send(status, answer)
    end
    return unavailable(args, "an unexpected reply")
end
