//! Where lists go that are written: to the standard output, or to a file that has its name only when it is complete.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use card_table::Schema;
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::ProgressBar;
use serde_json::Value;
use tempfile::{NamedTempFile, TempPath};

use crate::console::{Console, Report, Unit};
use crate::failure::Failure;
use crate::interrupt::Interruptible;
use crate::list::Packing;

const BUFFER_BYTES: usize = 256 << 10;

/// The suffix of files that are not complete; a watched directory leaves them alone.
const INCOMPLETE: &str = ".part";

#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Write to this file; packed if its name ends in .gz or .zst
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl OutputArgs {
    pub fn open(&self, console: Console) -> Result<Output, Failure> {
        match &self.output {
            Some(path) => Output::file(path),
            // Two things cannot be written to one place.
            None if console == Console::Json => Err(Failure::usage("--json needs a file for the list: -o FILE")),
            None => Output::stdout(),
        }
    }

    /// Counts rows for those who watch, unless what they see is the list itself.
    pub fn step(&self, rows: u64, console: Console) -> ProgressBar {
        match &self.output {
            Some(path) => console.step(format_args!("writing {}", path.display()), rows, Unit::Rows),
            None => ProgressBar::hidden(),
        }
    }

    /// What there is to say of the file; nothing if there is none.
    pub fn report(&self, text: String, mut json: Value) -> Report {
        let Some(path) = &self.output else { return Report::fine(String::new(), Value::Null) };
        json["file"] = path.to_string_lossy().into();
        Report::fine(format!("{}: {text}", path.display()), json)
    }
}

pub struct Output {
    packer: Packer,
    target: Target,
}

enum Target {
    Stdout,
    /// A device or a pipe, which cannot be put in place of something.
    Device(PathBuf),
    File {
        path: PathBuf,
        incomplete: TempPath,
        _interruptible: Interruptible,
    },
}

enum Packer {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Output {
    fn stdout() -> Result<Output, Failure> {
        // A handle of our own: the standard library's would write line by line.
        let file = io::stdout().as_fd().try_clone_to_owned().map_err(|error| Failure::stdout(&error))?;
        let packer = Packer::Plain(BufWriter::with_capacity(BUFFER_BYTES, file.into()));
        Ok(Output { packer, target: Target::Stdout })
    }

    fn file(path: &Path) -> Result<Output, Failure> {
        let failure = |error: io::Error| Failure::file(path, error);
        let (file, target) = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Err(Failure::file(path, "is a directory")),
            Ok(metadata) if !metadata.is_file() => {
                (File::options().write(true).open(path).map_err(failure)?, Target::Device(path.into()))
            }
            _ => incomplete_file(path).map_err(failure)?,
        };
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let packer = match Packing::of(path) {
            Packing::Plain => Packer::Plain(out),
            Packing::Gzip => Packer::Gzip(GzEncoder::new(out, Compression::default())),
            Packing::Zstd => Packer::Zstd(zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(failure)?),
        };
        Ok(Output { packer, target })
    }

    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &mut self.packer {
            Packer::Plain(out) => out.write_all(bytes),
            Packer::Gzip(out) => out.write_all(bytes),
            Packer::Zstd(out) => out.write_all(bytes),
        };
        written.map_err(|error| self.target.failure(error))
    }

    /// Writes what is left. A file now gets its name.
    pub fn finish(self) -> Result<(), Failure> {
        let finished = match self.packer {
            Packer::Plain(out) => Ok(out),
            Packer::Gzip(out) => out.finish(),
            Packer::Zstd(out) => out.finish(),
        };
        let flushed = finished.and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error));
        let file = flushed.map_err(|error| self.target.failure(error))?;
        if let Target::File { path, incomplete, .. } = self.target {
            // A name must not survive a power cut that its content does not survive.
            file.sync_all().map_err(|error| Failure::file(&path, error))?;
            incomplete.persist(&path).map_err(|error| Failure::file(&path, error.error))?;
        }
        Ok(())
    }
}

impl Target {
    fn failure(&self, error: io::Error) -> Failure {
        match self {
            Target::Stdout => Failure::stdout(&error),
            Target::Device(path) | Target::File { path, .. } => Failure::file(path, error),
        }
    }
}

fn incomplete_file(path: &Path) -> io::Result<(File, Target)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Readable for whoever the umask lets read: a server of another user may have to.
    let incomplete: NamedTempFile = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(INCOMPLETE)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)?;
    let (file, incomplete) = incomplete.into_parts();
    let removed = incomplete.to_path_buf();
    let _interruptible = Interruptible::new(move || {
        let _ = fs::remove_file(removed);
    });
    Ok((file, Target::File { path: path.into(), incomplete, _interruptible }))
}

/// Spells rows as they stand in a file.
pub struct Rows<'a> {
    schema: &'a Schema,
    /// What follows the id, for every symbol, where there are few: dividing takes longer than looking up.
    values: Vec<String>,
    spelt: Vec<u8>,
}

const FEW_SYMBOLS: u128 = 4096;

impl<'a> Rows<'a> {
    pub fn new(schema: &'a Schema) -> Rows<'a> {
        let few = if schema.symbols() <= FEW_SYMBOLS { schema.symbols() } else { 0 };
        Rows { schema, values: (0..few).map(|symbol| spell(schema, symbol)).collect(), spelt: Vec::new() }
    }

    /// The names of the columns, without the end of the line.
    pub fn header(&self) -> String {
        self.schema.fields().iter().fold("cardId".into(), |header, field| header + "\t" + &field.name)
    }

    /// A row, without the end of the line.
    pub fn row(&mut self, id: &[u8], symbol: u128) -> &mut Vec<u8> {
        self.spelt.clear();
        self.spelt.extend_from_slice(id);
        match self.values.get(symbol as usize) {
            Some(values) => self.spelt.extend_from_slice(values.as_bytes()),
            None => self.spelt.extend_from_slice(spell(self.schema, symbol).as_bytes()),
        }
        &mut self.spelt
    }

    /// A row without values.
    pub fn bare(&mut self, id: &[u8]) -> &mut Vec<u8> {
        self.spelt.clear();
        self.spelt.extend_from_slice(id);
        self.spelt.resize(self.spelt.len() + self.schema.fields().len(), b'\t');
        &mut self.spelt
    }
}

fn spell(schema: &Schema, symbol: u128) -> String {
    schema.values(symbol).map(|value| format!("\t{value}")).collect()
}
