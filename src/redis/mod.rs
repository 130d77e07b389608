//! Redis's module API, as far as this module uses it, made safe. All `unsafe` is in this folder, in [`crate::background`] and in
//! [`crate::cardtable::callbacks`].
//!
//! | | |
//! |---|---|
//! | [`command`] | what a command is, and how one is registered with its documentation |
//! | [`allocator`] | memory given back to the system |
//! | [`call`] | a command being run: its arguments, its reply, what it tells replicas and listeners |
//! | [`key`] | keys that hold a card table |
//! | [`config`] | `CONFIG SET card.…` |
//! | [`events`] | when the server has started, or been promoted |
//! | [`file`] | RDB and AOF, from inside a type's callbacks |
//! | [`info`] | sections of `INFO` |
//! | [`thread`] | Redis from threads of our own, and clients that wait for them |
//!
//! Entries from C are guarded: a panic is a bug, and becomes a line in the log and whatever the caller takes for failure.

pub mod allocator;
pub mod call;
pub mod command;
pub mod config;
pub mod events;
pub mod failure;
pub mod file;
pub mod info;
pub mod key;
pub mod thread;

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

pub use redis_module::raw;

/// Calls a function of the module API, which every supported server has.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: Redis has set the pointer before it calls anything of ours; the arguments are what the function asks
        // for, by the types of this folder, which hold pointers only for as long as Redis keeps them valid.
        unsafe {
            ($crate::redis::raw::$function.expect(concat!("the server has ", stringify!($function))))($($argument),*)
        }
    };
}
pub(crate) use api;

/// Whether the server has a function of the module API.
macro_rules! has {
    ($function:ident) => {{
        // SAFETY: Redis has set the pointer before it calls anything of ours, and never changes it.
        let function = unsafe { $crate::redis::raw::$function };
        function.is_some()
    }};
}
pub(crate) use has;

/// What Redis calls success and failure.
pub const OK: i32 = raw::REDISMODULE_OK as i32;
pub const ERR: i32 = raw::REDISMODULE_ERR as i32;

/// Writes a warning to the server's log.
pub fn warn(line: &str) {
    log(c"warning", line);
}

/// Writes to the server's log what an operator will want to know.
pub fn note(line: &str) {
    log(c"notice", line);
}

fn log(level: &CStr, line: &str) {
    let line = c_string(&format!("card: {line}"));
    api!(RedisModule_Log(ptr::null_mut(), level.as_ptr(), c"%s".as_ptr(), line.as_ptr()));
}

/// For texts that C takes for ended at a NUL, which has no business in them.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).expect("there is no NUL left")
}

/// Whether this is a process that Redis has forked.
pub fn is_child() -> bool {
    let flags = api!(RedisModule_GetContextFlags(ptr::null_mut())).cast_unsigned();
    flags & raw::REDISMODULE_CTX_FLAGS_IS_CHILD != 0
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    api!(RedisModule_Milliseconds()).unsigned_abs()
}

/// Runs what Redis has called. None if it panicked.
pub fn guarded<T>(entry: &str, run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Some(value),
        Err(panic) => {
            let reason = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            warn(&format!("a bug in redis-card, please report it: {entry}: {reason}"));
            None
        }
    }
}
