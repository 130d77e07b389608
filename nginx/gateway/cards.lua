-- GET /cards/<table>/<id> and GET /cards/<table>?id=a&id=b: cards as CARD.JSON tells them.

local redis = require "gateway.redis"
local reply = require "gateway.reply"
local trouble = require "gateway.trouble"

local MOST_IDS = 1000
local LONGEST_ID = 4096
local LONGEST_TABLE = 255

local function bad(sentence)
    return reply.fail(400, "bad_parameter", sentence)
end

local function unavailable(sentence)
    return reply.unavailable('{"error":"unavailable","message":"' .. sentence .. '"}')
end

-- Decodes %xx; nil if an encoding is bad. nginx's function would also make spaces of plus signs.
local function decoded(text)
    if text:gsub("%%%x%x", ""):find("%", 1, true) then
        return nil
    end
    return (text:gsub("%%(%x%x)", function(hex)
        return string.char(tonumber(hex, 16))
    end))
end

-- What is wrong with an id, if anything.
local function problem_of(id)
    if not id then
        return "id has a bad percent-encoding"
    elseif id == "" then
        return "id is empty"
    elseif #id > LONGEST_ID then
        return "id has more than 4096 bytes"
    end
end

-- The ids of a query string; nil and what is wrong with it.
local function ids_of(args)
    local ids = {}
    for pair in args:gmatch("[^&]+") do
        local name, value = pair:match("^([^=]*)=?(.*)$")
        if decoded(name) ~= "id" then
            return nil, "id is the only parameter there is"
        end
        local id = decoded((value:gsub("+", " ")))
        local problem = problem_of(id)
        if problem then
            return nil, problem
        elseif #ids == MOST_IDS then
            return nil, "there are more than 1000 ids"
        end
        ids[#ids + 1] = id
    end
    if #ids == 0 then
        return nil, "id is missing"
    end
    return ids
end

-- The cards as a JSON array; nil if an error was sent instead.
local function look_up(table_name, ids)
    local cards, reason, refused = redis.ask("CARD.JSON", table_name, unpack(ids))
    if type(cards) == "string" and cards:find("^%[.+%]$") then
        return cards
    elseif refused and reason:find("^ERR JSON has no way") then
        bad("id is not UTF-8")
        return nil
    end
    trouble.note(reason or "an unexpected reply")
    if refused and reason:find("^ERR no such table") or refused and reason:find("^WRONGTYPE") then
        unavailable("there is no such table")
    elseif refused and reason:find("^ERR the table is not ready") then
        unavailable("the table is not loaded yet")
    else
        unavailable("the table cannot be asked now")
    end
    return nil
end

local function one(table_name, id)
    local problem = problem_of(id)
    if problem then
        return bad(problem)
    end
    local cards = look_up(table_name, { id })
    if cards == "[null]" then
        return reply.fail(404, "card_not_found", "the table has no such card")
    elseif cards then
        return reply.send(200, cards:sub(2, -2))
    end
end

local function many(table_name, args)
    local ids, problem = ids_of(args)
    if not ids then
        return bad(problem)
    end
    local cards = look_up(table_name, ids)
    if cards then
        return reply.send(200, cards)
    end
end

return function()
    -- As it was sent: nginx's own view is without `//`, `..` and what follows a #, which belong to an id.
    local uri = ngx.var.request_uri
    if uri:find("#", 1, true) then
        return bad("the request has a #, which must be encoded")
    end
    local path, args = uri:match("^([^?]*)%??(.*)$")
    local table_name, slash, id = path:match("^/cards/([^/]*)(/?)([^/]*)$")
    table_name = table_name and decoded(table_name)
    if not table_name then
        return reply.fail(404, "path_not_found", "there is no such path")
    elseif table_name == "" then
        return bad("table is missing")
    elseif #table_name > LONGEST_TABLE then
        return bad("table has more than 255 bytes")
    elseif slash == "" then
        return many(table_name, args)
    elseif args ~= "" then
        return bad("a single card has no parameters")
    end
    return one(table_name, decoded(id))
end
