//! Gives a list to a server, in each scheme's own way.

use std::io;

use card_bench::card::Digits20;
use card_bench::data::List;
use card_table::{Builder, Schema, Table};

use crate::spelt;
use card_bench::redis::{Connection, Requests};
use card_bench::scheme::{Scheme, TABLE};

/// How many cards are sent together.
const TOGETHER: usize = 1000;

/// How much of a table is sent at a time.
const FRAMES_BYTES: usize = 256 << 10;

pub fn fill(scheme: Scheme, list: &List<Digits20>, connection: &mut Connection) -> io::Result<()> {
    if scheme == Scheme::Ours {
        let built = Builder::new(Schema::default()).table_from_records(list.records());
        return stage(&built.map_err(io::Error::other)?.result, connection);
    }
    for some in list.cards.chunks(TOGETHER) {
        let mut requests = Requests::default();
        for card in some {
            let symbol = list.symbol(card);
            scheme.set(&spelt(card), (symbol / 2) as u8, (symbol % 2 + 1) as u8, &mut requests);
        }
        connection.send(&requests)?;
        connection.wait()?;
    }
    Ok(())
}

fn stage(table: &Table, connection: &mut Connection) -> io::Result<()> {
    connection.ask(&[b"CARD.STAGE", TABLE, b"BEGIN", &table.header_bytes()])?;
    for frames in table.frames(FRAMES_BYTES) {
        connection.ask(&[b"CARD.STAGE", TABLE, b"FRAMES", &frames])?;
    }
    connection.ask(&[b"CARD.COMMIT", TABLE, TABLE])?;
    Ok(())
}
