//! Sections of `INFO`.

use super::{OK, api, c_string, guarded, raw};

/// A section being written.
pub struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    /// A field; Redis puts `card_` before its name.
    pub fn number(&self, name: &str, number: u64) {
        api!(RedisModule_InfoAddFieldULongLong(self.0, c_string(name).as_ptr(), number));
    }

    /// A field that is text without a line's end.
    pub fn text(&self, name: &str, text: &str) {
        api!(RedisModule_InfoAddFieldCString(self.0, c_string(name).as_ptr(), c_string(text).as_ptr()));
    }
}

extern "C" fn show(ctx: *mut raw::RedisModuleInfoCtx, _for_crash_report: i32) {
    guarded("INFO", || {
        // A section without a name has the module's.
        if api!(RedisModule_InfoAddSection(ctx, c"".as_ptr())) == OK {
            crate::metrics::show(&Section(ctx));
        }
    });
}

pub fn register(ctx: *mut raw::RedisModuleCtx) {
    api!(RedisModule_RegisterInfoFunc(ctx, Some(show)));
}
