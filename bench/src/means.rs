//! What a build may use: arguments of this program, and of the process that it starts to build alone.

use card_table::{Builder, Schema};
use clap::builder::RangedU64ValueParser;

/// What an argument must be.
pub fn at_least(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..)
}

/// How a table is built.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Means {
    /// Threads that build
    #[arg(long, default_value_t = 2, value_parser = at_least(1))]
    pub threads: usize,
    /// MiB for sorting
    #[arg(long, default_value_t = 256, value_parser = at_least(1))]
    pub sort_memory: usize,
}

impl Means {
    pub fn sort_bytes(&self) -> usize {
        self.sort_memory << 20
    }

    pub fn builder<'a>(&self) -> Builder<'a> {
        Builder::new(Schema::default()).threads(self.threads).sort_bytes(self.sort_bytes())
    }
}
