//! Measures the table against its limits and its peers: memory against what information theory allows, finding against
//! `HashMap`, building against parsing and sorting, all in one run; and verifies every answer.
//!
//! One data set is measured at a time, and gone before the next is made.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tikv_jemallocator::Jemalloc;

use card_bench::data::{Cookies, HexDigests, Issued, List, Net, Set, Source, Uniform, Values};
use card_bench::means::{Means, at_least};
use card_bench::measure::tell;
use card_bench::outcome::Outcome;
use card_bench::results::{Delivered, Measured};
use card_bench::size::Size;
use card_bench::{bulk, find, peak, report, results, speed, verify};

/// The figures should be those that Redis would show, so the allocator is Redis's.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Fewer tell nothing.
const MIN_ROWS: u64 = 1000;

/// The set that is most like the lists that are delivered: with it, building and growing are measured as well.
const DELIVERED: Set = Set::Net;

/// Measures the card table against its limits and its peers.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    /// Rows of each data set
    #[arg(long, default_value_t = 10_000_000, value_parser = at_least(MIN_ROWS))]
    rows: usize,
    /// Data sets, comma-separated; all by default
    #[arg(long, value_enum, value_delimiter = ',')]
    sets: Vec<Set>,
    /// Data sets of the same seed are the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    means: Means,
    /// Single inserts into an empty table, at most as many as rows
    #[arg(long, default_value_t = 10_000_000)]
    inserts: usize,
    /// A folder that the results are written to, for the report
    #[arg(long)]
    outcomes: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    #[command(name = peak::BUILD_ONLY, hide = true)]
    BuildOnly(Means),
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    if let Some(Part::BuildOnly(means)) = args.part {
        peak::build_only(means)?;
        return Ok(ExitCode::SUCCESS);
    }
    let sets = if args.sets.is_empty() { Set::value_variants() } else { &args.sets };
    let mut measured = Vec::new();
    let mut text = String::new();
    for &set in sets {
        measured.push(measure_set(set, &args)?);
        text = document(&measured, &args);
        // After each set, so that a long run that fails leaves something.
        if let Some(folder) = &args.outcomes {
            let targets = measured.iter().flat_map(Measured::targets).collect();
            let (rows, machine) = (args.rows as u64, report::machine());
            let (figures, series) = Default::default();
            Outcome { part: "table".into(), rows, machine, text: text.clone(), targets, figures, series }
                .write(folder)?;
        }
    }
    print!("{text}");
    let right = measured.iter().flat_map(Measured::certainties).all(|target| target.met());
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn document(measured: &[Measured], args: &Args) -> String {
    format!(
        "{}\nMeasured with `--rows {} --seed {} --threads {} --sort-memory {}` on {}.\n",
        report::document(&results::grids(measured)),
        args.rows,
        args.seed,
        args.means.threads,
        args.means.sort_memory,
        report::machine()
    )
}

fn measure_set(set: Set, args: &Args) -> Result<Measured, Box<dyn Error>> {
    let twenty = Values::twenty(args.seed);
    match set {
        Set::Uniform => measure(set, &Uniform, twenty, args),
        Set::Net => measure(set, &Net, twenty, args),
        Set::Issued => measure(set, &Issued::new(args.rows as u64), twenty, args),
        Set::Onevalue => measure(set, &Net, Values::One, args),
        Set::Hex32 => measure(set, &HexDigests, twenty, args),
        Set::Cookies => measure(set, &Cookies, twenty, args),
    }
}

fn measure<S: Source>(set: Set, source: &S, values: Values, args: &Args) -> Result<Measured, Box<dyn Error>> {
    let builder = args.means.builder();
    let mut rng = SmallRng::seed_from_u64(!args.seed);

    tell(format_args!("{set}: drawing {} rows", args.rows));
    let mut list = List::new(source, values, args.rows, args.seed);
    let limit = list.limit_bytes(source, list.cards.len());
    tell(format_args!("{set}: building"));
    let (table, built) = speed::build(&list, &builder);
    tell(format_args!("{set}: finding"));
    let (find, unlisted) = find::measure(source, &list, &table, &mut rng);
    tell(format_args!("{set}: writing, reading, changing"));
    let speed = speed::measure(&list, &table, &unlisted, &builder);
    drop(unlisted);
    let delivered = if set == DELIVERED {
        tell(format_args!("{set}: building from a file"));
        let bulk = bulk::measure(&list, &table, args.means)?;
        let inserts = args.inserts.min(list.cards.len());
        tell(format_args!("{set}: growing by {inserts} inserts"));
        let (grown, growth) = speed::grow(&list, inserts);
        Some(Delivered { bulk, grown: Size::of(grown, list.limit_bytes(source, inserts)), growth })
    } else {
        None
    };
    tell(format_args!("{set}: verifying"));
    let answers = verify::verify(&mut list, &table, args.means.threads);
    tell(format_args!("{set}: wrong {}", answers.wrong));
    Ok(Measured { set, size: Size::of(table, limit), find, built, speed, delivered, answers })
}
