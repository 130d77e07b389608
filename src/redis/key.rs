//! Keys that hold a card table.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::call::{Call, Text};
use super::failure::Failure;
use super::{OK, api, raw};
use crate::cardtable::CardTable;

/// The type `cardtable`, once it is registered.
pub static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// A key, open while this lives.
pub struct Key<'a> {
    key: *mut raw::RedisModuleKey,
    call: PhantomData<&'a ()>,
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        api!(RedisModule_CloseKey(self.key));
    }
}

impl<'a> Key<'a> {
    /// Opens a key to read it.
    #[inline]
    pub fn read(call: &Call<'a>, name: Text) -> Key<'a> {
        Self::open(call, name, raw::REDISMODULE_READ)
    }

    /// Opens a key to change it.
    pub fn write(call: &Call<'a>, name: Text) -> Key<'a> {
        Self::open(call, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    #[inline]
    fn open(call: &Call<'a>, name: Text, mode: u32) -> Key<'a> {
        Key { key: api!(RedisModule_OpenKey(call.ctx, name.string, mode as c_int)), call: PhantomData }
    }

    /// The value, if there is one and it is ours.
    #[inline]
    fn value(&self) -> Result<*mut CardTable, Failure> {
        // An absent key that was opened to be read is null, one that was opened to be written is empty.
        if self.key.is_null() {
            return Ok(ptr::null_mut());
        }
        if api!(RedisModule_ModuleTypeGetType(self.key)) == TYPE.load(Ordering::Relaxed) {
            return Ok(api!(RedisModule_ModuleTypeGetValue(self.key)).cast());
        }
        match api!(RedisModule_KeyType(self.key)) as isize {
            raw::REDISMODULE_KEYTYPE_EMPTY => Ok(ptr::null_mut()),
            _ => Err(Failure::WrongType),
        }
    }

    /// What the key holds; none if there is no such key.
    #[inline]
    pub fn get(&self) -> Result<Option<&CardTable>, Failure> {
        // SAFETY: a value of our type is a CardTable that we gave to Redis. It stays while the key is open, and nothing
        // changes it while `self` is borrowed.
        Ok(unsafe { self.value()?.as_ref() })
    }

    /// The same, to be changed. The key was opened for that.
    pub fn get_mut(&mut self) -> Result<Option<&mut CardTable>, Failure> {
        // SAFETY: as in `get`, and `self` is borrowed mutably.
        Ok(unsafe { self.value()?.as_mut() })
    }

    /// Puts a table into the key, which was opened to be written. What it held before is freed in the background, and
    /// its time to live ends with it.
    pub fn set(&mut self, table: CardTable) {
        self.unlink();
        let value = Box::into_raw(Box::new(table));
        let set = api!(RedisModule_ModuleTypeSetValue(self.key, TYPE.load(Ordering::Relaxed), value.cast()));
        assert_eq!(set, OK, "the key is open for writing");
    }

    /// Removes the key, and frees its value in the background.
    pub fn unlink(&mut self) {
        api!(RedisModule_UnlinkKey(self.key));
    }
}
