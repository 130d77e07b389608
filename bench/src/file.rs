//! Lists as files, as they are delivered.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use card_table::Id;

pub fn spelt(id: &Id) -> String {
    String::from_utf8(id.to_bytes()).expect("digits")
}

/// Writes records of the default schema.
pub fn write_list<'a>(path: &Path, records: impl Iterator<Item = (Id<'a>, u128)>) -> io::Result<()> {
    let mut out = begin(path, "")?;
    for (id, symbol) in records {
        write_row(&mut out, "", &id, symbol)?;
    }
    finish(out)
}

/// A file with its header, before which there may be a column.
pub fn begin(path: &Path, before: &str) -> io::Result<BufWriter<File>> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    writeln!(out, "{before}cardId\ttype\tstatus")?;
    Ok(out)
}

pub fn write_row(out: &mut impl Write, before: &str, id: &Id, symbol: u128) -> io::Result<()> {
    // In the default schema, statuses are 1 and 2.
    writeln!(out, "{before}{}\t{}\t{}", spelt(id), symbol / 2, symbol % 2 + 1)
}

/// On the disk, so that the kernel does not write it while something is measured.
pub fn finish(out: BufWriter<File>) -> io::Result<()> {
    out.into_inner()?.sync_data()
}
