//! What cardctl does, one file each.

mod check;
mod diff;
mod export;
mod generate;
mod get;
mod load;
mod stats;
mod verify;

use clap::Subcommand;

use crate::console::{Console, Report};
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum Command {
    Gen(generate::Args),
    Check(check::Args),
    Load(load::Args),
    Get(get::Args),
    Stats(stats::Args),
    Verify(verify::Args),
    Export(export::Args),
    Diff(diff::Args),
}

impl Command {
    pub fn run(&self, console: Console) -> Result<Report, Failure> {
        match self {
            Command::Gen(args) => args.run(console),
            Command::Check(args) => args.run(console),
            Command::Load(args) => args.run(console),
            Command::Get(args) => args.run(),
            Command::Stats(args) => args.run(),
            Command::Verify(args) => args.run(console),
            Command::Export(args) => args.run(console),
            Command::Diff(args) => args.run(console),
        }
    }
}
