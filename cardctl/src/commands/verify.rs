//! `cardctl verify`: proof that a table is what its list says.
//!
//! Every row of the list is asked back, and as many ids that are not in it; and the digests of list and table are compared. The
//! list is built into a table here first: that tells which row of a card counts, and which ids are not in the list.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use card_table::tsv::{Layout, Page, Reader};
use card_table::{Id, Table};
use fastrand::Rng;
use indicatif::HumanCount;
use redis::Value;
use serde_json::json;

use crate::console::{Console, Report, shown};
use crate::failure::Failure;
use crate::list::{List, Means};
use crate::server::{self, Server, ServerArgs, bytes};

/// The cards in one `CARD.MGET`, and the commands that are sent before an answer is waited for.
const IDS_AT_A_TIME: usize = 500;
const COMMANDS_AT_ONCE: usize = 20;

/// How often another id is made of a row's, until one is not in the list. In a list that has all there are of a kind, none is.
const TRIES: usize = 20;

/// How many differences are shown.
const SHOWN: usize = 10;

/// Compare a table with its list: every row, as many ids that are not in it, and the digests
///
/// Exits with 1 if anything differs. Of a list of changes, with a column op, only the rows are compared: cards that are set, and
/// cards that are removed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A list; .gz and .zst are unpacked
    file: PathBuf,
    /// The key of the table
    #[arg(long, value_name = "KEY")]
    table: OsString,
    #[command(flatten)]
    means: Means,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Default)]
struct Findings {
    /// Rows that were asked back, and ids that are not in the list.
    checked: u64,
    absent_checked: u64,
    /// Other values, not found, found although it should not be.
    wrong: u64,
    missing: u64,
    unexpected: u64,
    first: Vec<Difference>,
}

#[derive(Debug)]
struct Difference {
    id: Vec<u8>,
    expected: Option<Vec<u128>>,
    found: Option<Vec<u128>>,
}

/// The digests of a list and of the table, before and after.
struct Digests {
    listed: String,
    before: String,
    after: Option<String>,
}

impl Args {
    pub fn run(&self, console: Console) -> Result<Report, Failure> {
        let key = bytes(&self.table);
        let list = List::new(&self.file)?;
        if !list.is_regular() {
            return Err(Failure::file(&self.file, "is not a regular file, and has to be read twice"));
        }
        let mut server = self.server.connect()?;
        let table = server.ready_table(&key)?;
        let listed = list.build(&table.schema, self.means, console)?.result;
        let reader = list.rows(&table.schema, "verifying", console)?;
        let is_changes = reader.layout().has_op();

        let comparison = Comparison { key: &key, table: &table, listed: &listed, list: &list, is_changes };
        let findings = comparison.run(reader, &server, self.means.threads())?;
        list.check_unchanged()?;
        let digests = Digests {
            listed: format!("{:032x}", listed.digest()),
            after: server.find_table(&key)?.map(|table| table.digest),
            before: table.digest,
        };
        Ok(report(&findings, &digests, is_changes))
    }
}

fn report(findings: &Findings, digests: &Digests, is_changes: bool) -> Report {
    let Findings { checked, absent_checked, wrong, missing, unexpected, first } = findings;
    let changed = digests.after.as_ref() != Some(&digests.before);
    let same_digest = (!is_changes).then(|| digests.listed == digests.before);
    let fine = wrong + missing + unexpected == 0 && !changed && same_digest != Some(false);

    let mut lines = vec![
        format!("{} rows asked: {} wrong, {} missing", HumanCount(*checked), HumanCount(*wrong), HumanCount(*missing)),
        format!(
            "{} ids asked that are not in the list: {} unexpected",
            HumanCount(*absent_checked),
            HumanCount(*unexpected)
        ),
    ];
    lines.extend(same_digest.map(|same| match same {
        true => format!("the digest of list and table is {}", digests.listed),
        false => format!("the digests differ: {} of the list, {} of the table", digests.listed, digests.before),
    }));
    if changed {
        lines.push("the table changed meanwhile".into());
    }
    lines.extend(first.iter().map(Difference::to_string));
    lines.push(if fine { "all is as it should be".into() } else { "the table is not as the list says".into() });
    let json = json!({
        "fine": fine,
        "checked": checked,
        "absent_checked": absent_checked,
        "wrong": wrong,
        "missing": missing,
        "unexpected": unexpected,
        "list_digest": digests.listed,
        "table_digest": digests.before,
        "same_digest": same_digest,
        "changed_meanwhile": changed,
        "differences": first.iter().map(Difference::to_string).collect::<Vec<_>>(),
    });
    Report { text: lines.join("\n"), json, fine }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let values = |values: &Option<Vec<u128>>| match values {
            Some(values) => values.iter().map(u128::to_string).collect::<Vec<_>>().join(" "),
            None => "no card".into(),
        };
        write!(f, "{}: expected {}, found {}", shown(&self.id), values(&self.expected), values(&self.found))
    }
}

/// What is compared with what.
struct Comparison<'a> {
    key: &'a [u8],
    table: &'a server::Table,
    listed: &'a Table,
    list: &'a List,
    is_changes: bool,
}

/// Pages of the list, taken by one thread after the other.
type Pages = Mutex<Reader<Box<dyn Read + Send>>>;

/// Ids to be asked for, and the symbol each should have.
type Questions = Vec<(Vec<u8>, Option<u128>)>;

impl Comparison<'_> {
    /// Several threads ask, so that the server has something to do while one of them compares.
    fn run(&self, reader: Reader<Box<dyn Read + Send>>, server: &Server, threads: usize) -> Result<Findings, Failure> {
        let layout = reader.layout().clone();
        let pages: Pages = Mutex::new(reader);
        let servers = (0..threads).map(|_| server.another()).collect::<Result<Vec<_>, _>>()?;
        thread::scope(|scope| {
            let work = |server| self.work(&pages, &layout, server);
            let threads: Vec<_> = servers.into_iter().map(|server| scope.spawn(move || work(server))).collect();
            let found = threads.into_iter().map(|thread| thread.join().expect("comparing does not panic"));
            found.collect::<Result<Vec<_>, _>>().map(|found| found.into_iter().fold(Findings::default(), Findings::add))
        })
    }

    fn work(&self, pages: &Pages, layout: &Layout, mut server: Server) -> Result<Findings, Failure> {
        let mut findings = Findings::default();
        let mut unlisted = Unlisted { listed: self.listed, rng: Rng::new(), owed: 0 };
        let next = || pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next_page();
        while let Some(page) = next().map_err(|error| Failure::file(self.list.path(), error))? {
            let questions = self.questions(&page, layout, &mut unlisted, &mut findings)?;
            for some in questions.chunks(IDS_AT_A_TIME * COMMANDS_AT_ONCE) {
                self.ask(some, &mut server, &mut findings)?;
            }
        }
        Ok(findings)
    }

    /// All rows of a page, and as many ids that are not in the list.
    fn questions(
        &self,
        page: &Page,
        layout: &Layout,
        unlisted: &mut Unlisted,
        findings: &mut Findings,
    ) -> Result<Questions, Failure> {
        let rows = page.rows(layout).map(|row| row.map(|row| row.id)).collect::<Result<Vec<_>, _>>();
        let ids = rows.map_err(|problem| Failure::file(self.list.path(), problem))?;
        findings.checked += ids.len() as u64;
        let mut questions: Questions = ids.iter().map(Id::to_bytes).zip(self.listed.get_many(&ids)).collect();
        if !self.is_changes {
            let absent: Vec<_> = questions.iter().flat_map(|(id, _)| unlisted.like(id)).collect();
            findings.absent_checked += absent.len() as u64;
            questions.extend(absent.into_iter().map(|id| (id, None)));
        }
        Ok(questions)
    }

    fn ask(
        &self,
        questions: &[(Vec<u8>, Option<u128>)],
        server: &mut Server,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let mut commands = redis::pipe();
        for some in questions.chunks(IDS_AT_A_TIME) {
            let command = commands.cmd("CARD.MGET").arg(self.key);
            some.iter().for_each(|(id, _)| {
                command.arg(id);
            });
        }
        let answers: Vec<Vec<Option<Vec<Value>>>> = server.ask_all(&commands)?;
        if answers.iter().map(Vec::len).sum::<usize>() != questions.len() {
            return Err(server.refused("its answer to CARD.MGET is not understood"));
        }
        for ((id, expected), values) in questions.iter().zip(answers.into_iter().flatten()) {
            let found = match values {
                Some(values) => Some(
                    self.table
                        .symbol(values)
                        .ok_or_else(|| server.refused("the values of a card are not understood"))?,
                ),
                None => None,
            };
            if found != *expected {
                let values = |symbol: Option<u128>| symbol.map(|symbol| self.table.schema.unpack(symbol));
                findings.note(Difference { id: id.clone(), expected: values(*expected), found: values(found) });
            }
        }
        Ok(())
    }
}

impl Findings {
    fn note(&mut self, difference: Difference) {
        match (&difference.expected, &difference.found) {
            (Some(_), Some(_)) => self.wrong += 1,
            (Some(_), None) => self.missing += 1,
            (None, _) => self.unexpected += 1,
        }
        if self.first.len() < SHOWN {
            self.first.push(difference);
        }
    }

    fn add(self, other: Findings) -> Findings {
        Findings {
            checked: self.checked + other.checked,
            absent_checked: self.absent_checked + other.absent_checked,
            wrong: self.wrong + other.wrong,
            missing: self.missing + other.missing,
            unexpected: self.unexpected + other.unexpected,
            first: self.first.into_iter().chain(other.first).take(SHOWN).collect(),
        }
    }
}

/// Makes ids that are not in the list: as many as it has rows, if there are so many.
struct Unlisted<'a> {
    listed: &'a Table,
    rng: Rng,
    /// How many were not found so far.
    owed: usize,
}

impl Unlisted<'_> {
    /// One for this id, and those that are owed.
    fn like(&mut self, id: &[u8]) -> Vec<Vec<u8>> {
        self.owed += 1;
        let found: Vec<_> = (0..self.owed).map_while(|_| self.one_like(id)).collect();
        self.owed -= found.len();
        found
    }

    /// An id of the same shape: a few characters are others of their kind.
    fn one_like(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        let mut other = id.to_vec();
        (0..TRIES).find_map(|_| {
            let at = self.rng.usize(..other.len());
            other[at] = match other[at] {
                b'0'..=b'9' => self.rng.u8(b'0'..=b'9'),
                b'a'..=b'f' => self.rng.u8(b'a'..=b'f'),
                b'A'..=b'F' => self.rng.u8(b'A'..=b'F'),
                b'-' => b'-',
                _ => self.rng.u8(b'G'..=b'Z'),
            };
            let is_listed = Id::parse(&other).ok().and_then(|id| self.listed.get(&id)).is_some();
            (!is_listed).then(|| other.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use card_table::Schema;

    fn table(ids: &[&str]) -> Table {
        let mut table = Table::new(Schema::default());
        ids.iter().for_each(|id| _ = table.insert(&Id::parse(id.as_bytes()).unwrap(), 0));
        table
    }

    #[test]
    fn an_unlisted_id_has_the_shape_of_a_listed_one() {
        let ids = ["44015186100181001473", "beef", "BEEF", "123e4567-e89b-12d3-a456-426614174000", "cookie x", "7"];
        let listed = table(&ids);
        let mut unlisted = Unlisted { listed: &listed, rng: Rng::with_seed(1), owed: 0 };
        for id in ids {
            for _ in 0..100 {
                let other = unlisted.one_like(id.as_bytes()).expect("there are others");
                assert_eq!(other.len(), id.len());
                assert_eq!(listed.get(&Id::parse(&other).unwrap()), None);
                assert!(!other.contains(&b'\t') && !other.contains(&b'\n'));
            }
        }
    }

    #[test]
    fn where_every_id_is_listed_none_is_found_and_another_makes_up_for_it() {
        let listed = table(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "44015186100181001473"]);
        let mut unlisted = Unlisted { listed: &listed, rng: Rng::with_seed(1), owed: 0 };
        assert_eq!(unlisted.like(b"7"), [[0; 0]; 0]);
        assert_eq!(unlisted.like(b"8"), [[0; 0]; 0]);
        assert_eq!(unlisted.like(b"44015186100181001473").len(), 3);
    }
}
