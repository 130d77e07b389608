//! A full list is loaded again and again under traffic: not one error, and every answer is the old list's or the new one's.

mod common;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::ask;
use common::gateway::{Gateway, server_with};

const CARDS: u64 = 200_000;

/// The list has every card once, all of one type; odd cards are only in lists of an odd type.
fn write_list(path: &Path, type_: u64) {
    let mut file = BufWriter::new(File::create(path).expect("a file"));
    writeln!(file, "cardId\ttype\tstatus").expect("a header");
    let step = if type_ % 2 == 1 { 1 } else { 2 };
    (0..CARDS).step_by(step).for_each(|card| writeln!(file, "{card:020}\t{type_}\t1").expect("a row"));
}

#[test]
fn a_reload_is_never_noticed_but_by_its_cards() {
    let lists = tempfile::tempdir().expect("a folder");
    (1..=4).for_each(|type_| write_list(&lists.path().join(format!("{type_}.tsv")), type_));
    let server = server_with(&["--card.load-dir", lists.path().to_str().expect("UTF-8")]);
    let load = |type_: u64| {
        let command = format!("CARD.LOAD blacklist:0 {type_}.tsv");
        ask::<redis::Value, _>(&mut server.connect(), command.split(' '));
    };
    load(1);
    let gateway = Gateway::start(&server);
    // The newest list that may answer: the load of it has begun.
    let (newest, oldest, done) = (AtomicU64::new(1), AtomicU64::new(1), AtomicBool::new(false));
    let answers: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (gateway, newest, oldest, done) = (&gateway, &newest, &oldest, &done);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(client);
                    let (mut connection, mut answers) = (gateway.connect(), 0);
                    while !done.load(Ordering::Acquire) {
                        let card = random.u64(..CARDS);
                        let from = oldest.load(Ordering::Acquire);
                        let answer =
                            connection.get(&format!("/paramquery?cardid={card:020}&cmdtype=blacklistquery&tbtype=0"));
                        let to = newest.load(Ordering::Acquire);
                        assert_eq!(answer.status, 200, "{answer:?}");
                        let json = answer.json();
                        let type_ = json["type"].as_str().map(|type_| type_.parse::<u64>().expect("a number"));
                        let possible: Vec<_> =
                            (from..=to).map(|list| (card.is_multiple_of(2) || list % 2 == 1).then_some(list)).collect();
                        assert!(possible.contains(&type_), "{type_:?} is none of {possible:?}");
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        for type_ in 2..=4 {
            newest.store(type_, Ordering::Release);
            load(type_);
            oldest.store(type_, Ordering::Release);
        }
        done.store(true, Ordering::Release);
        clients.into_iter().map(|client| client.join().expect("no client failed")).sum()
    });
    assert!(answers > 100, "there was traffic: {answers}");
    gateway.assert_sound();
}
