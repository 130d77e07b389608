-- What an operator may want to change; where nginx listens, the rate limit and the log are in site.conf.

return {
    redis = {
        -- Where Redis listens: unix:/path or host:port. If the first cannot be reached the next is tried,
        -- because nginx's workers may not be allowed to use the socket. All must lead to the same Redis.
        addresses = { "unix:" .. ngx.config.prefix() .. "redis.sock", "127.0.0.1:6380" },
        -- The ACL user; nil for no AUTH at all. A user with `nopass` takes any password.
        user = "gateway",
        password = "",
        -- How long to wait for it to connect, and for it to answer.
        timeout_ms = 500,
        -- How many idle connections each worker keeps, and for how long.
        pool_size = 256,
        pool_idle_ms = 60000,
    },

    -- The lists that /paramquery asks: by cmdtype, what comes before tbtype in the key.
    lists = {
        blacklistquery = "blacklist:",
    },

    -- The tables that must be loaded before /readyz says that the gateway is ready.
    ready_tables = { "blacklist:0" },
}
