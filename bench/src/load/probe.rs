//! A client that asks every millisecond, on a connection of its own, and notes how long it waits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use card_bench::redis::{Requests, Server};

const EVERY: Duration = Duration::from_millis(1);

/// Milliseconds waited, with the second at which the question was asked.
pub type Waits = Vec<(f64, f64)>;

/// Asks a server the given questions in turn until `stop`.
pub fn start<'s>(
    scope: &'s thread::Scope<'s, '_>,
    server: &Server,
    questions: Vec<Requests>,
    stop: &'s AtomicBool,
) -> io::Result<ScopedJoinHandle<'s, io::Result<Waits>>> {
    let mut connection = server.connect()?;
    Ok(scope.spawn(move || {
        let start = Instant::now();
        let mut waits = Waits::new();
        let mut next = start;
        for question in questions.iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let asked = Instant::now();
            connection.send(question)?;
            connection.wait()?;
            waits.push((asked.duration_since(start).as_secs_f64(), asked.elapsed().as_secs_f64() * 1e3));
            next += EVERY;
            let now = Instant::now();
            if now < next {
                thread::sleep(next - now);
            } else {
                // One that has waited long does not ask the more often afterwards.
                next = now;
            }
        }
        Ok(waits)
    }))
}
