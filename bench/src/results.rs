//! What was measured, what it should have been, and the tables that show both.

use crate::bulk::{self, Bulk};
use crate::data::Set;
use crate::find::{self, Find};
use crate::report::{Grid, Target};
use crate::size::{self, Size};
use crate::speed::{self, Speed};
use crate::verify::{self, Answers};

/// Everything that was measured of one set.
pub struct Measured {
    pub set: Set,
    pub size: Size,
    pub find: Find,
    /// Records a second, from memory.
    pub built: f64,
    pub speed: Speed,
    pub delivered: Option<Delivered>,
    pub answers: Answers,
}

/// What is measured of the delivered set only.
pub struct Delivered {
    pub bulk: Bulk,
    pub grown: Size,
    /// Inserts a second into a table that was empty.
    pub growth: f64,
}

impl Measured {
    fn size_target(&self) -> Option<Target> {
        let (than, at_most) = match self.set {
            Set::Uniform | Set::Net => ("limit", 1.03),
            Set::Issued => ("limit", 1.15),
            Set::Cookies => ("raw ids", 0.95),
            Set::Onevalue | Set::Hex32 => return None,
        };
        Some(Target { what: format!("{}: memory / {than}", self.set), measured: self.size.ratio(), at_most })
    }

    /// What must hold in every run, on any machine.
    pub fn certainties(&self) -> Vec<Target> {
        let sizes = [Some(&self.size), self.delivered.as_ref().map(|delivered| &delivered.grown)];
        let disagreements = sizes.into_iter().flatten().map(Size::disagreement);
        vec![
            Target { what: format!("{}: wrong answers", self.set), measured: self.answers.wrong as f64, at_most: 0.0 },
            Target {
                what: format!("{}: memory() / allocator, off by", self.set),
                measured: disagreements.fold(0.0, f64::max),
                at_most: size::MAX_DISAGREEMENT,
            },
        ]
    }

    pub fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<_> = self.size_target().into_iter().collect();
        if let Some(delivered) = &self.delivered {
            let target =
                |what: &str, measured, at_most| Target { what: format!("{}: {what}", self.set), measured, at_most };
            targets.extend([
                delivered.grown_target(self.set),
                target("find a listed card / HashMap, one at a time", self.find.listed.alone.ratio(), 3.0),
                target("find an unlisted card / HashMap, one at a time", self.find.unlisted.alone.ratio(), 3.0),
                target("find a listed card / HashMap, in a row", self.find.listed.in_a_row.ratio(), 3.0),
                target("find an unlisted card / HashMap, in a row", self.find.unlisted.in_a_row.ratio(), 3.0),
                target("find listed cards by get_many / HashMap, in a row", self.find.listed.together.ratio(), 3.0),
                target("find unlisted cards by get_many / HashMap, in a row", self.find.unlisted.together.ratio(), 3.0),
                target("build / parse and sort", delivered.bulk.time_ratio(), 2.0),
                target("peak of build / allowed", delivered.bulk.peak_ratio(), 1.0),
            ]);
        }
        targets.extend(self.certainties());
        targets
    }
}

impl Delivered {
    fn grown_target(&self, set: Set) -> Target {
        Target {
            what: format!("{set}: memory / limit, grown by single inserts"),
            measured: self.grown.ratio(),
            at_most: 1.2,
        }
    }
}

pub fn grids(measured: &[Measured]) -> Vec<Grid> {
    vec![
        Grid {
            title: "Memory",
            head: &size::HEAD,
            rows: measured.iter().flat_map(size_rows).collect(),
            note: "Bytes a record: what jemalloc frees when the table is dropped, of which payload (the blocks' content), \
                   slack (what their allocations have beyond) and directory; memory() is the table's own accounting. \
                   The limit is log2 C(possible ids, records) bits and the entropy of the values; for cookies it is \
                   the raw bytes of the ids, without values. Of onevalue, the values have no entropy. Of hex32, nearly \
                   all is the ids' own randomness.",
        },
        Grid {
            title: "Finding a card, one at a time",
            head: &find::ALONE_HEAD,
            rows: rows(measured, |of| of.find.alone_cells(of.set.to_string())),
            note: "Beside std's `HashMap<u128, u8>` (for cookies `HashMap<Box<[u8]>, u8>`) of the same cards, asked for the \
                   same cards in the same random order: median of five alternating rounds of two million. A find begins \
                   when the one before has ended (a fence between them), as a server is asked. Ids are parsed before.",
        },
        Grid {
            title: "Finding cards in a row",
            head: &find::IN_A_ROW_HEAD,
            rows: rows(measured, |of| of.find.in_a_row_cells(of.set.to_string())),
            note: "The same without the fence. A processor then begins the next lookup of a HashMap, which is short, while \
                   one waits for memory; a find in a table is too long for that. get_many, asked for 100 cards at a time, \
                   has several wait together.",
        },
        Grid {
            title: "Building from a file",
            head: &bulk::HEAD,
            rows: measured.iter().filter_map(bulk_row).collect(),
            note: "Beside parsing the same file with the same parser on as many threads and sorting each thread's rows. \
                   The peak is that of a process that only builds (VmHWM, without that of an idle process); allowed \
                   are 1.25 finished tables and the memory for sorting.",
        },
        Grid {
            title: "Writing, reading, changing",
            head: &speed::HEAD,
            rows: measured.iter().flat_map(speed_rows).collect(),
            note: "Million records a second. Build is from records in memory. Insert and remove are single cards; apply \
                   is a delta of a hundredth of the list: half additions, a quarter changes, a quarter removals.",
        },
        Grid {
            title: "Exactness",
            head: &verify::HEAD,
            rows: rows(measured, |of| of.answers.cells(of.set.to_string())),
            note: "Every listed card is asked for, and as many unlisted ones, each between two listed ones.",
        },
        Grid {
            title: "Targets",
            head: &Target::HEAD,
            rows: measured.iter().flat_map(Measured::targets).map(|target| target.cells()).collect(),
            note: "",
        },
    ]
}

fn rows(measured: &[Measured], row: impl Fn(&Measured) -> Vec<String>) -> Vec<Vec<String>> {
    measured.iter().map(row).collect()
}

fn size_rows(of: &Measured) -> Vec<Vec<String>> {
    let mut rows = vec![of.size.cells(of.set.to_string(), of.size_target().as_ref())];
    if let Some(delivered) = &of.delivered {
        let target = delivered.grown_target(of.set);
        rows.push(delivered.grown.cells(format!("{}, grown", of.set), Some(&target)));
    }
    rows
}

fn bulk_row(of: &Measured) -> Option<Vec<String>> {
    let delivered = of.delivered.as_ref()?;
    Some(delivered.bulk.cells(of.set.to_string()))
}

fn speed_rows(of: &Measured) -> Vec<Vec<String>> {
    let mut rows = vec![of.speed.cells(of.set.to_string(), of.built)];
    if let Some(delivered) = &of.delivered {
        rows.push(speed::growth_cells(format!("{}, growing", of.set), delivered.growth));
    }
    rows
}
