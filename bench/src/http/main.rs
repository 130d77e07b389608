//! Measures queries over HTTP: our gateway beside the least that a gateway can do, and beside webdis asking the seed's
//! hashes, in one run on one machine.
//!
//! | | |
//! |---|---|
//! | `servers` | nginx with our gateway, nginx that sends `PING`, webdis |
//! | `wrk` | how many requests a second, and how long they take |
//! | `gate` | how long one gate waits while a list is loaded |

mod gate;
mod servers;
mod wrk;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;

use card_bench::file::{spelt, write_list};
use card_bench::measure::{median, tell};
use card_bench::outcome::Outcome;
use card_bench::redis::{Requests, Server};
use card_bench::report::{Grid, Target, document, fixed, grouped, machine};
use card_bench::scheme::{Scheme, TABLE};
use card_samples::Set;
use clap::Parser;

use servers::{Nginx, Webdis};
use wrk::Run;

/// Measures queries over HTTP.
#[derive(Parser)]
struct Args {
    /// Cards in the list
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// Lists of the same seed are the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The module
    #[arg(long, default_value = "target/release/libredis_card.so")]
    module: PathBuf,
    /// The project's folder, for the gateway
    #[arg(long, default_value = ".")]
    project: PathBuf,
    /// Where servers keep their files
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Seconds of each of nine rounds
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// A folder that the results are written to, for the report
    #[arg(long)]
    outcomes: Option<PathBuf>,
}

/// The servers take turns, so that a busy machine slows all.
const ROUNDS: usize = 9;

/// Cards that are asked for: half of them are listed.
const ASKED: usize = 100_000;

/// How many clients ask at once: a busy service, and a quiet one.
const CONNECTIONS: [u32; 2] = [32, 8];

/// A way to answer over HTTP.
struct Contender {
    name: &'static str,
    port: u16,
    paths: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let scratch = tempfile::Builder::new().prefix("redis-card-bench-").tempdir_in(&args.directory)?;
    servers::open_to_all(scratch.path())?;
    let lists = scratch.path().join("lists");
    fs::create_dir(&lists)?;

    tell("writing lists");
    for (file, seed) in [("full.tsv", args.seed), ("other.tsv", args.seed + 1)] {
        write_list(&lists.join(file), Set::Net.records(args.rows, seed))?;
    }
    let cards = || {
        let listed = Set::Net.records(args.rows, args.seed).take(ASKED / 2);
        listed.chain(Set::Net.records(args.rows, args.seed + 2).take(ASKED / 2)).map(|(id, _)| spelt(&id))
    };
    let queries = scratch.path().join("queries");
    wrk::write_paths(&queries, cards().map(|card| servers::query(&card)))?;
    let seed = Scheme::seed(args.rows as usize);
    let hgets = scratch.path().join("hgets");
    wrk::write_paths(&hgets, cards().map(|card| servers::hget(seed, &card)))?;

    tell("filling servers");
    let module = args.module.canonicalize()?;
    let path = lists.to_str().ok_or("the directory's name is not UTF-8")?;
    let ours = Server::with(&module, scratch.path(), &["--card.load-dir", path, "--unixsocketperm", "777"])?;
    servers::open_to_all(ours.directory())?;
    ours.connect()?.ask(&[b"CARD.LOAD", TABLE, b"full.tsv"])?;
    let seeds = Server::with(&module, scratch.path(), &["--unixsocketperm", "777"])?;
    fill_seed(&seeds, seed, Set::Net.records(args.rows, args.seed))?;
    let project = args.project.canonicalize()?;
    let gateway = Nginx::start(&project, scratch.path(), &ours, None)?;
    let ping = Nginx::start(&project, scratch.path(), &ours, Some("bench/http/ping.lua"))?;
    let webdis = Webdis::start(scratch.path(), &seeds)?;
    let contenders = [
        Contender { name: "redis-card", port: gateway.port, paths: queries.clone() },
        Contender { name: "nginx sending PING", port: ping.port, paths: queries },
        Contender { name: "webdis, seed's HGET", port: webdis.port, paths: hgets },
    ];

    let script = project.join("bench/http/wrk.lua");
    let mut measured = BTreeMap::new();
    for connections in CONNECTIONS {
        tell(format_args!("{connections} connections"));
        let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (contender, runs) in contenders.iter().zip(&mut runs) {
                runs.push(wrk::run(&script, contender.port, &contender.paths, connections, args.seconds)?);
            }
        }
        measured.insert(connections, runs.iter().map(|runs| Run::median(runs)).collect::<Vec<_>>());
    }
    tell("one gate, while lists are loaded");
    let gate = gate::measure(&ours, &gateway)?;

    let (busy, quiet) = (&measured[&CONNECTIONS[0]], &measured[&CONNECTIONS[1]]);
    let target = |what: &str, measured, at_most| Target { what: what.into(), measured, at_most };
    let mut targets = vec![
        target("HTTP: time of a request / nginx sending PING", busy[1].per_second / busy[0].per_second, 1.0 / 0.9),
        target(
            "HTTP: time of a request / webdis asking the seed's HGET",
            busy[2].per_second / busy[0].per_second,
            1.0 / 0.9,
        ),
        target("HTTP: p99 at 32 connections / nginx sending PING", busy[0].p99 / busy[1].p99, 1.5),
        target("HTTP: p99 at 8 connections, ms", quiet[0].p99, 2.0),
    ];
    targets.push(gate.target());
    let rows = measured.iter().rev().flat_map(|(connections, runs)| {
        contenders.iter().zip(runs).map(move |(contender, run)| {
            let mut cells = vec![contender.name.into(), connections.to_string(), format!("{:.0}", run.per_second)];
            cells.push(fixed(runs[0].per_second / run.per_second));
            cells.extend([run.p50, run.p99, run.longest].map(|ms| format!("{ms:.2}")));
            cells
        })
    });
    let grids = [
        Grid {
            title: "Requests a second",
            head: &["", "connections", "requests/s", "redis-card /", "p50 ms", "p99 ms", "longest ms"],
            rows: rows.collect(),
            note: "wrk on the same two cores, median of nine alternating rounds; half of the cards are listed. nginx sending PING is the same nginx, with the \
                   same logs and metrics, whose Lua sends `PING` and returns a constant. webdis asks the seed's hashes of the same cards.",
        },
        gate.grid(),
        Target::grid(&targets),
    ];
    let text = document(&grids);
    println!("## HTTP, {} rows\n\n{text}\nMeasured on {}.", grouped(args.rows), machine());
    if let Some(folder) = args.outcomes {
        let figures = contenders
            .iter()
            .zip(busy)
            .map(|(contender, run)| (format!("requests, {}", contender.name), run.per_second));
        let figures = figures.collect();
        Outcome {
            part: "http".into(),
            rows: args.rows,
            machine: machine(),
            text,
            targets,
            figures,
            series: Vec::new(),
        }
        .write(&folder)?;
    }
    Ok(())
}

/// Gives a list to a server in the seed's way.
fn fill_seed(
    server: &Server,
    scheme: Scheme,
    records: impl Iterator<Item = (card_table::Id<'static>, u128)>,
) -> io::Result<()> {
    let mut connection = server.connect()?;
    let mut requests = Requests::default();
    for (id, symbol) in records {
        scheme.set(&spelt(&id), (symbol / 2) as u8, (symbol % 2 + 1) as u8, &mut requests);
        if requests.count == 1000 {
            connection.send(&requests)?;
            connection.wait()?;
            requests = Requests::default();
        }
    }
    connection.send(&requests)?;
    connection.wait()
}

impl Run {
    fn median(runs: &[Run]) -> Run {
        let of = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
        Run {
            per_second: of(|run| run.per_second),
            p50: of(|run| run.p50),
            p99: of(|run| run.p99),
            longest: runs.iter().fold(0.0, |longest, run| run.longest.max(longest)),
        }
    }
}
