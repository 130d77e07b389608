//! wrk, the program that asks, and what it asks for.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::Command;

/// What came of it: requests a second, and milliseconds.
pub struct Run {
    pub per_second: f64,
    pub p50: f64,
    pub p99: f64,
    pub longest: f64,
}

pub fn write_paths(path: &Path, paths: impl Iterator<Item = String>) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for path in paths {
        writeln!(out, "{path}")?;
    }
    out.flush()
}

/// How often wrk is asked again when it hangs after its run, which it sometimes does.
const ATTEMPTS: usize = 4;

/// Asks for the paths in a file for so many seconds. A request that fails is an error: a server that answered nothing else
/// would seem a quick one.
pub fn run(script: &Path, port: u16, paths: &Path, connections: u32, seconds: u32) -> io::Result<Run> {
    for _ in 0..ATTEMPTS {
        let output = Command::new("timeout")
            .args([&(seconds + 5).to_string(), "wrk"])
            .args(["--threads", "1", "--connections", &connections.to_string(), "--duration", &format!("{seconds}s")])
            .arg("--script")
            .arg(script)
            .arg(format!("http://127.0.0.1:{port}"))
            .arg("--")
            .arg(paths)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let Some(result) = said.lines().find_map(|line| line.strip_prefix("RESULT ")) else { continue };
        let figures: Vec<f64> = result.split(' ').filter_map(|figure| figure.parse().ok()).collect();
        return match figures[..] {
            [per_second, p50, p99, longest, 0.0] => Ok(Run { per_second, p50, p99, longest }),
            [.., failed] => Err(io::Error::other(format!("{failed} requests to port {port} failed"))),
            [] => Err(io::Error::other(format!("wrk said {result}"))),
        };
    }
    Err(io::Error::other("wrk fails, or hangs"))
}
