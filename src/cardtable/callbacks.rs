//! The type `cardtable`: how Redis saves, copies, counts, moves and frees a [`CardTable`].
//!
//! Saving and rewriting run in a forked child, so they take no lock; freeing may run on a background thread.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use super::CardTable;
use super::rdb::ENCODING;
use crate::background;
use crate::redis::file::{Aof, Rdb};
use crate::redis::key::TYPE;
use crate::redis::{api, guarded, raw, warn};

/// Nine characters, by Redis's rule: the RDB file has them as one 64-bit number.
const NAME: &std::ffi::CStr = c"cardtable";

/// The version of the table of callbacks that ours belong to: the first to have all of them.
const METHODS_VERSION: u64 = 3;

pub fn register(ctx: *mut raw::RedisModuleCtx) -> Result<(), String> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: METHODS_VERSION,
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        free_effort: Some(free_effort),
        // Redis calls it for RENAME and MOVE as well, and there is nothing to do: what counts is `free`.
        unlink: None,
        copy: Some(copy),
        defrag: Some(defrag),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    };
    let registered = api!(RedisModule_CreateDataType(ctx, NAME.as_ptr(), ENCODING, &mut methods));
    TYPE.store(registered, Ordering::Relaxed);
    if registered.is_null() { Err("the server does not take the type cardtable".into()) } else { Ok(()) }
}

/// # Safety
/// It is a value of our type, and nothing changes it meanwhile.
unsafe fn value<'a>(value: *const c_void) -> &'a CardTable {
    // SAFETY: every value of our type is a CardTable.
    unsafe { &*value.cast() }
}

extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    let read = || {
        // SAFETY: Redis gave it to this callback.
        let rdb = unsafe { Rdb::new(io) };
        CardTable::read(&rdb, encoding)
    };
    match guarded("rdb_load", read) {
        Some(Ok(table)) => Box::into_raw(Box::new(table)).cast(),
        Some(Err(error)) => {
            warn(&format!("a card table cannot be read: {error}"));
            ptr::null_mut()
        }
        None => ptr::null_mut(),
    }
}

extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, table: *mut c_void) {
    guarded("rdb_save", || {
        // SAFETY: Redis gave both to this callback.
        unsafe { value(table).save(&Rdb::new(io)) }
    });
}

extern "C" fn aof_rewrite(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, table: *mut c_void) {
    guarded("aof_rewrite", || {
        // SAFETY: Redis gave all three to this callback.
        let (table, aof) = unsafe { (value(table), Aof::new(io, key)) };
        background::give_way_in_child();
        table.as_commands(aof.key(), |command, arguments| aof.put(command, arguments));
    });
}

extern "C" fn mem_usage(table: *const c_void) -> usize {
    // SAFETY: Redis gave it to this callback.
    guarded("mem_usage", || unsafe { value(table).bytes() }).unwrap_or(0)
}

extern "C" fn digest(digest: *mut raw::RedisModuleDigest, table: *mut c_void) {
    guarded("digest", || {
        // SAFETY: Redis gave it to this callback.
        let bytes = unsafe { value(table) }.digest().to_le_bytes();
        api!(RedisModule_DigestAddStringBuffer(digest, bytes.as_ptr().cast(), bytes.len()));
        api!(RedisModule_DigestEndSequence(digest));
    });
}

extern "C" fn free(table: *mut c_void) {
    // SAFETY: Redis has no more use for a value that `Box::into_raw` gave it.
    guarded("free", || drop(unsafe { Box::from_raw(table.cast::<CardTable>()) }));
}

/// So many allocations: Redis frees what takes more than a few in the background.
extern "C" fn free_effort(_key: *mut raw::RedisModuleString, table: *const c_void) -> usize {
    // SAFETY: Redis gave it to this callback.
    guarded("free_effort", || unsafe { value(table) }.arrived().blocks() + 1).unwrap_or(1)
}

extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    table: *const c_void,
) -> *mut c_void {
    // SAFETY: Redis gave it to this callback.
    let copied = guarded("copy", || Box::new(unsafe { value(table) }.clone()));
    copied.map_or(ptr::null_mut(), |table| Box::into_raw(table).cast())
}

/// Moves as many blocks as Redis has time for, and tells whether there are more.
extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    place: *mut *mut c_void,
) -> c_int {
    let relocate = |block: Box<[u8]>| {
        let len = block.len();
        let start = Box::into_raw(block).cast::<u8>();
        let moved = api!(RedisModule_DefragAlloc(ctx, start.cast())).cast::<u8>();
        let start = if moved.is_null() { start } else { moved };
        // SAFETY: our allocator is Redis's, so what it has moved is an allocation like the one before, of as many bytes.
        unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(start, len)) }
    };
    let step = || {
        // SAFETY: Redis gave a place that holds a value of our type, and nobody else is at it.
        let table = unsafe { &mut *(*place).cast::<CardTable>() };
        let mut from: c_ulong = 0;
        api!(RedisModule_DefragCursorGet(ctx, &mut from));
        let next = table.relocate_blocks(from as usize, relocate, || api!(RedisModule_DefragShouldStop(ctx)) != 0);
        api!(RedisModule_DefragCursorSet(ctx, next.unwrap_or(0) as c_ulong));
        c_int::from(next.is_some())
    };
    guarded("defrag", step).unwrap_or(0)
}
