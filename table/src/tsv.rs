//! Parameter files: tab-separated tables with a header.
//!
//! ```text
//! cardId → type → status
//! 44016758092746254872 → 7 → 2
//! ```
//!
//! The header names `cardId` and every field of the schema, in any order, and may name `op`, whose rows say `set` or
//! `del`. (A schema with a field `op` has no such column.) Lines end in LF or CRLF, the last one may end without, and a
//! byte order mark before the header is passed over. Nothing is guessed: a row that is not exactly right is a
//! [`Problem`] that tells where it is, what was found and what was expected.
//!
//! [`Reader`] cuts a file into [`Page`]s of whole lines, which can be parsed in parallel.

use std::fmt;
use std::io::{self, Read};
use thiserror::Error;

use crate::id::Id;
use crate::schema::Schema;

/// A longer line is a problem, not an allocation.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// How much is read at a time: enough rows to be worth a thread's while, few enough to stay in its cache.
const PAGE_BYTES: usize = 4 * MAX_LINE_BYTES;

/// How much of what was found is shown.
const SHOWN_BYTES: usize = 60;

const ID_COLUMN: &str = "cardId";
const OP_COLUMN: &str = "op";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct Problem {
    /// Counted from 1; the header is line 1.
    pub line: u64,
    /// The column's name; none if the line as a whole is wrong.
    pub column: Option<String>,
    pub found: String,
    pub expected: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(column) = &self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": found {}, expected {}", self.found, self.expected)
    }
}

#[derive(Debug, Error)]
pub enum TsvError {
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// A row: a card and its new symbol, or no symbol if the card is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'a> {
    pub id: Id<'a>,
    pub symbol: Option<u128>,
    /// Where the row begins in the file; rows are ordered by it.
    pub offset: u64,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Id,
    /// A field of the schema and how much one step of it adds to the symbol.
    Field {
        at: usize,
        weight: u128,
    },
    Op,
}

/// The columns of a file.
#[derive(Debug, Clone)]
pub struct Layout {
    schema: Schema,
    columns: Vec<Column>,
}

impl Layout {
    /// Reads a header line.
    fn parse(line: &[u8], schema: &Schema) -> Result<Layout, Problem> {
        let problem = || {
            let names: Vec<_> = schema.fields().iter().map(|field| field.name.as_str()).collect();
            Problem {
                line: 1,
                column: None,
                found: quoted(line),
                expected: format!("a header with the columns {ID_COLUMN}, {}", names.join(", ")),
            }
        };
        let column = |name: &[u8]| {
            let field = schema.fields().iter().position(|field| field.name.as_bytes() == name);
            match field {
                Some(at) => Some(Column::Field { at, weight: schema.weight(at) }),
                None if name == ID_COLUMN.as_bytes() => Some(Column::Id),
                None if name == OP_COLUMN.as_bytes() => Some(Column::Op),
                None => None,
            }
        };
        let columns: Vec<Column> =
            line.split(|&b| b == b'\t').map(column).collect::<Option<_>>().ok_or_else(problem)?;
        let once = |column: &Column| columns.iter().filter(|other| *other == column).count() == 1;
        let needed = 1 + schema.fields().len();
        let given = columns.iter().filter(|column| **column != Column::Op).count();
        if given != needed || !columns.iter().all(once) {
            return Err(problem());
        }
        Ok(Layout { schema: schema.clone(), columns })
    }

    /// Whether rows say what is done with their cards: then the file is a list of changes.
    pub fn has_op(&self) -> bool {
        self.columns.contains(&Column::Op)
    }

    fn name(&self, column: &Column) -> &str {
        match column {
            Column::Id => ID_COLUMN,
            Column::Field { at, .. } => &self.schema.fields()[*at].name,
            Column::Op => OP_COLUMN,
        }
    }

    /// Reads a line without its end.
    fn parse_row<'a>(&self, line: &'a [u8], number: u64, offset: u64) -> Result<Row<'a>, Problem> {
        if line.len() > MAX_LINE_BYTES {
            return Err(too_long(number));
        }
        if line.is_empty() {
            return Err(self.wrong_count(line, number));
        }
        let mut rest = Some(line);
        let (mut id, mut symbol, mut blanks, mut removes) = (None, 0, 0, false);
        for (at, column) in self.columns.iter().enumerate() {
            let text = match rest {
                Some(text) => text,
                None => return Err(self.wrong_count(line, number)),
            };
            let text = match memchr::memchr(b'\t', text) {
                Some(tab) => {
                    rest = Some(&text[tab + 1..]);
                    &text[..tab]
                }
                None => {
                    rest = None;
                    text
                }
            };
            if rest.is_some() && at + 1 == self.columns.len() {
                return Err(self.wrong_count(line, number));
            }
            let problem = |expected: String| Problem {
                line: number,
                column: Some(self.name(column).into()),
                found: quoted(text),
                expected,
            };
            match column {
                Column::Id => id = Some(Id::parse(text).map_err(|_| problem("1 to 4096 bytes".into()))?),
                Column::Field { .. } if text.is_empty() => blanks += 1,
                Column::Field { at, weight } => {
                    let field = &self.schema.fields()[*at];
                    let value = field
                        .parse(text)
                        .map_err(|_| problem(format!("a number between {} and {}", field.min, field.max)))?;
                    symbol += (value - field.min) * weight;
                }
                Column::Op => match text {
                    b"set" => {}
                    b"del" => removes = true,
                    _ => return Err(problem("set or del".into())),
                },
            }
        }
        if blanks > 0 && !removes {
            return Err(self.blank(line, number));
        }
        let id = id.expect("every layout has an id");
        Ok(Row { id, symbol: (!removes).then_some(symbol), offset })
    }

    fn wrong_count(&self, line: &[u8], number: u64) -> Problem {
        let found = if line.is_empty() {
            "an empty line".into()
        } else {
            format!("{} columns in {}", 1 + memchr::memchr_iter(b'\t', line).count(), quoted(line))
        };
        Problem { line: number, column: None, found, expected: format!("{} columns", self.columns.len()) }
    }

    /// A field is blank although the card is not removed.
    fn blank(&self, line: &[u8], number: u64) -> Problem {
        let mut columns = self.columns.iter().zip(line.split(|&b| b == b'\t'));
        let blank = columns.find_map(|(column, text)| match column {
            Column::Field { at, .. } if text.is_empty() => Some(&self.schema.fields()[*at]),
            _ => None,
        });
        let field = blank.expect("a field is blank");
        Problem {
            line: number,
            column: Some(field.name.clone()),
            found: "nothing".into(),
            expected: format!("a number between {} and {}", field.min, field.max),
        }
    }
}

fn too_long(line: u64) -> Problem {
    Problem {
        line,
        column: None,
        found: format!("more than {MAX_LINE_BYTES} bytes"),
        expected: format!("at most {MAX_LINE_BYTES}"),
    }
}

/// What was found, made printable and not too long.
fn quoted(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii();
    let more = if bytes.len() > SHOWN_BYTES { "…" } else { "" };
    format!("'{shown}{more}'")
}

/// Some whole lines of a file.
#[derive(Debug)]
pub struct Page {
    bytes: Vec<u8>,
    first_line: u64,
    offset: u64,
}

impl Page {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The page's rows, or what is wrong with them.
    pub fn rows<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = Result<Row<'a>, Problem>> {
        let mut at = 0;
        let mut number = self.first_line;
        std::iter::from_fn(move || {
            let text = self.bytes.get(at..).filter(|text| !text.is_empty())?;
            let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
            let row = layout.parse_row(without_cr(&text[..end]), number, self.offset + at as u64);
            at += end + 1;
            number += 1;
            Some(row)
        })
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A file, cut into pages.
pub struct Reader<R> {
    source: R,
    layout: Layout,
    /// The beginning of a line whose end has not been read yet.
    begun: Vec<u8>,
    next_line: u64,
    offset: u64,
    ended: bool,
    /// Whether what comes next belongs to a line that is too long.
    skips: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(source: R, schema: &Schema) -> Result<Reader<R>, TsvError> {
        let layout = Layout { schema: schema.clone(), columns: Vec::new() };
        let mut reader =
            Reader { source, layout, begun: Vec::new(), next_line: 1, offset: 0, ended: false, skips: false };
        let mut bytes = reader.read_some()?;
        if bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
            reader.offset += BYTE_ORDER_MARK.len() as u64;
        }
        let end = memchr::memchr(b'\n', &bytes).unwrap_or(bytes.len());
        let header = without_cr(&bytes[..end]);
        if header.len() > MAX_LINE_BYTES {
            return Err(too_long(1).into());
        }
        reader.layout = Layout::parse(header, schema)?;
        let rest = bytes.get(end + 1..).unwrap_or_default();
        reader.offset += (bytes.len() - rest.len()) as u64;
        reader.begun = rest.to_vec();
        reader.next_line = 2;
        Ok(reader)
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What was begun, and then as much as makes a page.
    fn read_some(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.begun);
        if !self.ended && bytes.len() < PAGE_BYTES {
            let wanted = PAGE_BYTES - bytes.len();
            bytes.reserve_exact(wanted);
            let got = self.source.by_ref().take(wanted as u64).read_to_end(&mut bytes)?;
            self.ended = got < wanted;
        }
        Ok(bytes)
    }

    /// The next page; none at the end of the file. Of a line that is longer than a page, the first has the beginning: that
    /// is too long already. What is left of the line is skipped, and pages without rows come meanwhile.
    pub fn next_page(&mut self) -> io::Result<Option<Page>> {
        let mut bytes = self.read_some()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if self.skips {
            let end = memchr::memchr(b'\n', &bytes);
            let rest = bytes.split_off(end.map_or(bytes.len(), |end| end + 1));
            self.skips = end.is_none();
            self.offset += bytes.len() as u64;
            self.next_line += u64::from(end.is_some());
            self.begun = rest;
            return Ok(Some(Page { first_line: self.next_line, offset: self.offset, bytes: Vec::new() }));
        }
        if !self.ended {
            match memchr::memrchr(b'\n', &bytes) {
                Some(end) => self.begun = bytes.split_off(end + 1),
                None => self.skips = true,
            }
        }
        let page = Page { first_line: self.next_line, offset: self.offset, bytes };
        self.next_line += memchr::memchr_iter(b'\n', &page.bytes).count() as u64;
        self.offset += page.len() as u64;
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Field;

    type Rows = Vec<(String, Option<u128>)>;

    fn read(text: impl AsRef<[u8]>) -> Result<Rows, String> {
        read_with(text, &Schema::default())
    }

    fn read_with(text: impl AsRef<[u8]>, schema: &Schema) -> Result<Rows, String> {
        let mut reader = Reader::new(text.as_ref(), schema).map_err(|error| error.to_string())?;
        let mut rows = Vec::new();
        while let Some(page) = reader.next_page().map_err(|error| error.to_string())? {
            for row in page.rows(reader.layout()) {
                let row = row.map_err(|problem| problem.to_string())?;
                rows.push((String::from_utf8(row.id.to_bytes()).unwrap(), row.symbol));
            }
        }
        Ok(rows)
    }

    #[test]
    fn the_seeds_file_is_read() {
        let text = "cardId\ttype\tstatus\n44016758092746254872\t7\t2\n45018537070476554829\t6\t2\n";
        let rows = [("44016758092746254872".into(), Some(15)), ("45018537070476554829".into(), Some(13))];
        assert_eq!(read(text).unwrap(), rows);
        assert_eq!(read(text.replace('\n', "\r\n")).unwrap(), rows);
        assert_eq!(read(text.trim_end()).unwrap(), rows);
        assert_eq!(read(format!("\u{feff}{text}")).unwrap(), rows);
        assert_eq!(read("cardId\ttype\tstatus").unwrap(), []);
    }

    #[test]
    fn columns_come_in_any_order_with_or_without_op() {
        let rows = read("status\top\tcardId\ttype\n2\tset\ta\t7\n\tdel\tb\t\n1\tdel\tc\t0\n").unwrap();
        assert_eq!(rows, [("a".into(), Some(15)), ("b".into(), None), ("c".into(), None)]);
    }

    #[test]
    fn a_schema_may_have_a_field_named_op() {
        let schema = Schema::new(vec![Field::new("op", 0, 9)]).unwrap();
        assert_eq!(read_with("op\tcardId\n5\tx\n", &schema).unwrap(), [("x".into(), Some(5))]);
    }

    #[test]
    fn headers_that_do_not_fit_the_schema_are_refused() {
        for header in [
            "",
            "\n",
            "cardId",
            "cardId\ttype",
            "cardid\ttype\tstatus",
            "cardId\ttype\tstatus\tmore",
            "cardId\ttype\ttype",
            "cardId\ttype\tstatus\tstatus",
            "cardId\ttype\tstatus\top\top",
            "44016758092746254872\t7\t2",
            "cardId,type,status",
        ] {
            let error = read(header).unwrap_err();
            assert!(error.ends_with("expected a header with the columns cardId, type, status"), "{error}");
        }
    }

    #[test]
    fn a_bad_row_tells_line_column_found_and_expected() {
        let bad = |row: &str| read(format!("cardId\ttype\tstatus\n1\t1\t1\n{row}\n2\t2\t2\n")).unwrap_err();
        assert_eq!(bad("1\t11\t1"), "line 3, column type: found '11', expected a number between 0 and 10");
        assert_eq!(bad("1\t1\t0"), "line 3, column status: found '0', expected a number between 1 and 2");
        assert_eq!(bad("1\t-1\t1"), "line 3, column type: found '-1', expected a number between 0 and 10");
        assert_eq!(bad("1\t1 \t1"), "line 3, column type: found '1 ', expected a number between 0 and 10");
        assert_eq!(bad("1\t\t1"), "line 3, column type: found nothing, expected a number between 0 and 10");
        assert_eq!(bad("\t1\t1"), "line 3, column cardId: found '', expected 1 to 4096 bytes");
        assert_eq!(bad("1\t1"), "line 3: found 2 columns in '1\\t1', expected 3 columns");
        assert_eq!(bad("1\t1\t1\t"), "line 3: found 4 columns in '1\\t1\\t1\\t', expected 3 columns");
        assert_eq!(bad(""), "line 3: found an empty line, expected 3 columns");
        assert_eq!(bad("1\t99999999999999999999999999999999999999999999\t1").split(',').count(), 3);
        let op = read("cardId\ttype\tstatus\top\n1\t1\t1\tSET\n").unwrap_err();
        assert_eq!(op, "line 2, column op: found 'SET', expected set or del");
    }

    #[test]
    fn a_long_line_is_a_problem_wherever_it_ends() {
        for len in [MAX_LINE_BYTES + 1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES * 3] {
            for end in ["", "\n", "\n1\t1\t1\n"] {
                let text = format!("cardId\ttype\tstatus\n1\t1\t1\n{}{end}", "x".repeat(len));
                assert_eq!(read(text).unwrap_err(), "line 3: found more than 65536 bytes, expected at most 65536");
            }
        }
        assert_eq!(read("x".repeat(MAX_LINE_BYTES + 1)).unwrap_err(), too_long(1).to_string());
    }

    #[test]
    fn reading_goes_on_after_a_long_line() {
        for len in [PAGE_BYTES - 27, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES * 3] {
            let text = format!("cardId\ttype\tstatus\n1\t1\t1\n{}\n2\t2\t2\n", "x".repeat(len));
            let mut reader = Reader::new(text.as_bytes(), &Schema::default()).unwrap();
            let layout = reader.layout().clone();
            let pages: Vec<Page> = std::iter::from_fn(|| reader.next_page().unwrap()).collect();
            let rows: Vec<_> = pages.iter().flat_map(|page| page.rows(&layout)).collect();
            let [Ok(first), Err(long), Ok(last)] = rows.as_slice() else { panic!("{rows:?}") };
            assert_eq!((first.offset, last.offset), (19, text.len() as u64 - 6));
            assert_eq!(*long, too_long(3));
        }
    }

    #[test]
    fn pages_hold_whole_lines_and_count_on() {
        let row = |i: usize| format!("{i}\t{}\t{}\n", i % 11, 1 + i % 2);
        let text = (0..100_000).map(row).fold("cardId\ttype\tstatus\n".to_owned(), |text, row| text + &row);
        let rows = read(&text).unwrap();
        assert_eq!(rows.len(), 100_000);
        assert!(
            rows.iter()
                .enumerate()
                .all(|(i, (id, symbol))| { *id == i.to_string() && *symbol == Some((i % 11 * 2 + i % 2) as u128) })
        );
        let error = read(text + "bad\n").unwrap_err();
        assert_eq!(error, "line 100002: found 1 columns in 'bad', expected 3 columns");
    }
}
