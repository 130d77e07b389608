//! Measures the module in a real redis-server beside the seed's way and plain string keys, in one run on one machine.
//!
//! Each way gets a server of its own with the same list, and all servers are asked in turns.

mod fill;
mod memory;
mod speed;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use card_bench::card::Digits20;
use card_bench::data::{List, Net, Values};
use card_bench::file::write_list;
use card_bench::measure::tell;
use card_bench::report::{Target, document, grouped, machine};
use clap::Parser;

use card_bench::outcome::Outcome;
use card_bench::redis::Server;
use card_bench::scheme::Scheme;
use memory::Memory;
use speed::Speeds;

/// Measures redis-card in a server beside its peers.
#[derive(Parser)]
struct Args {
    /// Cards in the list
    #[arg(long, default_value_t = 10_000_000)]
    rows: usize,
    /// Lists of the same seed are the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The module
    #[arg(long, default_value = "target/release/libredis_card.so")]
    module: PathBuf,
    /// Where the servers keep their files
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// A folder that the results are written to, for the report
    #[arg(long)]
    outcomes: Option<PathBuf>,
}

/// With more, all contenders together would not fit a machine of 24 GB.
const MOST_IN_ONE_HASH: usize = 30_000_000;

/// A way to keep cards, and a server that keeps them so.
struct Contender {
    scheme: Scheme,
    server: Server,
    memory: Memory,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let list = List::new(&Net, Values::twenty(args.seed), args.rows, args.seed);
    // Ours is the last, as the tables have it.
    let mut schemes = vec![Scheme::seed(args.rows), Scheme::Strings, Scheme::OneHash, Scheme::Ours];
    if args.rows > MOST_IN_ONE_HASH {
        schemes.retain(|scheme| *scheme != Scheme::OneHash);
    }
    let scratch = tempfile::Builder::new().prefix("redis-card-bench-").tempdir_in(&args.directory)?;
    write_list(&scratch.path().join(fill::FILE), list.records())?;
    let contenders = schemes.into_iter().map(|scheme| contender(scheme, &list, scratch.path(), &args));
    let contenders = contenders.collect::<io::Result<Vec<_>>>()?;
    let speeds = Speeds::measure(&contenders, &list, args.seed)?;

    let limit = list.limit_bytes(&Net, list.cards.len()) / list.cards.len() as f64;
    let ours = &contenders.last().expect("ours is one of them").memory;
    let targets: Vec<Target> = ours.targets(limit).into_iter().chain(speeds.targets()).collect();
    let grids = [memory::grid(&contenders, limit), speeds.grid(), Target::grid(&targets)];
    let cards = grouped(list.cards.len() as u64);
    let text = document(&grids);
    println!("## {cards} cards\n\n{text}\nMeasured on {}.", machine());
    if let Some(folder) = args.outcomes {
        let mut figures = speeds.figures(&contenders);
        figures.extend(memory::figures(&contenders, limit));
        let rows = list.cards.len() as u64;
        Outcome { part: "server".into(), rows, machine: machine(), text, targets, figures, series: Vec::new() }
            .write(&folder)?;
    }
    Ok(())
}

/// Starts a server, gives it the list, and restarts it.
fn contender(scheme: Scheme, list: &List<Digits20>, lists: &Path, args: &Args) -> io::Result<Contender> {
    tell(format_args!("{}: filling and restarting", scheme.name()));
    let lists = lists.to_str().ok_or_else(|| io::Error::other("the directory's name is not UTF-8"))?;
    let mut server = Server::with(&args.module.canonicalize()?, &args.directory, &["--card.load-dir", lists])?;
    let memory =
        Memory::measure(&mut server, list.cards.len(), |server| fill::fill(scheme, list, &mut server.connect()?))?;
    Ok(Contender { scheme, server, memory })
}

/// 20 digits.
fn spelt(card: &Digits20) -> String {
    format!("{:020}", card.0)
}
