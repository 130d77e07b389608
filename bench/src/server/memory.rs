//! What a list takes in a server, when it has just been filled and after a restart from an RDB file.

use std::io;
use std::thread;
use std::time::Duration;

use card_bench::measure::timed;
use card_bench::report::{Grid, Target, fixed};

use crate::Contender;
use card_bench::redis::Server;

/// How long after it was filled a server is looked at.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// Bytes a card beyond what the empty server took.
pub struct Memory {
    used: f64,
    resident: f64,
    used_after_restart: f64,
    resident_after_restart: f64,
    fill_seconds: f64,
    restart_seconds: f64,
}

impl Memory {
    pub fn measure(
        server: &mut Server,
        cards: usize,
        fill: impl FnOnce(&Server) -> io::Result<()>,
    ) -> io::Result<Memory> {
        let empty = bytes(server)?;
        let each = |bytes: [f64; 2]| [0, 1].map(|at| (bytes[at] - empty[at]) / cards as f64);
        let (filled, fill_seconds) = timed(|| fill(server));
        filled?;
        thread::sleep(AFTERWARDS);
        let [used, resident] = each(bytes(server)?);
        let restart_seconds = server.restart()?;
        let [used_after_restart, resident_after_restart] = each(bytes(server)?);
        Ok(Memory { used, resident, used_after_restart, resident_after_restart, fill_seconds, restart_seconds })
    }

    pub fn targets(&self, limit: f64) -> Vec<Target> {
        let target = |what: &str, bytes: f64, at_most| Target { what: what.into(), measured: bytes / limit, at_most };
        vec![
            target("used_memory / limit, 30 s after a load", self.used, 1.03),
            target("used_memory / limit, after a restart", self.used_after_restart, 1.03),
            target("RSS / limit, 30 s after a load", self.resident, 1.08),
            target("RSS / limit, after a restart", self.resident_after_restart, 1.08),
        ]
    }
}

/// What the server says it uses, and what the kernel says it has.
fn bytes(server: &Server) -> io::Result<[f64; 2]> {
    Ok([server.used_memory()? as f64, server.resident()? as f64])
}

/// Bytes a record, by way.
pub fn figures(contenders: &[Contender], limit: f64) -> Vec<(String, f64)> {
    let ours = contenders.iter().map(|contender| (contender.scheme.name(), contender.memory.used));
    ours.chain([("limit", limit)]).map(|(way, bytes)| (format!("bytes, {way}"), bytes)).collect()
}

pub fn grid(contenders: &[Contender], limit: f64) -> Grid {
    let row = |Contender { scheme, memory, .. }: &Contender| {
        let ratios = [memory.resident, memory.used_after_restart, memory.resident_after_restart];
        let mut cells = vec![scheme.name().into(), fixed(memory.used), fixed(limit), fixed(memory.used / limit)];
        cells.extend(ratios.map(|bytes| fixed(bytes / limit)));
        cells.extend([memory.fill_seconds, memory.restart_seconds].map(|seconds| format!("{seconds:.2}")));
        cells
    };
    Grid {
        title: "Memory",
        head: &[
            "",
            "B/record",
            "limit",
            "ratio",
            "RSS ratio",
            "ratio after restart",
            "RSS ratio after restart",
            "filling s",
            "restart s",
        ],
        rows: contenders.iter().map(row).collect(),
        note: "Bytes a card of used_memory, and of RSS, less those of the empty server, against the limit: log2 C(possible ids, \
               records) bits and the entropy of the values. The seed's way and string keys are filled by commands, redis-card by \
               CARD.LOAD; all are looked at 30 s later, and right after a restart from an RDB file.",
    }
}
