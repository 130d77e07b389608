//! cardctl: makes, checks, loads, compares and verifies lists of cards.
//!
//! ```text
//! commands/   what it does, one file each
//! list        lists in files: opened, unpacked, built into tables by card-table
//! output      lists that are written, complete or not at all
//! server      a Redis with the module, and what its tables are
//! staging     how a table that was built here gets there
//! console     progress and reports;   failure: sentences and exit codes;   interrupt: Ctrl-C
//! ```

mod commands;
mod console;
mod failure;
mod interrupt;
mod list;
mod output;
mod server;
mod staging;

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use commands::Command;
use console::{Console, Report, tell};
use failure::{EXIT_CODES, Failure};

/// Makes, checks, loads, compares and verifies lists of cards
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Report as one JSON object on the standard output; no progress
    #[arg(long, global = true)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let console = Console::new(cli.json);
    interrupt::prepare();
    match cli.command.run(console).and_then(|report| report.print(console).map(|()| report.fine)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            say(&failure, console);
            failure.exit_code().into()
        }
    }
}

fn say(failure: &Failure, console: Console) {
    if matches!(failure, Failure::NobodyReads) {
        return;
    }
    tell(format_args!("cardctl: {failure}"));
    if console == Console::Json {
        let json = json!({ "error": failure.to_string() });
        // There is nobody left to tell if this fails.
        let _ = Report { text: String::new(), json, fine: false }.print(console);
    }
}
