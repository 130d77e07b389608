//! A command being run: its arguments, its reply, and what it tells others.

use std::ffi::{CStr, c_long};
use std::fmt::Display;
use std::marker::PhantomData;
use std::slice;

use super::failure::Failure;
use super::{api, c_string, has, raw};

pub struct Call<'a> {
    pub(super) ctx: *mut raw::RedisModuleCtx,
    arguments: &'a [Text<'a>],
}

/// A string of Redis's, such as an argument or the name of a key.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text<'a> {
    pub(super) string: *mut raw::RedisModuleString,
    call: PhantomData<&'a ()>,
}

impl<'a> Text<'a> {
    pub(super) fn new(string: *mut raw::RedisModuleString) -> Text<'a> {
        Text { string, call: PhantomData }
    }

    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        let start = api!(RedisModule_StringPtrLen(self.string, &mut len));
        // SAFETY: Redis keeps its strings unchanged and in place while a command runs, and that outlives 'a.
        unsafe { slice::from_raw_parts(start.cast(), len) }
    }

    /// Whether it is this word, in capitals or not.
    pub fn is(self, word: &str) -> bool {
        self.bytes().eq_ignore_ascii_case(word.as_bytes())
    }

    /// A decimal number without sign.
    pub fn number(self) -> Option<u64> {
        str::from_utf8(self.bytes()).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
    }
}

/// Strings of ours in Redis's form, for functions that take several.
pub(super) struct Strings {
    ctx: *mut raw::RedisModuleCtx,
    strings: Vec<*mut raw::RedisModuleString>,
}

impl Strings {
    pub fn new<'b>(ctx: *mut raw::RedisModuleCtx, words: impl IntoIterator<Item = &'b [u8]>) -> Strings {
        let string = |word: &[u8]| api!(RedisModule_CreateString(ctx, word.as_ptr().cast(), word.len()));
        Strings { ctx, strings: words.into_iter().map(string).collect() }
    }

    pub fn len(&self) -> usize {
        self.strings.len()
    }

    pub fn as_mut_ptr(&mut self) -> *mut *mut raw::RedisModuleString {
        self.strings.as_mut_ptr()
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        self.strings.drain(..).for_each(|string| api!(RedisModule_FreeString(self.ctx, string)));
    }
}

impl<'a> Call<'a> {
    /// # Safety
    /// These are what Redis gave to a command that is running, and that ends after 'a.
    pub(super) unsafe fn new(
        ctx: *mut raw::RedisModuleCtx,
        argv: *mut *mut raw::RedisModuleString,
        argc: i32,
    ) -> Call<'a> {
        // SAFETY: argv has argc strings, the command's name among them, and a text is nothing but a pointer to a string.
        let all = unsafe { slice::from_raw_parts(argv.cast::<Text>(), argc as usize) };
        Call { ctx, arguments: &all[1..] }
    }

    /// The arguments beyond the command's name.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// The argument at `at`; there are at least as many as the command's arity says.
    #[inline]
    pub fn argument(&self, at: usize) -> Text<'a> {
        self.arguments[at]
    }

    /// The arguments from `from` on.
    pub fn arguments(&self, from: usize) -> &'a [Text<'a>] {
        &self.arguments[from.min(self.len())..]
    }

    /// The database that the client has selected.
    pub fn database(&self) -> i32 {
        api!(RedisModule_GetSelectedDb(self.ctx))
    }

    /// Whether the client can be made to wait: not in a transaction or a script.
    pub fn may_wait(&self) -> bool {
        let never = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        api!(RedisModule_GetContextFlags(self.ctx)).cast_unsigned() & never == 0
    }

    /// Whether the server is a primary.
    pub fn is_primary(&self) -> bool {
        let flags = api!(RedisModule_GetContextFlags(self.ctx)).cast_unsigned();
        flags & raw::REDISMODULE_CTX_FLAGS_MASTER != 0
    }

    #[inline]
    pub fn reply_integer(&self, number: i64) {
        api!(RedisModule_ReplyWithLongLong(self.ctx, number));
    }

    /// A number as an integer, or as text where Redis's integers end.
    #[inline]
    pub fn reply_number(&self, number: u128) {
        match i64::try_from(number) {
            Ok(number) => self.reply_integer(number),
            Err(_) => self.reply_text(number),
        }
    }

    #[inline]
    pub fn reply_bytes(&self, bytes: &[u8]) {
        api!(RedisModule_ReplyWithStringBuffer(self.ctx, bytes.as_ptr().cast(), bytes.len()));
    }

    pub fn reply_text(&self, text: impl Display) {
        self.reply_bytes(text.to_string().as_bytes());
    }

    #[inline]
    pub fn reply_null(&self) {
        api!(RedisModule_ReplyWithNull(self.ctx));
    }

    pub fn reply_ok(&self) {
        api!(RedisModule_ReplyWithSimpleString(self.ctx, c"OK".as_ptr()));
    }

    /// An array of what follows, so many replies.
    #[inline]
    pub fn reply_array(&self, len: usize) {
        api!(RedisModule_ReplyWithArray(self.ctx, len as c_long));
    }

    /// A map of what follows, so many pairs; a flat array for those who speak RESP2.
    pub fn reply_map(&self, len: usize) {
        if has!(RedisModule_ReplyWithMap) {
            api!(RedisModule_ReplyWithMap(self.ctx, len as c_long));
        } else {
            api!(RedisModule_ReplyWithArray(self.ctx, 2 * len as c_long));
        }
    }

    pub fn reply_failure(&self, failure: &Failure) {
        if let Failure::Arity = failure {
            api!(RedisModule_WrongArity(self.ctx));
        } else {
            // A line, whatever was quoted in it.
            let line: String = failure.to_string().chars().flat_map(printable).collect();
            api!(RedisModule_ReplyWithError(self.ctx, c_string(&line).as_ptr()));
        }
    }

    /// Replicas, and the AOF, get the same command.
    pub fn replicate(&self) {
        api!(RedisModule_ReplicateVerbatim(self.ctx));
    }

    /// Replicas, and the AOF, get this command with these arguments.
    pub fn replicate_as(&self, command: &CStr, arguments: &[&[u8]]) {
        let mut strings = Strings::new(self.ctx, arguments.iter().copied());
        let format = c"v".as_ptr();
        api!(RedisModule_Replicate(self.ctx, command.as_ptr(), format, strings.as_mut_ptr(), strings.len()));
    }

    /// Clients that watch the key learn that it has changed, and those who listen to keyspace events what happened.
    pub fn changed(&self, key: Text, event: &CStr) {
        api!(RedisModule_SignalModifiedKey(self.ctx, key.string));
        api!(RedisModule_NotifyKeyspaceEvent(self.ctx, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.string));
    }
}

fn printable(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control().then(|| character.escape_default());
    let plain = (!character.is_control()).then_some(character);
    escaped.into_iter().flatten().chain(plain)
}
