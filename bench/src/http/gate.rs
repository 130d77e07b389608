//! One gate that asks every millisecond while lists are loaded, and how long it waits.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use card_bench::redis::Server;
use card_bench::report::{Grid, Target};
use card_bench::scheme::TABLE;

use crate::servers::{Nginx, query};

const EVERY: Duration = Duration::from_millis(1);

/// Loads are repeated for so long.
const AT_LEAST: Duration = Duration::from_secs(15);

/// Milliseconds waited, ascending.
pub struct Gate {
    loads: usize,
    loading: Vec<f64>,
    /// Before any load.
    quiet: Vec<f64>,
}

pub fn measure(server: &Server, gateway: &Nginx) -> io::Result<Gate> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let quiet = scope.spawn(|| ask(gateway.port, &stop));
        thread::sleep(AT_LEAST / 3);
        stop.store(true, Ordering::Relaxed);
        let quiet = quiet.join().expect("it does not panic")?;
        stop.store(false, Ordering::Relaxed);
        let asking = scope.spawn(|| ask(gateway.port, &stop));
        let start = Instant::now();
        let mut loads = 0;
        let mut outcome = Ok(String::new());
        while outcome.is_ok() && (loads == 0 || start.elapsed() < AT_LEAST) {
            loads += 1;
            let file: &[u8] = [b"full.tsv".as_slice(), b"other.tsv"][loads % 2];
            outcome = server.connect()?.ask(&[b"CARD.LOAD", TABLE, file]);
        }
        stop.store(true, Ordering::Relaxed);
        outcome?;
        Ok(Gate { loads, loading: asking.join().expect("it does not panic")?, quiet })
    })
}

/// Asks until `stop`, on one connection.
fn ask(port: u16, stop: &AtomicBool) -> io::Result<Vec<f64>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", query("44015186100181001473"));
    let mut waits = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        stream.write_all(request.as_bytes())?;
        read_answer(&mut replies)?;
        waits.push(asked.elapsed().as_secs_f64() * 1e3);
        thread::sleep(EVERY.saturating_sub(asked.elapsed()));
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits)
}

/// An answer, which is that of a list.
fn read_answer(replies: &mut impl BufRead) -> io::Result<()> {
    let mut length = 0;
    let mut line = String::new();
    let mut is_first = true;
    loop {
        line.clear();
        replies.read_line(&mut line)?;
        if std::mem::take(&mut is_first) && !line.contains(" 200 ") {
            return Err(io::Error::other(format!("the gateway answered {line}")));
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    replies.read_exact(&mut body)
}

impl Gate {
    pub fn target(&self) -> Target {
        let longest = *self.loading.last().expect("it has asked");
        Target { what: "HTTP: longest answer while lists are loaded, ms".into(), measured: longest, at_most: 20.0 }
    }

    pub fn grid(&self) -> Grid {
        let row = |what: &str, loads: usize, waits: &[f64]| {
            let at = |part: f64| waits[((waits.len() as f64 * part) as usize).min(waits.len() - 1)];
            let mut cells = vec![what.into(), loads.to_string(), waits.len().to_string()];
            cells.extend([at(0.5), at(0.99), at(0.999), at(1.0)].map(|ms| format!("{ms:.2}")));
            cells
        };
        Grid {
            title: "One gate, while lists are loaded",
            head: &["", "loads", "answers", "p50 ms", "p99 ms", "p99.9 ms", "longest ms"],
            rows: vec![
                row("nothing is loaded", 0, &self.quiet),
                row("lists are loaded, one after the other", self.loads, &self.loading),
            ],
            note: "A client asks every millisecond on a connection of its own, through nginx.",
        }
    }
}
