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
    pub failed: f64,
}

pub fn write_paths(path: &Path, paths: impl Iterator<Item = String>) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for path in paths {
        writeln!(out, "{path}")?;
    }
    out.flush()
}

/// Asks for the paths in a file for so many seconds. wrk seldom hangs when it has finished: then it is asked again.
pub fn run(script: &Path, port: u16, paths: &Path, connections: u32, seconds: u32) -> io::Result<Run> {
    let attempt = || attempt(script, port, paths, connections, seconds);
    attempt().or_else(|_| attempt())
}

fn attempt(script: &Path, port: u16, paths: &Path, connections: u32, seconds: u32) -> io::Result<Run> {
    let output = Command::new("timeout")
        .args([&(seconds + 15).to_string(), "wrk"])
        .args(["--threads", "1", "--connections", &connections.to_string(), "--duration", &format!("{seconds}s")])
        .arg("--script")
        .arg(script)
        .arg(format!("http://127.0.0.1:{port}"))
        .arg("--")
        .arg(paths)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let result = said.lines().find_map(|line| line.strip_prefix("RESULT "));
    let result = result.ok_or_else(|| io::Error::other(format!("wrk failed: {output:?}")))?;
    let figures: Vec<f64> = result.split(' ').filter_map(|figure| figure.parse().ok()).collect();
    let [per_second, p50, p99, longest, failed] = figures[..] else {
        return Err(io::Error::other(format!("wrk said {result}")));
    };
    Ok(Run { per_second, p50, p99, longest, failed })
}
