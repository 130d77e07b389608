//! What a command is, and how one is registered with everything that Redis tells about it.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use super::call::Call;
use super::failure::{self, Failure};
use super::{ERR, OK, api, c_string, guarded, has, raw, warn};
use crate::metrics;

/// A command, with its documentation beside its code.
pub trait Command {
    const DOCS: Docs;

    /// Replies, and tells others what has changed; or fails and has changed nothing.
    fn run(call: &Call) -> Result<(), Failure>;
}

pub struct Docs {
    pub name: &'static str,
    pub summary: &'static str,
    pub complexity: &'static str,
    /// Redis's flags, from which it also derives ACL categories.
    pub flags: &'static str,
    /// The fewest arguments, without the command's name.
    pub at_least: usize,
    /// Whether there may be more.
    pub variadic: bool,
    /// What becomes of each key, in order; keys come first of all arguments.
    pub keys: &'static [KeyUse],
    pub arguments: &'static [Argument],
}

#[derive(Clone, Copy)]
pub enum KeyUse {
    /// Something about it is told, but not what it holds.
    Look,
    Read,
    Update,
    Insert,
    Overwrite,
    /// A part of what it holds is removed.
    Remove,
    /// What it holds goes elsewhere.
    Move,
}

impl KeyUse {
    fn flags(self) -> u64 {
        u64::from(match self {
            KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            KeyUse::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
            KeyUse::Insert => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
            KeyUse::Overwrite => raw::REDISMODULE_CMD_KEY_OW | raw::REDISMODULE_CMD_KEY_UPDATE,
            KeyUse::Look => raw::REDISMODULE_CMD_KEY_RO,
            KeyUse::Remove => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
            KeyUse::Move => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
            }
        })
    }
}

/// An argument, as `COMMAND DOCS` shows it.
pub struct Argument {
    pub name: &'static str,
    pub kind: ArgumentKind,
    /// The word before it.
    pub token: Option<&'static str>,
    pub optional: bool,
    pub multiple: bool,
}

#[derive(Clone, Copy)]
pub enum ArgumentKind {
    /// The key at this place among the command's keys.
    Key(usize),
    Text,
    Integer,
    /// The token alone.
    Word,
    OneOf(&'static [Argument]),
    Block(&'static [Argument]),
}

impl Argument {
    pub const fn new(name: &'static str, kind: ArgumentKind) -> Argument {
        Argument { name, kind, token: None, optional: false, multiple: false }
    }

    pub const fn after(self, token: &'static str) -> Argument {
        Argument { token: Some(token), ..self }
    }

    pub const fn optional(self) -> Argument {
        Argument { optional: true, ..self }
    }

    pub const fn multiple(self) -> Argument {
        Argument { multiple: true, ..self }
    }
}

pub const KEY: Argument = Argument::new("key", ArgumentKind::Key(0));
pub const ID: Argument = Argument::new("id", ArgumentKind::Text);

/// Runs a command for Redis.
extern "C" fn enter<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: this is how Redis calls a command, and `call` does not outlive it.
    let call = unsafe { Call::new(ctx, argv, argc) };
    let (least, most) = (C::DOCS.at_least, if C::DOCS.variadic { usize::MAX } else { C::DOCS.at_least });
    let run = || if (least..=most).contains(&call.len()) { C::run(&call) } else { Err(Failure::Arity) };
    let result = guarded(C::DOCS.name, run).unwrap_or(Err(failure::INTERNAL));
    if let Err(failure) = result {
        metrics::ERRORS.add(1);
        call.reply_failure(&failure);
    }
    OK
}

/// Makes a command known to Redis.
pub fn register<C: Command>(ctx: *mut raw::RedisModuleCtx) -> Result<(), String> {
    let Docs { name, flags, keys, .. } = C::DOCS;
    let (c_name, c_flags) = (c_string(name), c_string(flags));
    let last = keys.len() as c_int;
    if api!(RedisModule_CreateCommand(ctx, c_name.as_ptr(), Some(enter::<C>), c_flags.as_ptr(), 1, last, 1)) != OK {
        return Err(format!("the server does not take the command {name}"));
    }
    let command = api!(RedisModule_GetCommand(ctx, c_name.as_ptr()));
    if has!(RedisModule_SetCommandInfo) && !set_info(command, &C::DOCS) {
        return Err(format!("the server does not take the documentation of {name}"));
    }
    if has!(RedisModule_SetCommandACLCategories) {
        let categories = CString::new(categories(flags)).expect("no NUL");
        if api!(RedisModule_SetCommandACLCategories(command, categories.as_ptr())) != OK {
            warn(&format!("the server does not take the ACL categories of {name}"));
        }
    }
    Ok(())
}

/// The categories that flags stand for. A server that can be told them does not always derive them itself.
fn categories(flags: &str) -> String {
    let category = |flag| match flag {
        "readonly" => Some("read"),
        "write" => Some("write"),
        "fast" => Some("fast"),
        "admin" => Some("admin dangerous"),
        _ => None,
    };
    let slow = if flags.contains("fast") { None } else { Some("slow") };
    flags.split(' ').filter_map(category).chain(slow).collect::<Vec<_>>().join(" ")
}

/// Texts and arrays that C reads while a command is described; Redis copies them.
#[derive(Default)]
struct Described {
    texts: Vec<CString>,
    arrays: Vec<Vec<raw::RedisModuleCommandArg>>,
}

impl Described {
    fn text(&mut self, text: &str) -> *const c_char {
        self.texts.push(c_string(text));
        self.texts[self.texts.len() - 1].as_ptr()
    }

    /// The arguments as C wants them: an array that ends with an empty one.
    fn arguments(&mut self, arguments: &[Argument]) -> *mut raw::RedisModuleCommandArg {
        use ArgumentKind::{Block, Integer, Key, OneOf, Text, Word};
        let mut array = Vec::new();
        for argument in arguments {
            let (type_, key, parts) = match argument.kind {
                Key(at) => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, at as c_int, &[][..]),
                Text => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, -1, &[][..]),
                Integer => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, -1, &[][..]),
                Word => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, -1, &[][..]),
                OneOf(parts) => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, -1, parts),
                Block(parts) => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, -1, parts),
            };
            let optional = if argument.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { 0 };
            let multiple = if argument.multiple { raw::REDISMODULE_CMD_ARG_MULTIPLE } else { 0 };
            array.push(raw::RedisModuleCommandArg {
                name: self.text(argument.name),
                type_,
                key_spec_index: key,
                token: argument.token.map_or(ptr::null(), |token| self.text(token)),
                flags: (optional | multiple) as c_int,
                subargs: if parts.is_empty() { ptr::null_mut() } else { self.arguments(parts) },
                ..NO_ARGUMENT
            });
        }
        array.push(NO_ARGUMENT);
        self.arrays.push(array);
        let last = self.arrays.len() - 1;
        self.arrays[last].as_mut_ptr()
    }
}

const NO_ARGUMENT: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: ptr::null(),
    type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
    key_spec_index: -1,
    token: ptr::null(),
    summary: ptr::null(),
    since: ptr::null(),
    flags: 0,
    deprecated_since: ptr::null(),
    subargs: ptr::null_mut(),
    display_text: ptr::null(),
};

fn set_info(command: *mut raw::RedisModuleCommand, docs: &Docs) -> bool {
    // The sizes tell an older server how to step over fields that it does not know.
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut described = Described::default();
    let mut keys: Vec<_> = docs.keys.iter().enumerate().map(|(at, key)| key_spec(at, *key)).chain([no_key()]).collect();
    let arity = 1 + docs.at_least as c_int;
    let info = raw::RedisModuleCommandInfo {
        version: &version,
        summary: described.text(docs.summary),
        complexity: described.text(docs.complexity),
        since: c"1.0.0".as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: if docs.variadic { -arity } else { arity },
        key_specs: keys.as_mut_ptr(),
        args: described.arguments(docs.arguments),
    };
    api!(RedisModule_SetCommandInfo(command, &info)) != ERR
}

fn key_spec(at: usize, key: KeyUse) -> raw::RedisModuleCommandKeySpec {
    let mut spec = no_key();
    spec.flags = key.flags();
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = 1 + at as c_int;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range.lastkey = 0;
    spec.fk.range.keystep = 1;
    spec.fk.range.limit = 0;
    spec
}

/// The specification that ends an array of them.
fn no_key() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: zeros are valid for its pointers, numbers and unions of both.
    unsafe { std::mem::zeroed() }
}
