//! How many cards a second a server is asked about or told of.

use std::collections::BTreeMap;
use std::io;

use card_bench::card::Digits20;
use card_bench::data::{List, Net, Source};
use card_bench::measure::{median, tell, timed};
use card_bench::report::{Grid, Target, fixed};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::Contender;
use crate::spelt;
use card_bench::redis::{Connection, Requests};
use card_bench::scheme::{Scheme, TABLE};

/// Requests that a connection sends together, and connections: enough that the server never waits for its client.
const PIPELINE: usize = 16;
const CONNECTIONS: usize = 8;

/// Cards in one CARD.MGET.
const MANY: usize = 100;

/// Cards of one measurement, drawn from the whole list.
const ASKED: usize = 500_000;

/// The servers take turns, so that a busy machine slows all.
const ROUNDS: usize = 7;

/// Cards a second, for each contender in order; the last of them is ours.
struct Row {
    what: &'static str,
    speeds: Vec<f64>,
}

impl Row {
    fn ours(&self) -> f64 {
        *self.speeds.last().expect("ours is one of them")
    }

    fn one_hash(&self) -> Option<f64> {
        (self.speeds.len() > 3).then(|| self.speeds[2])
    }
}

pub struct Speeds {
    get: Row,
    set_known: Row,
    set_new: Row,
    /// Of ours: CARD.MGET, and two commands that find nothing, for what a command costs.
    mget: f64,
    len: f64,
    ping: f64,
}

impl Speeds {
    pub fn measure(contenders: &[Contender], list: &List<Digits20>, seed: u64) -> io::Result<Speeds> {
        let connect = |contender: &Contender| (0..CONNECTIONS).map(|_| contender.server.connect()).collect();
        let mut connections: Vec<Vec<Connection>> = contenders.iter().map(connect).collect::<io::Result<_>>()?;
        let known: Vec<String> = list.cards.iter().take(ASKED).map(spelt).collect();
        let mut rng = SmallRng::seed_from_u64(!seed);
        let mut draw = || (0..ASKED).map(|_| spelt(&Net.draw(&mut rng))).collect::<Vec<_>>();

        let mut compare = |what, cards: &mut dyn FnMut() -> Vec<String>, ask: Ask| {
            tell(what);
            let rounds = (0..ROUNDS).map(|_| {
                let cards = cards();
                let turns = contenders.iter().zip(&mut connections);
                turns
                    .map(|(contender, connections)| {
                        speed(connections, &cards, 1, |cards, requests| ask(contender.scheme, &cards[0], requests))
                    })
                    .collect::<io::Result<Vec<_>>>()
            });
            let rounds = rounds.collect::<io::Result<Vec<_>>>()?;
            let of = |at: usize| median(rounds.iter().map(|round| round[at]).collect());
            Ok::<_, io::Error>(Row { what, speeds: (0..contenders.len()).map(of).collect() })
        };
        let get = compare("find listed cards", &mut || known.clone(), &|scheme, card, requests| {
            scheme.get(card, requests);
        })?;
        // Another type than they have, mostly.
        let set: Ask = &|scheme, card, requests| scheme.set(card, card.as_bytes()[19] % 10, 1, requests);
        let set_known = compare("set listed cards", &mut || known.clone(), set)?;
        let set_new = compare("set new cards", &mut draw, set)?;

        let ours = connections.last_mut().expect("ours is one of them");
        let mut alone = |what, cards_each, ask: &dyn Fn(&[String], &mut Requests)| {
            tell(what);
            let rounds = (0..ROUNDS).map(|_| speed(ours, &known, cards_each, ask));
            Ok::<_, io::Error>(median(rounds.collect::<io::Result<_>>()?))
        };
        Ok(Speeds {
            get,
            set_known,
            set_new,
            mget: alone("CARD.MGET", MANY, &mget)?,
            len: alone("CARD.LEN", 1, &|_, requests| requests.push(&[b"CARD.LEN", TABLE]))?,
            ping: alone("PING", 1, &|_, requests| requests.push(&[b"PING"]))?,
        })
    }

    fn rows(&self) -> [&Row; 3] {
        [&self.get, &self.set_known, &self.set_new]
    }

    pub fn targets(&self) -> Vec<Target> {
        // A speed that should be twice a peer's is a time that should be half of it.
        let target = |what: &str, peer: f64, ours: f64, at_most: f64| Target {
            what: what.into(),
            measured: peer / ours,
            at_most,
        };
        let [get, set_known, set_new] = self.rows().map(|row| [row.speeds[0], row.speeds[1], row.ours()]);
        vec![
            target("time of CARD.GET / the seed's HGET", get[0], get[2], 0.5),
            target("time of CARD.GET / GET of string keys", get[1], get[2], 1.43),
            target("time of a card in CARD.MGET / CARD.GET", get[2], self.mget, 0.5),
            target("time of CARD.SET / the seed's HSET, listed cards", set_known[0], set_known[2], 1.0),
            target("time of CARD.SET / the seed's HSET, new cards", set_new[0], set_new[2], 1.0),
        ]
    }

    /// Thousand cards a second, by way.
    pub fn figures(&self, contenders: &[Contender]) -> BTreeMap<String, f64> {
        let found = contenders.iter().zip(&self.get.speeds).map(|(contender, speed)| (contender.scheme.name(), *speed));
        let all = found.chain([("redis-card, MGET of 100", self.mget)]);
        all.map(|(way, speed)| (format!("find, {way}"), speed / 1e3)).collect()
    }

    pub fn grid(&self) -> Grid {
        let thousands = |figure: f64| format!("{:.0}", figure / 1e3);
        let mut rows: Vec<_> = self
            .rows()
            .map(|row| {
                let mut cells = vec![row.what.into()];
                cells.extend([row.speeds[0], row.speeds[1]].map(thousands));
                cells.push(row.one_hash().map_or("–".into(), thousands));
                cells.push(thousands(row.ours()));
                cells.extend([0, 1].map(|peer| fixed(row.ours() / row.speeds[peer])));
                cells
            })
            .into();
        for (what, speed) in [("CARD.MGET of 100", self.mget), ("CARD.LEN", self.len), ("PING", self.ping)] {
            let none = || "–".to_owned();
            rows.push(vec![what.into(), none(), none(), none(), thousands(speed), none(), none()]);
        }
        Grid {
            title: "Speed",
            head: &["", "seed's hashes", "string keys", "one big hash", "redis-card", "/ seed's", "/ strings"],
            rows,
            note: "Thousand cards a second: 8 connections with 16 requests each in flight, random cards, median of seven alternating \
                   rounds of 500,000. CARD.LEN and PING, which find nothing, tell what a command costs without its work.",
        }
    }
}

type Ask<'a> = &'a dyn Fn(Scheme, &str, &mut Requests);

fn mget(cards: &[String], requests: &mut Requests) {
    requests.begin(2 + cards.len());
    requests.word(b"CARD.MGET");
    requests.word(TABLE);
    cards.iter().for_each(|card| requests.word(card.as_bytes()));
}

/// Cards a second, in requests of so many cards each.
fn speed(
    connections: &mut [Connection],
    cards: &[String],
    cards_each: usize,
    ask: impl Fn(&[String], &mut Requests),
) -> io::Result<f64> {
    let batches: Vec<Requests> = cards
        .chunks(cards_each * PIPELINE)
        .map(|some| {
            let mut requests = Requests::default();
            some.chunks(cards_each).for_each(|cards| ask(cards, &mut requests));
            requests
        })
        .collect();
    let send_all = || -> io::Result<()> {
        for (at, requests) in batches.iter().enumerate() {
            // While one connection waits for its replies, the others keep the server busy.
            let connection = &mut connections[at % CONNECTIONS];
            connection.wait()?;
            connection.send(requests)?;
        }
        connections.iter_mut().try_for_each(Connection::wait)
    };
    let (sent, seconds) = timed(send_all);
    sent?;
    Ok(cards.len() as f64 / seconds)
}
