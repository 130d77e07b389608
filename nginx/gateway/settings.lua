-- What an operator may want to change; where nginx listens, the rate limit and the log are in site.conf.

return {
    redis = {
        -- Where Redis listens: unix:/path or host:port. If the first cannot be reached the next is tried,
        -- because nginx's workers may not be allowed to use the socket. All must lead to the same Redis.
        addresses = { "unix:" .. ngx.config.prefix() .. "redis.sock", "127.0.0.1:6380" },
        -- The ACL user; nil for no AUTH at all. A user with `nopass` takes any password.
        user = "gateway",
        password = "",
        -- How long to wait for a connection, and for an answer.
        timeout_ms = 500,
        -- How many connections each worker has, and how long it keeps idle ones. Beyond that, requests
        -- wait for each other: Redis answers one at a time anyway, and refuses a crowd of new connections.
        pool_size = 64,
        pool_idle_ms = 60000,
    },

    -- The lists that /paramquery asks: by cmdtype, what comes before tbtype in the key.
    lists = {
        blacklistquery = "blacklist:",
    },

    -- The tables that must be loaded before /readyz says that the gateway is ready.
    ready_tables = { "blacklist:0" },
}
