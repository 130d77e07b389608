//! Redis from a thread of our own: under its lock, as if a command ran.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use super::call::{Call, Strings, Text};
use super::{OK, api, raw};

/// A context that may be used from a thread, while Redis is locked.
pub struct Context {
    ctx: *mut raw::RedisModuleCtx,
}

// SAFETY: Redis made it to be used from another thread, by one at a time.
unsafe impl Send for Context {}

impl Context {
    /// Is called when the module is loaded: it takes the module's own context to make others.
    pub fn detached(ctx: *mut raw::RedisModuleCtx) -> Context {
        Context { ctx: api!(RedisModule_GetDetachedThreadSafeContext(ctx)) }
    }

    /// Runs something in a database while Redis waits: it must be short.
    pub fn locked<T>(&mut self, database: i32, run: impl FnOnce(&Locked) -> T) -> T {
        api!(RedisModule_ThreadSafeContextLock(self.ctx));
        let locked = Locked { ctx: self.ctx };
        // Unlocks also if `run` panics, or Redis would wait forever.
        struct Unlock(*mut raw::RedisModuleCtx);
        impl Drop for Unlock {
            fn drop(&mut self) {
                api!(RedisModule_ThreadSafeContextUnlock(self.0));
            }
        }
        let _unlock = Unlock(self.ctx);
        locked.select(database);
        run(&locked)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        api!(RedisModule_FreeThreadSafeContext(self.ctx));
    }
}

/// How far a scan of the keys has come.
pub struct Scan {
    cursor: *mut raw::RedisModuleScanCursor,
}

impl Scan {
    pub fn new() -> Scan {
        Scan { cursor: api!(RedisModule_ScanCursorCreate()) }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        api!(RedisModule_ScanCursorDestroy(self.cursor));
    }
}

/// Redis, while it waits for us.
pub struct Locked {
    ctx: *mut raw::RedisModuleCtx,
}

impl Locked {
    /// From now on uses another database; tells whether there is one of this number.
    pub fn select(&self, database: i32) -> bool {
        api!(RedisModule_SelectDb(self.ctx, database)) == OK
    }

    /// Goes on with a scan of the keys, and hands over the names of some; tells whether there are more.
    pub fn scan(&self, scan: &mut Scan, mut found: impl FnMut(&[u8])) -> bool {
        extern "C" fn on_key(
            _: *mut raw::RedisModuleCtx,
            name: *mut raw::RedisModuleString,
            _: *mut raw::RedisModuleKey,
            found: *mut c_void,
        ) {
            // SAFETY: it is what `scan` has given to Redis, and lives until that returns.
            let found = unsafe { &mut *found.cast::<&mut dyn FnMut(&[u8])>() };
            super::guarded("a scan of the keys", || found(Text::new(name).bytes()));
        }
        let mut found: &mut dyn FnMut(&[u8]) = &mut found;
        api!(RedisModule_Scan(self.ctx, scan.cursor, Some(on_key), (&raw mut found).cast())) != 0
    }

    /// Runs something as a command with these arguments would.
    pub fn call<T>(&self, arguments: &[&[u8]], run: impl FnOnce(&Call) -> T) -> T {
        let name = b"card".as_slice();
        let mut strings = Strings::new(self.ctx, [name].into_iter().chain(arguments.iter().copied()));
        // SAFETY: the strings live longer than the call, which does not leave `run`.
        let call = unsafe { Call::new(self.ctx, strings.as_mut_ptr(), strings.len() as c_int) };
        run(&call)
    }

    fn flags(&self) -> u32 {
        api!(RedisModule_GetContextFlags(self.ctx)).cast_unsigned()
    }

    pub fn is_primary(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_MASTER != 0
    }

    pub fn is_cluster(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
    }

    pub fn is_loading(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LOADING != 0
    }

    /// Whether nothing may be replicated now: clients are paused, or a failover or a shutdown is under way. To replicate
    /// all the same would end the server.
    pub fn avoids_replica_traffic(&self) -> bool {
        api!(RedisModule_AvoidReplicaTraffic()) != 0
    }

    /// The bytes that wait to be sent, for the replica that has most of them.
    pub fn most_bytes_behind(&self) -> u64 {
        let list = self.text_of(c"CLIENT", &[c"LIST", c"TYPE", c"replica"]);
        let waiting = |line: &str| -> Option<u64> { line.split(" omem=").nth(1)?.split(' ').next()?.parse().ok() };
        list.lines().filter_map(waiting).max().unwrap_or(0)
    }

    /// A number of `INFO`.
    pub fn info_number(&self, section: &CStr, field: &CStr) -> Option<u64> {
        let info = api!(RedisModule_GetServerInfo(self.ctx, section.as_ptr()));
        let mut error = OK;
        let number = api!(RedisModule_ServerInfoGetFieldUnsigned(info, field.as_ptr(), &mut error));
        api!(RedisModule_FreeServerInfo(self.ctx, info));
        (error == OK).then_some(number)
    }

    fn text_of(&self, command: &CStr, arguments: &[&CStr]) -> String {
        let mut strings = Strings::new(self.ctx, arguments.iter().map(|text| text.to_bytes()));
        let format = c"v".as_ptr();
        let reply = api!(RedisModule_Call(self.ctx, command.as_ptr(), format, strings.as_mut_ptr(), strings.len()));
        if reply.is_null() {
            return String::new();
        }
        let mut len = 0;
        let start = api!(RedisModule_CallReplyStringPtr(reply, &mut len));
        let text = if start.is_null() {
            String::new()
        } else {
            // SAFETY: the reply has so many bytes, until it is freed.
            let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) };
            String::from_utf8_lossy(bytes).into_owned()
        };
        api!(RedisModule_FreeCallReply(reply));
        text
    }
}

/// A client that waits for an answer which will come from a thread.
pub struct Waiting {
    client: *mut raw::RedisModuleBlockedClient,
}

// SAFETY: Redis made it to be answered from another thread.
unsafe impl Send for Waiting {}

/// What a waiting client is told.
pub type Answer = Box<dyn FnOnce(&Call) + Send>;

impl Waiting {
    /// Has the client of a command wait. The command replies nothing.
    pub fn new(call: &Call) -> Waiting {
        let client = api!(RedisModule_BlockClient(call.ctx, Some(reply), None, Some(forget), 0));
        Waiting { client }
    }

    /// Has Redis run `answer` for the client, if it is still there.
    pub fn answer(self, answer: Answer) {
        let answer = Box::into_raw(Box::new(Some(answer)));
        api!(RedisModule_UnblockClient(self.client, answer.cast()));
        std::mem::forget(self);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Nobody has answered: that is a bug, but the client must not wait forever.
        api!(RedisModule_UnblockClient(self.client, ptr::null_mut()));
    }
}

extern "C" fn reply(ctx: *mut raw::RedisModuleCtx, argv: *mut *mut raw::RedisModuleString, argc: c_int) -> c_int {
    // SAFETY: this is how Redis calls a command whose client has waited.
    let call = unsafe { Call::new(ctx, argv, argc) };
    let answer = api!(RedisModule_GetBlockedClientPrivateData(ctx)).cast::<Option<Answer>>();
    // SAFETY: null, or what `answer` has put there; Redis calls `forget` for it afterwards.
    let answer = unsafe { answer.as_mut() }.and_then(Option::take);
    let answered = super::guarded("the answer of a load", || answer.map(|answer| answer(&call)));
    if answered.flatten().is_none() {
        call.reply_failure(&super::failure::INTERNAL);
    }
    OK
}

extern "C" fn forget(_ctx: *mut raw::RedisModuleCtx, answer: *mut std::ffi::c_void) {
    if !answer.is_null() {
        // SAFETY: `Waiting::answer` has made it, and this is the end of it.
        drop(unsafe { Box::from_raw(answer.cast::<Option<Answer>>()) });
    }
}
