//! Measures how a list gets from a file into a server: `CARD.LOAD` beside the seed's way, in one run on one machine.
//!
//! | | |
//! |---|---|
//! | `files` | the list as it is delivered, changes to it, and what the seed's preprocessing makes of it |
//! | `seconds` | from file to queryable: the seed's way, ours, ours with a replica and an AOF |
//! | `waits` | how long clients wait for an answer meanwhile |
//! | `peak` | the memory that a first load takes |

mod files;
mod peak;
mod probe;
mod seconds;
mod waits;

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use card_bench::outcome::Outcome;
use card_bench::redis::Server;
use card_bench::report::{Target, document, grouped, machine};
use card_bench::scheme::TABLE;
use clap::Parser;

use files::Files;

/// Measures loads of files into a server.
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
    /// Where files and servers are kept meanwhile; 100 million rows take 12 GB
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// A folder that the results are written to, for the report
    #[arg(long)]
    outcomes: Option<PathBuf>,
}

/// Where servers come from.
struct House {
    module: PathBuf,
    directory: PathBuf,
    /// `card.load-dir` of all servers.
    lists: PathBuf,
}

impl House {
    fn server(&self, arguments: &[&str]) -> io::Result<Server> {
        let lists = self.lists.to_str().ok_or_else(|| io::Error::other("the directory's name is not UTF-8"))?;
        let arguments = [&["--card.load-dir", lists], arguments].concat();
        Server::with(&self.module, &self.directory, &arguments)
    }
}

/// Loads a file into the table, and returns when it answers.
fn load(server: &Server, file: &Path, options: &[&[u8]]) -> io::Result<()> {
    let name = file.file_name().expect("it is a file").as_encoded_bytes();
    server.connect()?.ask(&[&[b"CARD.LOAD", TABLE, name], options].concat())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let scratch = tempfile::Builder::new().prefix("redis-card-bench-").tempdir_in(&args.directory)?;
    let house = House {
        module: args.module.canonicalize()?,
        directory: scratch.path().into(),
        lists: scratch.path().join("lists"),
    };
    fs::create_dir(&house.lists)?;
    let files = Files::write(&house.lists, args.rows, args.seed)?;
    let peak = peak::measure(&house, &files)?;
    let waits = waits::measure(&house, &files)?;
    let seconds = seconds::measure(&house, &files)?;

    let targets: Vec<Target> =
        [seconds.targets(args.rows), waits::targets(&waits), vec![peak.target()]].into_iter().flatten().collect();
    let grids = [seconds.grid(), waits::grid(&waits), peak.grid(), Target::grid(&targets)];
    let text = document(&grids);
    println!("## Loading {} rows\n\n{text}\nMeasured on {}.", grouped(args.rows), machine());
    if let Some(folder) = args.outcomes {
        let series = waits.iter().filter_map(|waits| waits.series()).collect();
        let figures = seconds.figures();
        Outcome { part: "load".into(), rows: args.rows, machine: machine(), text, targets, figures, series }
            .write(&folder)?;
    }
    Ok(())
}
