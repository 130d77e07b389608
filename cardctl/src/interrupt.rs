//! Ctrl-C, and being told to end: what was begun is removed first.
//!
//! The handler runs on a thread of its own, so it may do anything, also while the rest waits for a server or a disk.

use std::process;
use std::sync::{Mutex, MutexGuard};

use crate::console::tell;

/// What a shell says of a program that Ctrl-C has ended.
const EXIT_CODE: i32 = 130;

type CleanUp = Box<dyn FnOnce() + Send>;

static CLEAN_UP: Mutex<Option<CleanUp>> = Mutex::new(None);

fn clean_up() -> MutexGuard<'static, Option<CleanUp>> {
    CLEAN_UP.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub fn prepare() {
    let handler = || {
        // Locked to the end: what fails because of this waits here, instead of ending the program with another code.
        let mut undo = clean_up();
        if let Some(undo) = undo.take() {
            undo();
        }
        process::exit(EXIT_CODE);
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        tell(format_args!("Ctrl-C will leave behind what was begun: {error}"));
    }
}

/// What is to be done if the program is interrupted while this lives. There is one at a time.
pub struct Interruptible(());

impl Interruptible {
    pub fn new(undo: impl FnOnce() + Send + 'static) -> Interruptible {
        *clean_up() = Some(Box::new(undo));
        Interruptible(())
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        clean_up().take();
    }
}
