//! redis-card: a Redis module that answers whether a card is on a list, and with which type and status.
//!
//! The module is thin: what a table is and how it is stored belongs to the crate `card-table`; here is only what Redis has
//! to know.
//!
//! | | |
//! |---|---|
//! | [`redis`] | Redis's module API, made safe |
//! | [`cardtable`] | the type `cardtable`: a key's value, and how Redis saves, copies and frees it |
//! | [`commands`] | `CARD.*`, each with its documentation |
//! | [`loading`] | from a file to a table, in the background |
//! | [`paramquery`] | the query of gates and terminals, and its JSON answer |
//! | [`background`] | work that gives way to those who wait |
//! | [`config`] | settings `card.…` |
//! | [`metrics`] | what `INFO` shows |

mod background;
mod cardtable;
mod commands;
mod config;
mod loading;
mod metrics;
mod paramquery;
mod redis;

use std::ffi::c_int;

use redis::{ERR, OK, api, guarded, raw, warn};

// The server's allocator counts the module's memory into `used_memory`, but aborts outside a server, where unit tests run.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

/// Redis calls this when it loads the module.
///
/// # Safety
/// Only Redis can call this.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: this is what a module does first with the context it is given. Nothing is allocated before.
    let initialised =
        unsafe { raw::Export_RedisModule_Init(ctx, c"card".as_ptr(), VERSION, raw::REDISMODULE_APIVER_1 as c_int) };
    if initialised != OK {
        return ERR;
    }
    match guarded("loading the module", || load(ctx, argc)) {
        Some(Ok(())) => OK,
        Some(Err(reason)) => {
            warn(&reason);
            ERR
        }
        None => ERR,
    }
}

fn load(ctx: *mut raw::RedisModuleCtx, arguments: c_int) -> Result<(), String> {
    if arguments > 0 {
        return Err("the module takes no arguments; its settings are lines of redis.conf, such as card.darkver".into());
    }
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        // Commands that change nothing must not disturb those who watch a key.
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    api!(RedisModule_SetModuleOptions(ctx, options as c_int));
    cardtable::callbacks::register(ctx)?;
    commands::register_all(ctx)?;
    redis::info::register(ctx);
    loading::queue::prepare(ctx);
    redis::config::register(ctx, &config::SETTINGS, &config::NUMBERS)?;
    loading::leftovers::prepare(ctx)?;
    loading::directory::prepare(ctx)
}

/// The package's version as the one number that `MODULE LIST` shows: 1.2.3 is 10203.
const VERSION: c_int = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("a version's parts are numbers"),
    }
}
