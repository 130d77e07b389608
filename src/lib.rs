//! redis-card: a Redis module that answers whether a card is on a list, and with which type and status.
//!
//! The module is thin: what a table is and how it is stored belongs to the crate `card-table`; here is only
//! what Redis has to know. So far the module loads and registers no command.

use redis_module::redis_module;

// The server's allocator counts the module's memory into `used_memory`, but aborts outside a server,
// where unit tests run.
#[cfg(not(test))]
use redis_module::alloc::RedisAlloc as Allocator;
#[cfg(test)]
use std::alloc::System as Allocator;

redis_module! {
    name: "card",
    version: VERSION,
    allocator: (Allocator, Allocator),
    data_types: [],
}

/// The package's version as the one number that `MODULE LIST` shows: 1.2.3 is 10203.
const VERSION: i32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> i32 {
    match i32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("a version's parts are numbers"),
    }
}
