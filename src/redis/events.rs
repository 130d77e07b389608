//! What happens to the server as a whole.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::{OK, api, guarded, raw};

type Callback = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

static STARTED_ANEW: OnceLock<fn()> = OnceLock::new();

/// Has `told` be called when the server has read its data, and when it becomes a primary: in both cases before any client
/// can have written.
pub fn when_it_starts_anew(ctx: *mut raw::RedisModuleCtx, told: fn()) -> Result<(), String> {
    STARTED_ANEW.get_or_init(|| told);
    for (id, callback) in [
        (raw::REDISMODULE_EVENT_LOADING, loading as Callback),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, role_changed),
    ] {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        if api!(RedisModule_SubscribeToServerEvent(ctx, event, Some(callback))) != OK {
            return Err("the server does not tell when it is loading or promoted".into());
        }
    }
    Ok(())
}

extern "C" fn loading(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, what: u64, _: *mut c_void) {
    if what == raw::REDISMODULE_SUBEVENT_LOADING_ENDED {
        super::allocator::give_back();
        tell();
    }
}

extern "C" fn role_changed(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, what: u64, _: *mut c_void) {
    if what == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
        tell();
    }
}

fn tell() {
    guarded("an event of the server", || STARTED_ANEW.get().map(|told| told()));
}
