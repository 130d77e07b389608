//! Opens files of the configured directory, and nothing else.
//!
//! Names come from clients. A file is opened first, below the directory and without following a link out of it, and then
//! looked at: what was looked at before could have been exchanged.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use flate2::read::MultiGzDecoder;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SourceError {
    #[error("card.load-dir is not set, so there is nothing to load from")]
    NoDirectory,
    #[error("cannot open the directory {directory}: {error}")]
    Directory { directory: String, error: io::Error },
    #[error("a file is named by its path below card.load-dir, without '..'")]
    Path,
    #[error("a file's name ends in .tsv, .tsv.gz or .tsv.zst")]
    Suffix,
    #[error("cannot open {name}: {error}")]
    Open { name: String, error: io::Error },
    #[error("{0} is not a regular file")]
    NotAFile(String),
    #[error("{0} changed while it was read")]
    Changed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    fn of(name: &[u8]) -> Option<Packing> {
        [(b".tsv".as_slice(), Packing::Plain), (b".tsv.gz", Packing::Gzip), (b".tsv.zst", Packing::Zstd)]
            .into_iter()
            .find(|(suffix, _)| name.ends_with(suffix))
            .map(|(_, packing)| packing)
    }
}

/// A file that is open.
pub struct Source {
    name: String,
    file: File,
    packing: Packing,
    /// When it was opened.
    bytes: u64,
    modified: SystemTime,
}

impl Source {
    pub fn open(directory: &str, name: &[u8]) -> Result<Source, SourceError> {
        if directory.is_empty() {
            return Err(SourceError::NoDirectory);
        }
        let path = Path::new(OsStr::from_bytes(name));
        if name.is_empty() || !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(SourceError::Path);
        }
        let packing = Packing::of(name).ok_or(SourceError::Suffix)?;
        let shown = name.escape_ascii().to_string();
        let error = |error| SourceError::Open { name: shown.clone(), error };

        let opened = Dir::open_ambient_dir(directory, ambient_authority());
        let opened = opened.map_err(|error| SourceError::Directory { directory: directory.into(), error })?;
        // Without O_NONBLOCK, opening a FIFO would wait for somebody to write to it.
        let file =
            opened.open_with(path, OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK)).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        if !metadata.is_file() {
            return Err(SourceError::NotAFile(shown));
        }
        let modified = modified(&metadata).map_err(error)?;
        Ok(Source { name: shown, file, packing, bytes: metadata.len(), modified })
    }

    /// The bytes of the file, as it is packed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_packed(&self) -> bool {
        self.packing != Packing::Plain
    }

    /// The content, unpacked. `read` counts the bytes of the file that have been read.
    pub fn reader(&self, read: Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
        let counted = Counted { file: self.file.try_clone()?, read };
        Ok(match self.packing {
            Packing::Plain => Box::new(counted),
            Packing::Gzip => Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(BUFFER_BYTES, counted))),
            Packing::Zstd => Box::new(zstd::Decoder::new(counted)?),
        })
    }

    /// Whether the file still is as it was when it was opened.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        let error = |error| SourceError::Open { name: self.name.clone(), error };
        let metadata = self.file.metadata().map_err(error)?;
        if metadata.len() != self.bytes || modified(&metadata).map_err(error)? != self.modified {
            return Err(SourceError::Changed(self.name.clone()));
        }
        Ok(())
    }
}

/// What is read of a packed file at a time.
const BUFFER_BYTES: usize = 256 << 10;

fn modified(metadata: &Metadata) -> io::Result<SystemTime> {
    metadata.modified().map(cap_std::time::SystemTime::into_std)
}

struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(to)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
