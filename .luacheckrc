-- What luacheck assumes of every Lua file here: it runs inside nginx.
std = "ngx_lua"
max_line_length = 110
