//! Gives a list to a server, in each scheme's own way.

use std::io;

use card_bench::card::Digits20;
use card_bench::data::List;

use crate::spelt;
use card_bench::redis::{Connection, Requests};
use card_bench::scheme::{Scheme, TABLE};

/// The list in `card.load-dir`.
pub const FILE: &str = "list.tsv";

/// How many cards are sent together.
const TOGETHER: usize = 1000;

pub fn fill(scheme: Scheme, list: &List<Digits20>, connection: &mut Connection) -> io::Result<()> {
    if scheme == Scheme::Ours {
        return connection.ask(&[b"CARD.LOAD", TABLE, FILE.as_bytes()]).map(drop);
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
