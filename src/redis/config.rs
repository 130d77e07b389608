//! Settings that `redis.conf` and `CONFIG SET` know as `card.…`.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use super::call::Text;
use super::{ERR, OK, api, c_string, guarded, has, raw};

/// A setting, as text.
pub struct Setting {
    /// Without `card.`.
    pub name: &'static str,
    pub default: &'static str,
    /// Whether it can be changed while the server runs.
    pub fixed: bool,
    /// Takes a value, or tells why not.
    pub set: fn(&str) -> Result<(), String>,
    pub get: fn() -> String,
}

/// A setting that is a number.
pub struct Number {
    /// Without `card.`.
    pub name: &'static str,
    pub default: i64,
    pub least: i64,
    pub most: i64,
    /// Whether it is written as memory is: 256mb.
    pub is_memory: bool,
    pub value: AtomicI64,
}

impl Number {
    pub const fn new(name: &'static str, default: i64, least: i64, most: i64) -> Number {
        Number { name, default, least, most, is_memory: false, value: AtomicI64::new(default) }
    }

    pub const fn memory(self) -> Number {
        Number { is_memory: true, ..self }
    }

    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    number: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `register` gave Redis a number that lives as long as the program. Redis has checked the value.
    unsafe { &*number.cast::<Number>() }.value.store(value, Ordering::Relaxed);
    OK
}

extern "C" fn get_number(_name: *const c_char, number: *mut c_void) -> c_longlong {
    // SAFETY: as above.
    unsafe { &*number.cast::<Number>() }.get()
}

extern "C" fn set(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `register` gave Redis a setting that lives as long as the program.
    let setting = unsafe { &*setting.cast::<Setting>() };
    let set = || match str::from_utf8(Text::new(value).bytes()) {
        Ok(text) => (setting.set)(text),
        Err(_) => Err("it is not UTF-8".into()),
    };
    match guarded(setting.name, set).unwrap_or(Err("internal error".into())) {
        Ok(()) => OK,
        Err(reason) => {
            let reason = api!(RedisModule_CreateString(ptr::null_mut(), reason.as_ptr().cast(), reason.len()));
            // SAFETY: Redis gives a place for the reason, and frees what is put there.
            unsafe { *error = reason };
            ERR
        }
    }
}

extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> *mut raw::RedisModuleString {
    // SAFETY: as in `set`.
    let setting = unsafe { &*setting.cast::<Setting>() };
    shown::keep(guarded(setting.name, || (setting.get)()).unwrap_or_default())
}

/// Redis reads the string after `get` has returned, and leaves it to us to free it.
mod shown {
    use super::{api, ptr, raw};
    use std::sync::atomic::{AtomicPtr, Ordering};

    static LAST: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

    pub fn keep(text: String) -> *mut raw::RedisModuleString {
        let string = api!(RedisModule_CreateString(ptr::null_mut(), text.as_ptr().cast(), text.len()));
        let before = LAST.swap(string, Ordering::Relaxed);
        if !before.is_null() {
            api!(RedisModule_FreeString(ptr::null_mut(), before));
        }
        string
    }
}

/// Makes settings known to Redis, and has it apply those of its configuration file. A server without settings of modules
/// (before 7.0) leaves them at their defaults.
pub fn register(
    ctx: *mut raw::RedisModuleCtx,
    settings: &'static [Setting],
    numbers: &'static [Number],
) -> Result<(), String> {
    let has_settings = has!(RedisModule_RegisterStringConfig);
    for setting in settings {
        if !has_settings {
            (setting.set)(setting.default)?;
            continue;
        }
        let (name, default) = (c_string(setting.name), c_string(setting.default));
        let given = api!(RedisModule_RegisterStringConfig(
            ctx,
            name.as_ptr(),
            default.as_ptr(),
            if setting.fixed { raw::REDISMODULE_CONFIG_IMMUTABLE } else { raw::REDISMODULE_CONFIG_DEFAULT },
            Some(get),
            Some(set),
            None,
            ptr::from_ref(setting).cast_mut().cast(),
        ));
        if given != OK {
            return Err(format!("the server does not take the setting card.{}", setting.name));
        }
    }
    for number in numbers.iter().filter(|_| has_settings) {
        let name = c_string(number.name);
        let given = api!(RedisModule_RegisterNumericConfig(
            ctx,
            name.as_ptr(),
            number.default,
            if number.is_memory { raw::REDISMODULE_CONFIG_MEMORY } else { raw::REDISMODULE_CONFIG_DEFAULT },
            number.least,
            number.most,
            Some(get_number),
            Some(set_number),
            None,
            ptr::from_ref(number).cast_mut().cast(),
        ));
        if given != OK {
            return Err(format!("the server does not take the setting card.{}", number.name));
        }
    }
    if has_settings && api!(RedisModule_LoadConfigs(ctx)) != OK {
        return Err("a setting has a wrong value".into());
    }
    Ok(())
}
