//! The memory that a first load takes, beside the table that comes of it.

use std::io;

use card_bench::measure::tell;
use card_bench::report::{Grid, Target, fixed, mebibytes};

use crate::files::Files;
use crate::{House, load};

/// A load may take the finished table so many times, and the memory for sorting.
const ALLOWED_TABLES: f64 = 1.25;

/// `card.load-memory`, as it is by default.
const LOAD_MEMORY: f64 = (256 << 20) as f64;

pub struct Peak {
    empty: f64,
    table: f64,
    peak: f64,
}

pub fn measure(house: &House, files: &Files) -> io::Result<Peak> {
    tell("the memory of a first load");
    let server = house.server(&[])?;
    let (empty, used) = (server.resident()? as f64, server.used_memory()? as f64);
    load(&server, &files.full, &[])?;
    Ok(Peak { empty, table: server.used_memory()? as f64 - used, peak: server.peak()? as f64 })
}

impl Peak {
    fn allowed(&self) -> f64 {
        ALLOWED_TABLES * self.table + LOAD_MEMORY + self.empty
    }

    pub fn target(&self) -> Target {
        Target { what: "peak of a first load / allowed".into(), measured: self.peak / self.allowed(), at_most: 1.0 }
    }

    pub fn grid(&self) -> Grid {
        Grid {
            title: "Memory of a first load",
            head: &["empty server MiB", "table MiB", "peak MiB", "allowed MiB", "ratio"],
            rows: vec![vec![
                mebibytes(self.empty),
                mebibytes(self.table),
                mebibytes(self.peak),
                mebibytes(self.allowed()),
                fixed(self.peak / self.allowed()),
            ]],
            note: "The most that the server has had (VmHWM). Allowed are 1.25 finished tables, `card.load-memory` (256 MiB) and the empty server.",
        }
    }
}
