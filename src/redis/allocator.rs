//! Memory that was freed, given back to the system.
//!
//! jemalloc, Redis's allocator, keeps what was freed for a while, and looks at it only when more is asked for: after a load
//! has sorted in a quarter of a gigabyte, or a restart has read a file, that can take long. So it is told to let go. Unlike
//! `MEMORY PURGE` this does not need Redis's lock.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// What this thread keeps for itself, then what all arenas keep: 4096 is jemalloc's number for all of them.
const STEPS: [&CStr; 2] = [c"thread.tcache.flush", c"arena.4096.purge"];

type MallCtl = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// Gives back what can be given back; does nothing where the server has another allocator.
pub fn give_back() {
    // As a system's library it is called mallctl, inside redis-server je_mallctl.
    for name in [c"je_mallctl", c"mallctl"] {
        // SAFETY: it looks for a name among those that the server has loaded.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if !found.is_null() {
            // SAFETY: this is what jemalloc has under that name.
            let mallctl: MallCtl = unsafe { std::mem::transmute(found) };
            for step in STEPS {
                // SAFETY: neither takes or returns anything; both can be done from any thread.
                unsafe { mallctl(step.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0) };
            }
            return;
        }
    }
}
