//! Measures the module in a real redis-server beside the seed's way and plain string keys, in one run on one machine.

mod redis;
mod scheme;

use std::error::Error;
use std::path::PathBuf;

use card_bench::card::Digits20;
use card_bench::data::{List, Net, Source, Values};
use card_bench::measure::{median, tell, timed};
use card_bench::report::{Grid, fixed};
use card_table::{Builder, Schema, Table};
use clap::Parser;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use redis::{Connection, Requests, Server};
use scheme::{Scheme, TABLE};

/// Requests that a connection sends together, and connections: enough that the server never waits for its client.
const PIPELINE: usize = 16;
const CONNECTIONS: usize = 8;

/// Cards in one CARD.MGET.
const MANY: usize = 100;

/// Requests of one measurement.
const ASKED: usize = 500_000;

/// The schemes take turns, so that a busy machine slows all.
const ROUNDS: usize = 5;

/// Measures redis-card in a server beside its peers.
#[derive(Parser)]
struct Args {
    /// Cards in the list
    #[arg(long, default_value_t = 10_000_000)]
    rows: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The module
    #[arg(long, default_value = "target/release/libredis_card.so")]
    module: PathBuf,
    /// Where the servers keep their files
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
}

fn spelt(card: &Digits20) -> String {
    format!("{:020}", card.0)
}

/// Type and status of a card.
fn values(symbol: u128) -> (u8, u8) {
    ((symbol / 2) as u8, (symbol % 2 + 1) as u8)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let module = args.module.canonicalize()?;
    let list = List::new(&Net, Values::Twenty, args.rows, args.seed);
    let schemes = [Scheme::seed(args.rows), Scheme::Strings, Scheme::Ours];

    let mut servers = Vec::new();
    let mut memory = Vec::new();
    for scheme in schemes {
        tell(format_args!("{}: filling", scheme.name()));
        let server = Server::start(&module, &args.directory)?;
        let empty = (server.used_memory()?, server.resident()?);
        let mut connection = server.connect()?;
        let ((), seconds) = timed(|| fill(scheme, &list, &mut connection).expect("the server takes the list"));
        memory.push((empty, server.used_memory()?, server.resident()?, seconds));
        servers.push(server);
    }

    let restarts: Vec<f64> = servers
        .iter_mut()
        .zip(schemes)
        .map(|(server, scheme)| {
            tell(format_args!("{}: restart", scheme.name()));
            server.restart()
        })
        .collect::<Result<_, _>>()?;
    let limit = list.limit_bytes(&Net, list.cards.len());
    let rows = schemes.iter().zip(&servers).zip(&memory).zip(&restarts).map(|(((scheme, server), filled), restart)| {
        let (empty, used, resident, seconds) = filled;
        let after = (server.used_memory()?, server.resident()?);
        let each = |bytes: u64, empty: u64| (bytes - empty) as f64 / list.cards.len() as f64;
        let limit = limit / list.cards.len() as f64;
        let used = each(*used, empty.0);
        let resident = each(*resident as u64, empty.1 as u64);
        let used_after = each(after.0, empty.0);
        let resident_after = each(after.1 as u64, empty.1 as u64);
        Ok(vec![
            scheme.name().into(),
            fixed(used),
            fixed(used / limit),
            fixed(resident / limit),
            fixed(used_after / limit),
            fixed(resident_after / limit),
            format!("{seconds:.1}"),
            format!("{restart:.2}"),
        ])
    });
    let grid = Grid {
        title: "Memory",
        head: &[
            "",
            "B/record",
            "/ limit",
            "RSS / limit",
            "after restart",
            "RSS after restart",
            "filled s",
            "restart s",
        ],
        rows: rows.collect::<std::io::Result<_>>()?,
        note: "",
    };
    println!("{} cards, limit {:.3} bytes a record\n\n{grid}", list.cards.len(), limit / list.cards.len() as f64);

    let mut connections: Vec<Vec<Connection>> = servers
        .iter()
        .map(|server| (0..CONNECTIONS).map(|_| server.connect()).collect())
        .collect::<std::io::Result<_>>()?;
    let asked: Vec<String> = list.cards.iter().take(ASKED).map(spelt).collect();
    let mut rng = SmallRng::seed_from_u64(!args.seed);
    let fresh: Vec<Vec<String>> =
        (0..ROUNDS).map(|_| (0..ASKED).map(|_| spelt(&Net.draw(&mut rng))).collect()).collect();

    tell("asking");
    let mut speeds = Vec::new();
    let get = |scheme: Scheme, card: &str, requests: &mut Requests| scheme.get(card, requests);
    let set_known = |scheme: Scheme, card: &str, requests: &mut Requests| {
        // Another type than it has, mostly.
        scheme.set(card, card.as_bytes()[19] % 10, 1, requests);
    };
    type Ask<'a> = &'a dyn Fn(Scheme, &str, &mut Requests);
    for (what, cards, ask) in [
        ("GET, listed", Some(&asked), &get as Ask),
        ("SET, known cards", Some(&asked), &set_known),
        ("SET, new cards", None, &set_known),
    ] {
        let rounds: Vec<Vec<f64>> = (0..ROUNDS)
            .map(|round| {
                let cards = cards.unwrap_or(&fresh[round]);
                schemes
                    .iter()
                    .zip(&mut connections)
                    .map(|(&scheme, connections)| {
                        speed(connections, cards, 1, |cards, requests| ask(scheme, &cards[0], requests))
                    })
                    .collect()
            })
            .collect();
        let each = |at: usize| median(rounds.iter().map(|round| round[at]).collect());
        speeds.push((what, [each(0), each(1), each(2)]));
    }
    let mget = |cards: &[String], requests: &mut Requests| {
        requests.begin(2 + cards.len());
        requests.word(b"CARD.MGET");
        requests.word(TABLE);
        cards.iter().for_each(|card| requests.word(card.as_bytes()));
    };
    let many: Vec<f64> = (0..ROUNDS).map(|_| speed(&mut connections[2], &asked, MANY, mget)).collect();
    let ping: Vec<f64> =
        (0..ROUNDS).map(|_| speed(&mut connections[2], &asked, 1, |_, requests| requests.push(&[b"PING"]))).collect();
    let grid = Grid {
        title: "Speed",
        head: &["thousand cards a second", "seed's hashes", "string keys", "redis-card", "/ seed", "/ strings"],
        rows: speeds
            .iter()
            .map(|(what, [seed, strings, ours])| {
                let thousands = |figure: f64| format!("{:.0}", figure / 1000.0);
                vec![
                    (*what).into(),
                    thousands(*seed),
                    thousands(*strings),
                    thousands(*ours),
                    fixed(ours / seed),
                    fixed(ours / strings),
                ]
            })
            .collect(),
        note: "",
    };
    println!("\n{grid}");
    let [seed, ..] = speeds[0].1;
    let get = speeds[0].1[2];
    let many = median(many);
    println!(
        "CARD.MGET of {MANY}: {:.0} thousand cards a second, {:.2} × CARD.GET, {:.2} × HGET",
        many / 1e3,
        many / get,
        many / seed
    );
    println!("PING: {:.0} thousand a second", median(ping) / 1e3);
    Ok(())
}

/// Cards a second, in requests of so many cards each.
fn speed(
    connections: &mut [Connection],
    cards: &[String],
    cards_each: usize,
    ask: impl Fn(&[String], &mut Requests),
) -> f64 {
    let batches: Vec<Requests> = cards
        .chunks(cards_each * PIPELINE)
        .map(|some| {
            let mut requests = Requests::default();
            some.chunks(cards_each).for_each(|cards| ask(cards, &mut requests));
            requests
        })
        .collect();
    let send_all = || -> std::io::Result<()> {
        for (at, requests) in batches.iter().enumerate() {
            // While one connection waits for its replies, the others keep the server busy.
            let connection = &mut connections[at % CONNECTIONS];
            connection.wait()?;
            connection.send(requests)?;
        }
        connections.iter_mut().try_for_each(Connection::wait)
    };
    let (sent, seconds) = timed(send_all);
    sent.expect("the server answers");
    cards.len() as f64 / seconds
}

/// Gives the whole list to a server, in the scheme's own way.
fn fill(scheme: Scheme, list: &List<Digits20>, connection: &mut Connection) -> std::io::Result<()> {
    if scheme == Scheme::Ours {
        let built = Builder::new(Schema::default()).table_from_records(list.records());
        return stage(&built.expect("nothing stops the build").result, connection);
    }
    for some in list.cards.chunks(1000) {
        let mut requests = Requests::default();
        for card in some {
            let (type_, status) = values(list.symbol(card));
            scheme.set(&spelt(card), type_, status, &mut requests);
        }
        connection.send(&requests)?;
        connection.wait()?;
    }
    Ok(())
}

fn stage(table: &Table, connection: &mut Connection) -> std::io::Result<()> {
    connection.ask(&[b"CARD.STAGE", TABLE, b"BEGIN", &table.header_bytes()])?;
    for frames in table.frames(256 << 10) {
        connection.ask(&[b"CARD.STAGE", TABLE, b"FRAMES", &frames])?;
    }
    connection.ask(&[b"CARD.COMMIT", TABLE, TABLE])?;
    Ok(())
}
