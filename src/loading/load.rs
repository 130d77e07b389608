//! One load, from the name of a file to the table that answers.

use std::io::Read;
use std::ops::ControlFlow;

use card_table::{Applied, BuildError, Builder, Built, Schema, build};
use thiserror::Error;

use super::change::Changing;
use super::progress::{Phase, Progress};
use super::queue::Job;
use super::source::{Source, SourceError};
use super::stage;
use crate::background;
use crate::cardtable::{CardTable, Load};
use crate::config;
use crate::redis::failure::Failure;
use crate::redis::key::Key;
use crate::redis::note;
use crate::redis::thread::Context;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A list.
    Full,
    /// Changes to a list.
    Delta,
}

/// What is to be loaded.
#[derive(Debug, Clone)]
pub struct Request {
    pub database: i32,
    pub key: Vec<u8>,
    /// The name of a file in `card.load-dir`.
    pub file: Vec<u8>,
    pub kind: Kind,
    pub version: Option<u64>,
    /// Whether it is refused unless its version is newer than that of the table.
    pub newer_only: bool,
}

impl Request {
    pub fn is_same_table(&self, other: &Request) -> bool {
        self.database == other.database && self.key == other.key
    }

    /// What the log calls it.
    fn what(&self) -> String {
        format!("{} from {}", self.key.escape_ascii(), self.file.escape_ascii())
    }

    /// What the table will tell about it.
    fn load(&self, rows: u64) -> Load {
        Load { version: self.version, source: self.file.clone(), rows }
    }

    /// Whether it may take the place of the table that is there.
    pub fn check_newer(&self, table: &CardTable) -> Result<(), LoadError> {
        match self.version.zip(table.load().and_then(|load| load.version)) {
            Some((version, loaded)) if self.newer_only && version <= loaded => {
                Err(LoadError::Stale { version, loaded })
            }
            _ => Ok(()),
        }
    }
}

/// What a load has done.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub rows: u64,
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    pub duplicates: u64,
    pub seconds: f64,
    pub version: Option<u64>,
}

impl Report {
    fn new<T>(request: &Request, built: &Built<T>, applied: Applied) -> Report {
        let Applied { added, changed, removed, .. } = applied;
        let Built { rows, duplicates, .. } = *built;
        Report { rows, added, changed, removed, duplicates, seconds: 0.0, version: request.version }
    }

    fn after(self, progress: &Progress) -> Report {
        Report { seconds: progress.seconds(), ..self }
    }
}

#[derive(Debug, Error)]
pub enum LoadError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{}", .0.to_string().trim_start_matches("ERR "))]
    Refused(#[from] Failure),
    #[error("the file has no cards: a full load of nothing is refused")]
    Empty,
    #[error("there is not enough memory below maxmemory: about {needed} bytes are needed, {free} are free")]
    NoRoom { needed: u64, free: u64 },
    #[error("version {version} is not newer than version {loaded}, which is loaded")]
    Stale { version: u64, loaded: u64 },
    #[error("the server is not a primary any more")]
    NotPrimary,
    #[error("the key cannot be staged in a cluster: its name has a brace that hides its slot")]
    NoStagingKey,
    #[error("the staging key holds something else, or was removed")]
    StagingKeyTaken,
    #[error("there is no table to change: changes need a list that was loaded or written")]
    NothingToChange,
    #[error("the table was removed or replaced while changes to it were loaded")]
    TableGone,
    #[error("a load of this table is running or waiting already")]
    Busy,
    #[error("the load was cancelled")]
    Cancelled,
    #[error("the thread for loads cannot be started")]
    NoThread,
    #[error("internal error, the reason is in the server's log; please report it")]
    Internal,
}

pub fn run(job: &Job, context: &mut Context) -> Result<Report, LoadError> {
    let Job { request, progress } = job;
    let outcome = load(request, progress, context);
    let what = request.what();
    match &outcome {
        Ok(report) => {
            let (rows, seconds) = (report.rows, report.seconds);
            note(&format!("{what}: loaded {rows} rows in {seconds:.1} s"));
        }
        Err(error) => crate::redis::warn(&format!("{what}: not loaded: {error}")),
    }
    outcome
}

fn load(request: &Request, progress: &Progress, context: &mut Context) -> Result<Report, LoadError> {
    let source = Source::open(&config::load_dir(), &request.file)?;
    let (schema, cards) = look_at_the_table(request, &source, context)?;
    match request.kind {
        Kind::Full => replace(request, &source, schema, cards, progress, context),
        Kind::Delta => change(request, &source, schema, progress, context),
    }
}

fn replace(
    request: &Request,
    source: &Source,
    schema: Schema,
    replaced: u64,
    progress: &Progress,
    context: &mut Context,
) -> Result<Report, LoadError> {
    let built = build(request, source, progress, |read| builder(schema, progress).table_from_tsv(read))?;
    if built.result.is_empty() {
        return Err(LoadError::Empty);
    }
    let cards = built.result.len();
    note(&format!("{}: staging {cards} cards", request.what()));
    let report = Report::new(request, &built, Applied { added: cards, removed: replaced, ..Applied::default() });
    stage::replace(request, built.result, request.load(report.rows), progress, context)?;
    Ok(report.after(progress))
}

fn change(
    request: &Request,
    source: &Source,
    schema: Schema,
    progress: &Progress,
    context: &mut Context,
) -> Result<Report, LoadError> {
    let mut changing = Changing::begin(request, &schema, progress, context)?;
    let outcome =
        build(request, source, progress, |read| builder(schema, progress).changes_from_tsv(read)).and_then(|built| {
            note(&format!("{}: staging {} changes", request.what(), built.result.len()));
            let applied = changing.make(&built.result, request.load(built.rows))?;
            Ok(Report::new(request, &built, applied).after(progress))
        });
    if outcome.is_err() {
        changing.give_up();
    }
    outcome
}

/// Reads the file.
fn build<T>(
    request: &Request,
    source: &Source,
    progress: &Progress,
    build: impl FnOnce(Box<dyn Read + Send>) -> Result<Built<T>, BuildError>,
) -> Result<Built<T>, LoadError> {
    progress.enter(Phase::Reading, source.bytes());
    note(&format!("{}: reading {} bytes", request.what(), source.bytes()));
    let built = build(source.reader(progress.done()).map_err(BuildError::Io)?)
        .map_err(|error| if matches!(error, BuildError::Cancelled) { LoadError::Cancelled } else { error.into() })?;
    source.check_unchanged()?;
    if built.bad_rows > 0 {
        let told: Vec<_> = built.problems.iter().map(ToString::to_string).collect();
        note(&format!("{}: {} bad rows were left out: {}", request.what(), built.bad_rows, told.join("; ")));
    }
    Ok(built)
}

/// The schema to build for, and how many cards there are now; and whether a load may begin at all.
fn look_at_the_table(request: &Request, source: &Source, context: &mut Context) -> Result<(Schema, u64), LoadError> {
    context.locked(request.database, |redis| {
        if !redis.is_primary() {
            return Err(LoadError::NotPrimary);
        }
        let (schema, cards, bytes) = redis.call(&[&request.key], |call| {
            let key = Key::read(call, call.argument(0));
            let table = key.get()?;
            if request.kind == Kind::Delta && table.is_none_or(|table| table.ready().is_none()) {
                return Err(LoadError::NothingToChange);
            }
            let Some(table) = table else { return Ok::<_, LoadError>((Schema::default(), 0, 0)) };
            request.check_newer(table)?;
            let bytes = table.bytes() as u64;
            let table = table.table()?;
            Ok((table.schema().clone(), table.len(), bytes))
        })?;
        let limit = redis.info_number(c"memory", c"maxmemory").filter(|&limit| limit > 0);
        if let Some((limit, used)) = limit.zip(redis.info_number(c"memory", c"used_memory")) {
            // A row of 20 digits is 25 bytes in a plain file and 4.7 in a table; a change may touch a block of its own.
            // Packed files may hold anything.
            let table = match request.kind {
                _ if source.is_packed() => 0,
                Kind::Full => source.bytes() / 6,
                Kind::Delta => (source.bytes() / 25).saturating_mul(4096).min(bytes),
            };
            let (needed, free) = (table + config::load_memory() as u64 / 4, limit.saturating_sub(used));
            if needed > free {
                return Err(LoadError::NoRoom { needed, free });
            }
        }
        Ok((schema, cards))
    })
}

fn builder(schema: Schema, progress: &Progress) -> Builder<'_> {
    let told = |told| {
        match told {
            // What has been read of the file is counted where it is read: a packed file is shorter than its rows.
            build::Progress::Reading { rows, .. } => progress.set_rows(rows),
            build::Progress::Merging(done, total) => {
                if progress.phase() != Phase::Merging {
                    progress.enter(Phase::Merging, total);
                }
                progress.set_done(done);
            }
        }
        if progress.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    Builder::new(schema)
        .threads(config::load_threads())
        .sort_bytes(config::load_memory())
        .allow_problems(config::load_max_errors())
        .on_thread_start(background::give_way)
        .on_progress(told)
}

/// The name of the key in which a table is staged, and whether that is in the table's slot, as it must be in a cluster. The
/// slot is named by what is between braces, or by the whole name if there is nothing; a name with a closing brace cannot
/// be put between others.
pub fn staging_key(key: &[u8]) -> (Vec<u8>, bool) {
    const SUFFIX: &[u8] = b".staging";
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&byte| byte == b'}').filter(|&len| len > 0)
    });
    if tag.is_some() {
        ([key, SUFFIX].concat(), true)
    } else if key.contains(&b'}') || key.is_empty() {
        ([key, SUFFIX].concat(), false)
    } else {
        ([b"{", key, b"}", SUFFIX].concat(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::staging_key;

    #[test]
    fn a_staging_key_is_in_the_slot_of_its_table() {
        let name = |key: &str| {
            let (name, in_slot) = staging_key(key.as_bytes());
            (String::from_utf8(name).unwrap(), in_slot)
        };
        for (key, expected) in [
            ("blacklist:0", "{blacklist:0}.staging"),
            ("list:{7}", "list:{7}.staging"),
            ("{a}b{c}", "{a}b{c}.staging"),
            ("a{b", "{a{b}.staging"),
        ] {
            assert_eq!(name(key), (expected.into(), true));
        }
        for key in ["a}b", "a{}b", ""] {
            assert_eq!(name(key), (format!("{key}.staging"), false));
        }
    }
}
