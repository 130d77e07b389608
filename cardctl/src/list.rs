//! Lists in files: opened, unpacked, read row by row and built into tables.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use card_table::build::Progress;
use card_table::tsv::Reader;
use card_table::{BuildError, Builder, Built, Field, Schema, Table};
use clap::builder::RangedU64ValueParser;
use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;

use crate::console::{Console, Unit};
use crate::failure::Failure;

/// What is read of a packed file at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// The fields of the table that a list is for.
#[derive(Debug, clap::Args)]
pub struct Fields {
    /// A field of the table, in its order; type 0 10 and status 1 2 if none are given
    #[arg(long = "field", num_args = 3, value_names = ["NAME", "MIN", "MAX"], action = clap::ArgAction::Append)]
    fields: Vec<String>,
}

impl Fields {
    pub fn schema(&self) -> Result<Schema, Failure> {
        if self.fields.is_empty() {
            return Ok(Schema::default());
        }
        let number = |text: &String| {
            text.parse().map_err(|_| Failure::Usage(format!("--field: '{text}' is not a number below 2^128")))
        };
        let fields =
            self.fields.chunks_exact(3).map(|field| Ok(Field::new(&field[0], number(&field[1])?, number(&field[2])?)));
        Schema::new(fields.collect::<Result<_, Failure>>()?)
            .map_err(|error| Failure::Usage(format!("--field: {error}")))
    }
}

/// What building a table may use.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Means {
    /// Threads that work; one on each core by default
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = RangedU64ValueParser::<usize>::new().range(..=256))]
    threads: usize,
    /// MiB of memory for sorting, beside the table itself, about 5 bytes a card
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = RangedU64ValueParser::<usize>::new().range(1..1 << 24))]
    memory: usize,
}

impl Means {
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            threads => threads,
        }
    }

    fn builder<'a>(&self, schema: &Schema) -> Builder<'a> {
        Builder::new(schema.clone()).threads(self.threads()).sort_bytes(self.memory << 20)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    pub fn of(path: &Path) -> Packing {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => Packing::Plain,
        }
    }
}

/// A file with a list.
pub struct List {
    path: PathBuf,
    metadata: Metadata,
}

impl List {
    pub fn new(path: &Path) -> Result<List, Failure> {
        let metadata = std::fs::metadata(path).map_err(|error| Failure::file(path, error))?;
        if metadata.is_dir() {
            return Err(Failure::file(path, "is a directory"));
        }
        Ok(List { path: path.into(), metadata })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last part of its path.
    pub fn name(&self) -> &[u8] {
        self.path.file_name().unwrap_or(self.path.as_os_str()).as_encoded_bytes()
    }

    /// Whether it can be read more than once.
    pub fn is_regular(&self) -> bool {
        self.metadata.is_file()
    }

    /// The content, unpacked; the bar counts what is read of the file.
    fn content(&self, bar: &ProgressBar) -> io::Result<Box<dyn Read + Send>> {
        let file = bar.wrap_read(File::open(&self.path)?);
        Ok(match Packing::of(&self.path) {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, file))),
            Packing::Zstd => Box::new(zstd::Decoder::new(file)?),
        })
    }

    fn step(&self, what: &str, console: Console) -> ProgressBar {
        console.step(format_args!("{what} {}", self.path.display()), self.metadata.len(), Unit::Bytes)
    }

    /// The rows, page by page.
    pub fn rows(&self, schema: &Schema, what: &str, console: Console) -> Result<Reader<Box<dyn Read + Send>>, Failure> {
        let content = self.content(&self.step(what, console)).map_err(|error| Failure::file(&self.path, error))?;
        Reader::new(content, schema).map_err(|error| Failure::file(&self.path, error))
    }

    /// A table of the list.
    pub fn build(&self, schema: &Schema, means: Means, console: Console) -> Result<Built<Table>, Failure> {
        let built =
            self.build_with(means.builder(schema), console).map_err(|error| Failure::file(&self.path, error))?;
        self.check_unchanged()?;
        Ok(built)
    }

    /// The same, but bad rows are left out, and so many of them told.
    pub fn build_from_good_rows(
        &self,
        schema: &Schema,
        means: Means,
        told: usize,
        console: Console,
    ) -> Result<Built<Table>, BuildError> {
        self.build_with(means.builder(schema).allow_problems(u64::MAX).tell_problems(told), console)
    }

    fn build_with(&self, builder: Builder, console: Console) -> Result<Built<Table>, BuildError> {
        let bar = self.step("reading", console);
        let merging = OnceLock::new();
        let told = |progress| {
            if let Progress::Merging(done, total) = progress {
                let begin = || {
                    bar.finish_and_clear();
                    console.step("merging", total, Unit::Rows)
                };
                merging.get_or_init(begin).set_position(done);
            }
            ControlFlow::Continue(())
        };
        builder.on_progress(told).table_from_tsv(self.content(&bar)?)
    }

    /// An error if the file is another one than it was in the beginning: what was read may be half of each.
    pub fn check_unchanged(&self) -> Result<(), Failure> {
        let of = |metadata: &Metadata| -> io::Result<(u64, SystemTime)> { Ok((metadata.len(), metadata.modified()?)) };
        let now = std::fs::metadata(&self.path).and_then(|metadata| of(&metadata));
        match (of(&self.metadata), now) {
            (Ok(then), Ok(now)) if then == now || !self.is_regular() => Ok(()),
            (_, Err(error)) | (Err(error), _) => Err(Failure::file(&self.path, error)),
            _ => Err(Failure::file(&self.path, "changed while it was read")),
        }
    }
}
