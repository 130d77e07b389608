//! From file to queryable: the seed's way, ours, and ours with a replica and an AOF.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use card_bench::measure::{median, rounds, tell, timed};
use card_bench::redis::Server;
use card_bench::report::{Grid, Target, fixed, millions};
use card_bench::scheme::TABLE;

use crate::files::{Files, preprocess};
use crate::{House, load};

pub struct Seconds {
    rows: u64,
    preprocessing: f64,
    piping: f64,
    ours: f64,
    replicated: f64,
    /// Until the replica had it too.
    on_replica: f64,
    delta: f64,
    /// Full synchronisations that the replica needed, beyond its first.
    full_syncs: u64,
}

pub fn measure(house: &House, files: &Files) -> io::Result<Seconds> {
    let rounds = rounds(files.rows as usize);
    tell("loading alone");
    let server = house.server(&[])?;
    let times = (0..rounds).map(|_| seconds(|| load(&server, &files.full, &[])));
    let ours = median(times.collect::<io::Result<_>>()?);
    let delta = seconds(|| load(&server, &files.changes, &[b"DELTA"]))?;
    drop(server);

    tell("loading with a replica and an AOF");
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let primary = house.server(&[
        "--bind",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--appendonly",
        "yes",
        "--repl-backlog-size",
        "512mb",
    ])?;
    let replica = house.server(&["--appendonly", "yes", "--replicaof", &format!("127.0.0.1 {port}")])?;
    wait(|| Ok(replica.connect()?.ask(&[b"INFO", b"replication"])?.contains("master_link_status:up")))?;
    let before = primary.info("stats", "sync_full")?;
    let (mut times, mut until_there) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let file = [&files.full, &files.other][round % 2];
        let start = Instant::now();
        load(&primary, file, &[])?;
        times.push(start.elapsed().as_secs_f64());
        let expected = digest(&primary)?;
        wait(|| Ok(digest(&replica).is_ok_and(|found| found == expected)))?;
        until_there.push(start.elapsed().as_secs_f64());
    }
    let full_syncs = primary.info("stats", "sync_full")? - before;
    drop((primary, replica));

    tell("the seed's way");
    let commands = files.full.with_file_name("commands");
    let preprocessing = seconds(|| preprocess(&files.full, &commands, files.rows))?;
    let server = house.server(&[])?;
    let piping = seconds(|| pipe(&server, &commands))?;
    fs::remove_file(commands)?;
    Ok(Seconds {
        rows: files.rows,
        preprocessing,
        piping,
        ours,
        replicated: median(times),
        on_replica: median(until_there),
        delta,
        full_syncs,
    })
}

fn seconds(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let (done, seconds) = timed(work);
    done.map(|()| seconds)
}

fn wait(mut holds: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds()? {
        if Instant::now() > deadline {
            return Err(io::Error::other("the replica does not get there"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What tells one list from another.
fn digest(server: &Server) -> io::Result<String> {
    // The digest is the last field, and the only long text of hexadecimal digits.
    let info = server.connect()?.texts(&[b"CARD.INFO", TABLE, b"DIGEST"])?;
    info.into_iter().next_back().ok_or_else(|| io::Error::other("CARD.INFO has no digest"))
}

fn pipe(server: &Server, commands: &std::path::Path) -> io::Result<()> {
    let piped = Command::new("redis-cli")
        .arg("-s")
        .arg(server.directory().join("socket"))
        .arg("--pipe")
        .stdin(File::open(commands)?)
        .stdout(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    let said = String::from_utf8_lossy(&piped.stdout);
    if piped.status.success() && said.contains("errors: 0") {
        Ok(())
    } else {
        Err(io::Error::other(format!("redis-cli --pipe: {said}")))
    }
}

impl Seconds {
    fn seed(&self) -> f64 {
        self.preprocessing + self.piping
    }

    pub fn targets(&self, rows: u64) -> Vec<Target> {
        let target = |what: &str, measured, at_most| Target { what: what.into(), measured, at_most };
        let mut targets = vec![target("file to queryable: time / the seed's way", self.ours / self.seed(), 1.0 / 25.0)];
        if rows == 100_000_000 {
            targets.push(target("file to queryable, 100 million rows, seconds", self.ours, 20.0));
        }
        targets.extend([
            target("file to queryable: time with a replica and AOF / without", self.replicated / self.ours, 2.0),
            target("full synchronisations of the replica during loads", self.full_syncs as f64, 0.0),
        ]);
        targets
    }

    pub fn figures(&self) -> BTreeMap<String, f64> {
        let ways = [("redis-card", self.ours), ("seed's hashes", self.seed())];
        let millions = |seconds: f64| self.rows as f64 / seconds / 1e6;
        ways.map(|(way, seconds)| (format!("rows a second, {way}"), millions(seconds))).into()
    }

    pub fn grid(&self) -> Grid {
        let row = |what: &str, seconds: f64| {
            vec![what.into(), fixed(seconds), millions(self.rows as f64 / seconds), fixed(self.seed() / seconds)]
        };
        let mut delta = row("CARD.LOAD … DELTA of 1%", self.delta);
        delta[2] = millions(self.rows as f64 / 100.0 / self.delta);
        delta[3] = "–".into();
        Grid {
            title: "From file to queryable",
            head: &["", "seconds", "million rows/s", "× the seed's way"],
            rows: vec![
                row("the seed's way", self.seed()),
                row("– its preprocessing", self.preprocessing),
                row("– redis-cli --pipe", self.piping),
                row("CARD.LOAD", self.ours),
                row("CARD.LOAD with a replica and an AOF", self.replicated),
                row("– until the replica has it", self.on_replica),
                delta,
            ],
            note: "The seed's way makes commands of the rows, here by a program in Rust, and sends them with `redis-cli --pipe`.",
        }
    }
}
