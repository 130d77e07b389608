-- What is sent back: JSON, with a length, so that it is never in chunks and HEAD tells it too.

local ngx = ngx
local header = ngx.header
local print = ngx.print

local M = {}

function M.send(status, body)
    ngx.status = status
    header["Content-Length"] = #body
    print(body)
end

-- An error is a word for programs and a sentence for people.
function M.fail(status, word, sentence)
    M.send(status, '{"error":"' .. word .. '","message":"' .. sentence .. '"}')
end

function M.unavailable(body)
    header["Retry-After"] = 1
    M.send(503, body)
end

-- A text from settings or from Redis inside a string of JSON.
function M.escaped(text)
    return (text:gsub('[%c"\\]', function(character)
        return ("\\u%04x"):format(character:byte())
    end))
end

return M
