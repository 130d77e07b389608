//! RDB and AOF, from inside a type's callbacks.

use std::ffi::{CStr, c_char};
use std::ops::Deref;
use std::slice;

use super::call::{Strings, Text};
use super::{api, raw};

/// An RDB file, or the like, being read or written.
pub struct Rdb(*mut raw::RedisModuleIO);

/// There is no more to read, or it is not what it should be. Redis has logged why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file ends early or is damaged")]
pub struct Unreadable;

impl Rdb {
    /// # Safety
    /// Redis gave this to a callback that runs longer than this lives.
    pub unsafe fn new(io: *mut raw::RedisModuleIO) -> Rdb {
        Rdb(io)
    }

    pub fn put_number(&self, number: u64) {
        api!(RedisModule_SaveUnsigned(self.0, number));
    }

    pub fn put_bytes(&self, bytes: &[u8]) {
        api!(RedisModule_SaveStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }

    pub fn number(&self) -> Result<u64, Unreadable> {
        let number = api!(RedisModule_LoadUnsigned(self.0));
        self.unless_failed(number)
    }

    pub fn bytes(&self) -> Result<Bytes, Unreadable> {
        let mut len = 0;
        let start = api!(RedisModule_LoadStringBuffer(self.0, &mut len));
        if start.is_null() { Err(Unreadable) } else { self.unless_failed(Bytes { start, len }) }
    }

    fn unless_failed<T>(&self, value: T) -> Result<T, Unreadable> {
        if api!(RedisModule_IsIOError(self.0)) == 0 { Ok(value) } else { Err(Unreadable) }
    }
}

/// Bytes that Redis has allocated.
pub struct Bytes {
    start: *mut c_char,
    len: usize,
}

// SAFETY: they are nobody else's.
unsafe impl Send for Bytes {}
// SAFETY: and cannot be changed.
unsafe impl Sync for Bytes {}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: Redis gave so many bytes, and they are ours until they are freed.
        unsafe { slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        api!(RedisModule_Free(self.start.cast()));
    }
}

/// An AOF being rewritten.
pub struct Aof<'a> {
    io: *mut raw::RedisModuleIO,
    key: Text<'a>,
}

impl Aof<'_> {
    /// # Safety
    /// Redis gave these to a callback that runs longer than this lives.
    pub unsafe fn new(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString) -> Self {
        Aof { io, key: Text::new(key) }
    }

    /// The name of the key that is being rewritten.
    pub fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    /// Writes a command.
    pub fn put(&self, command: &CStr, arguments: &[&[u8]]) {
        let mut strings = Strings::new(std::ptr::null_mut(), arguments.iter().copied());
        api!(RedisModule_EmitAOF(self.io, command.as_ptr(), c"v".as_ptr(), strings.as_mut_ptr(), strings.len()));
    }
}
