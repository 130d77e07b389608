//! Work that gives way to those who wait for an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::redis;

/// Lowers the priority of this thread. Its share is that of `nice 10`; and it runs for so short that one who wants to answer
/// need not wait until it has had that.
pub fn give_way() {
    // SAFETY: all fields of it are numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_BATCH.cast_unsigned();
    attributes.sched_nice = 10;
    // Nanoseconds; the kernel's shortest. Before Linux 6.12 it has no effect, and none is needed.
    attributes.sched_runtime = 100_000;
    // SAFETY: it changes how the calling thread is scheduled, which on Linux is what 0 stands for, and nothing else.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// The same for a child that Redis has forked to write a snapshot or an AOF; nothing in Redis itself.
pub fn give_way_in_child() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if redis::is_child() && !DONE.swap(true, Ordering::Relaxed) {
        give_way();
    }
}

/// Frees something large on a thread of its own. Redis's own thread for that does not give way.
pub fn free<T: Send + 'static>(large: T) {
    let free = move || {
        give_way();
        drop(large);
    };
    // Where there is no thread to be had, it is freed here all the same.
    let _ = thread::Builder::new().name("card-free".into()).spawn(free);
}
