//! A cluster of three nodes: every command finds its node, and a table moves between nodes while it is asked and written.

mod common;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use card_table::{Id, Schema, Table};
use common::{Server, ask, refused, try_ask, wait_for};
use redis::{Connection, FromRedisValue, RedisError, Value};

/// Slots from 0 are at the first node, slots from 5461 at the second, slots from 10923 at the third.
const SLOTS: [[&str; 2]; 3] = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]];

struct Cluster([Server; 3]);

impl Cluster {
    fn start() -> Cluster {
        let settings = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
        let node = |_| Server::with_port(&[&settings[..], &["--cluster-node-timeout", "2000"]].concat());
        let nodes = [0, 1, 2].map(node);
        for (node, [first, last]) in nodes.iter().zip(SLOTS) {
            let db = &mut node.connect();
            ask::<(), _>(db, ["CLUSTER", "ADDSLOTSRANGE", first, last]);
            ask::<(), _>(db, ["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port().to_string()]);
        }
        for node in &nodes {
            let db = &mut node.connect();
            wait_for(15, "the cluster is complete", || {
                let info: String = ask(db, ["CLUSTER", "INFO"]);
                ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"]
                    .iter()
                    .all(|all| info.contains(all))
            });
        }
        Cluster(nodes)
    }

    fn node(&self, port: u16) -> &Server {
        self.0.iter().find(|node| node.port() == port).expect("a node of the cluster")
    }

    /// The slot of a key.
    fn slot(&self, key: &str) -> u16 {
        ask(&mut self.0[0].connect(), ["CLUSTER", "KEYSLOT", key])
    }

    /// The node that serves a key, before anything has moved.
    fn node_of(&self, key: &str) -> usize {
        let slot = self.slot(key);
        SLOTS.iter().position(|[_, last]| slot <= last.parse().expect("a number")).expect("every slot has a node")
    }

    /// Keys that begin so, one at each node.
    fn key_at_each_node(&self, prefix: &str) -> [String; 3] {
        [0, 1, 2].map(|node| {
            let mut keys = (0..).map(|number| format!("{prefix}{number}"));
            keys.find(|key| self.node_of(key) == node).expect("there are infinitely many")
        })
    }

    /// Opens a slot, so that its keys can move from one node to another.
    fn open(&self, slot: &str, from: usize, to: usize) {
        ask::<(), _>(&mut self.0[to].connect(), ["CLUSTER", "SETSLOT", slot, "IMPORTING", &self.id(from)]);
        ask::<(), _>(&mut self.0[from].connect(), ["CLUSTER", "SETSLOT", slot, "MIGRATING", &self.id(to)]);
    }

    fn migrate(&self, keys: &[&str], from: usize, to: usize) {
        let port = self.0[to].port().to_string();
        let command = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        assert_eq!(ask::<String, _>(&mut self.0[from].connect(), [&command, keys].concat()), "OK");
    }

    /// Tells all that the slot has moved, first the node that has it now.
    fn close(&self, slot: &str, to: usize) {
        for node in [to, (to + 1) % 3, (to + 2) % 3] {
            ask::<(), _>(&mut self.0[node].connect(), ["CLUSTER", "SETSLOT", slot, "NODE", &self.id(to)]);
        }
    }

    fn id(&self, node: usize) -> String {
        ask(&mut self.0[node].connect(), ["CLUSTER", "MYID"])
    }
}

/// A client as small as one can be: it goes where it is sent, and tries again when it is told to.
struct Client<'a> {
    cluster: &'a Cluster,
    connections: BTreeMap<u16, Connection>,
    at: u16,
    moved: u64,
    asked: u64,
}

impl Client<'_> {
    fn new(cluster: &Cluster) -> Client<'_> {
        Client { cluster, connections: BTreeMap::new(), at: cluster.0[0].port(), moved: 0, asked: 0 }
    }

    fn connection(&mut self, port: u16) -> &mut Connection {
        self.connections.entry(port).or_insert_with(|| self.cluster.node(port).connect())
    }

    fn ask<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        loop {
            let at = self.at;
            let mut reply = try_ask(self.connection(at), command);
            if let Err(error) = &reply
                && error.code() == Some("ASK")
            {
                self.asked += 1;
                let node = self.connection(port(error));
                ask::<(), _>(node, ["ASKING"]);
                reply = try_ask(node, command);
            }
            match reply {
                Ok(reply) => return reply,
                Err(error) if error.code() == Some("MOVED") => {
                    self.moved += 1;
                    self.at = port(&error);
                }
                Err(error) if matches!(error.code(), Some("TRYAGAIN" | "CLUSTERDOWN")) => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{command:?}: {error}"),
            }
        }
    }
}

/// Where a redirection leads.
fn port(error: &RedisError) -> u16 {
    let (address, _) = error.redirect_node().expect("a redirection");
    address.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok()).expect("an address on loopback")
}

fn card(number: u64) -> String {
    format!("4401{:016}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 10_000_000_000_000_000)
}

fn values(number: u64) -> [u64; 2] {
    [number % 11, 1 + number % 2]
}

fn table(cards: u64) -> Table {
    let mut table = Table::new(Schema::default());
    for number in 0..cards {
        let symbol = table.schema().pack(&values(number).map(u128::from)).expect("values in range");
        table.insert(&Id::parse(card(number).as_bytes()).expect("an id"), symbol);
    }
    table
}

/// Begins to stage a table, and returns its pieces.
fn stage(db: &mut Connection, key: &str, table: &Table) -> Vec<Vec<u8>> {
    ask::<(), _>(db, [b"CARD.STAGE", key.as_bytes(), b"BEGIN", &table.header_bytes()]);
    table.frames(16 << 10).collect()
}

fn stage_frames(db: &mut Connection, key: &str, pieces: &[Vec<u8>]) {
    pieces.iter().for_each(|piece| ask(db, [b"CARD.STAGE", key.as_bytes(), b"FRAMES", piece]));
}

#[test]
fn a_node_sends_clients_of_every_command_to_the_right_one() {
    let cluster = Cluster::start();
    for (node, key) in cluster.key_at_each_node("cards").iter().enumerate() {
        let port = cluster.0[node].port();
        let moved = format!("MOVED {} 127.0.0.1:{port}", cluster.slot(key));
        let commit = format!("{{{key}}}staged");
        for command in [
            &["CARD.CREATE", key][..],
            &["CARD.SET", key, "1", "1", "1"],
            &["CARD.MSET", key, "1", "1", "1"],
            &["CARD.GET", key, "1"],
            &["CARD.MGET", key, "1"],
            &["CARD.LEN", key],
            &["CARD.DEL", key, "1"],
            &["CARD.SCAN", key, "0"],
            &["CARD.INFO", key],
            &["CARD.JSON", key, "1"],
            &["CARD.QUERY", key, "cardid=1&cmdtype=blacklistquery"],
            &["CARD.STAGE", key, "BEGIN", "header"],
            &["CARD.COMMIT", &commit, key],
        ] {
            for other in cluster.0.iter().filter(|other| other.port() != port) {
                assert_eq!(refused(&mut other.connect(), command), moved, "{command:?}");
            }
        }
        let db = &mut cluster.0[node].connect();
        assert_eq!(ask::<i64, _>(db, ["CARD.SET", key, "1", "7", "1"]), 1);
        assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", key, "1"]), [7, 1]);
    }
}

#[test]
fn a_commit_is_for_keys_of_one_slot() {
    let cluster = Cluster::start();
    let crossslot = "CROSSSLOT Keys in request don't hash to the same slot";
    for (node, key) in cluster.key_at_each_node("cards").iter().enumerate() {
        let (db, staged) = (&mut cluster.0[node].connect(), format!("{{{key}}}staged"));
        let pieces = stage(db, &staged, &table(100));
        stage_frames(db, &staged, &pieces);
        // Other slots: of the same node, and of the next.
        let mut others = (0..).map(|number| format!("other{number}"));
        let neighbour = others.find(|other| cluster.node_of(other) == node && cluster.slot(other) != cluster.slot(key));
        assert_eq!(refused(db, ["CARD.COMMIT", &staged, &neighbour.expect("there is one")]), crossslot);
        let stranger = others.find(|other| cluster.node_of(other) != node);
        assert_eq!(refused(db, ["CARD.COMMIT", &staged, &stranger.expect("there is one")]), crossslot);
        ask::<(), _>(db, ["CARD.COMMIT", &staged, key]);
        assert_eq!(ask::<i64, _>(db, ["CARD.LEN", key]), 100);
    }
}

#[test]
fn a_commit_waits_until_both_keys_have_moved() {
    let cluster = Cluster::start();
    let (staged, key) = ("{cards}staged", "{cards}list");
    let (slot, from) = (cluster.slot(key).to_string(), cluster.node_of(key));
    let to = (from + 1) % 3;
    let (source, target) = (&mut cluster.0[from].connect(), &mut cluster.0[to].connect());
    ask::<i64, _>(source, ["CARD.SET", key, "old", "1", "1"]);
    let pieces = stage(source, staged, &table(100));
    stage_frames(source, staged, &pieces);
    cluster.open(&slot, from, to);
    cluster.migrate(&[staged], from, to);
    let again = "TRYAGAIN Multiple keys request during rehashing of slot";
    assert_eq!(refused(source, ["CARD.COMMIT", staged, key]), again);
    ask::<(), _>(target, ["ASKING"]);
    assert_eq!(refused(target, ["CARD.COMMIT", staged, key]), again);

    cluster.migrate(&[key], from, to);
    let mut client = Client::new(&cluster);
    client.ask::<()>(&["CARD.COMMIT", staged, key]);
    assert_eq!(client.asked, 1);
    cluster.close(&slot, to);
    assert_eq!(ask::<i64, _>(target, ["CARD.LEN", key]), 100);
    assert_eq!(ask::<Vec<String>, _>(target, ["KEYS", "*"]), [key]);
}

const LISTED: u64 = 20_000;

/// Asks about listed and unlisted cards, by every command that can, until told to stop.
fn read(client: &mut Client, key: &str, seed: u64, stop: &AtomicBool, answers: &AtomicU64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        let (number, other) = (random.u64(..LISTED), random.u64(LISTED..2 * LISTED));
        let (listed, unlisted) = (card(number), card(other));
        let [type_, status] = values(number);
        match random.u8(..8) {
            0 => assert_eq!(client.ask::<Option<Vec<u64>>>(&["CARD.GET", key, &unlisted]), None),
            1 => {
                let cards = client.ask::<Vec<Option<[u64; 2]>>>(&["CARD.MGET", key, &listed, &unlisted]);
                assert_eq!(cards, [Some([type_, status]), None]);
            }
            2 => {
                let json = format!(r#"[null,{{"id":"{listed}","type":{type_},"status":{status}}}]"#);
                assert_eq!(client.ask::<String>(&["CARD.JSON", key, &unlisted, &listed]), json);
            }
            3 => {
                let query = format!("cardid={listed}&cmdtype=blacklistquery");
                let answer = client.ask::<String>(&["CARD.QUERY", key, &query]);
                assert!(answer.contains(&format!(r#""status":"{status}","type":"{type_}""#)), "{answer}");
            }
            4 => {
                let (_, cards) =
                    client.ask::<(String, Vec<(String, u64, u64)>)>(&["CARD.SCAN", key, "0", "PREFIX", &listed]);
                assert_eq!(cards, [(listed, type_, status)]);
            }
            5 => assert!(client.ask::<u64>(&["CARD.LEN", key]) >= LISTED),
            _ => assert_eq!(client.ask::<Option<[u64; 2]>>(&["CARD.GET", key, &listed]), Some([type_, status])),
        }
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds cards, which no reader asks for, and tells how many.
fn write(client: &mut Client, key: &str, stop: &AtomicBool) -> u64 {
    let cards = (0..).take_while(|_| !stop.load(Ordering::Relaxed)).map(|number| {
        let id = format!("written {number}");
        assert_eq!(client.ask::<i64>(&["CARD.SET", key, &id, "3", "2"]), 1, "{id}");
        assert_eq!(client.ask::<Option<[u64; 2]>>(&["CARD.GET", key, &id]), Some([3, 2]), "{id}");
    });
    cards.count() as u64
}

fn records(client: &mut Client, key: &str) -> BTreeMap<String, [u64; 2]> {
    let (mut all, mut cursor) = (BTreeMap::new(), "0".to_string());
    loop {
        let (next, some): (_, Vec<(String, u64, u64)>) = client.ask(&["CARD.SCAN", key, &cursor, "COUNT", "10000"]);
        for (id, type_, status) in some {
            assert_eq!(all.insert(id, [type_, status]), None, "a scan returns a card once");
        }
        if next == "0" {
            return all;
        }
        cursor = next;
    }
}

#[test]
fn a_table_moves_while_it_is_read_and_written_and_every_answer_is_right() {
    let cluster = Cluster::start();
    let [key, staged, brief, created] = ["{cards}list", "{cards}staged", "{cards}brief", "{cards}created"];
    let (slot, home) = (cluster.slot(key).to_string(), cluster.node_of(key));
    let (db, table) = (&mut cluster.0[home].connect(), table(LISTED));
    let pieces = stage(db, staged, &table);
    stage_frames(db, staged, &pieces);
    ask::<(), _>(
        db,
        ["CARD.COMMIT", staged, key, "AT", "1501718400000", "VERSION", "9", "SOURCE", "a.tsv", "ROWS", "1"],
    );
    // Others of the slot, which move with it: half a table, one that will expire, one of another schema.
    stage(db, staged, &table);
    stage_frames(db, staged, &pieces[..pieces.len() / 2]);
    ask::<i64, _>(db, ["CARD.SET", brief, "1", "1", "1"]);
    ask::<i64, _>(db, ["EXPIRE", brief, "1000"]);
    ask::<(), _>(db, ["CARD.CREATE", created, "FIELD", "tag", "5", "6"]);

    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let more_answers = || {
        let until = answers.load(Ordering::Relaxed) + 200;
        wait_for(15, "more answers", || answers.load(Ordering::Relaxed) > until);
    };
    let written = thread::scope(|scope| {
        let (cluster, stop, answers) = (&cluster, &stop, &answers);
        let readers = [1, 2].map(|seed| {
            scope.spawn(move || {
                let mut client = Client::new(cluster);
                read(&mut client, key, seed, stop, answers);
                (client.moved, client.asked)
            })
        });
        let writer = scope.spawn(|| write(&mut Client::new(cluster), key, stop));
        let moves = || {
            for (from, to) in [0, 1, 2].map(|step| ((home + step) % 3, (home + step + 1) % 3)) {
                more_answers();
                cluster.open(&slot, from, to);
                more_answers();
                cluster.migrate(&[key, staged, brief, created], from, to);
                more_answers();
                cluster.close(&slot, to);
            }
            more_answers();
        };
        // The others end also when a move fails.
        let moved = catch_unwind(AssertUnwindSafe(moves));
        stop.store(true, Ordering::Relaxed);
        let redirected = readers.map(|reader| reader.join().expect("every answer is right"));
        let (moved_times, asked) = redirected.iter().fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        assert!(moved_times >= 3 && asked > 0, "{moved_times} times moved, {asked} times asked elsewhere");
        let written = writer.join().expect("every write is there");
        moved.unwrap_or_else(|panic| resume_unwind(panic));
        written
    });

    // It has come round to its first node, with everything that was written on the way.
    assert!(written > 100);
    let client = &mut Client::new(&cluster);
    let mut expected: BTreeMap<_, _> = (0..LISTED).map(|number| (card(number), values(number))).collect();
    expected.extend((0..written).map(|number| (format!("written {number}"), [3, 2])));
    assert_eq!(records(client, key), expected);
    let told: BTreeMap<String, Value> = ask(db, ["CARD.INFO", key]);
    assert_eq!([&told["version"], &told["loaded_at"]], [&Value::Int(9), &Value::Int(1_501_718_400)]);
    assert_eq!(told["source"], Value::BulkString(b"a.tsv".to_vec()));
    assert!((1..=1000).contains(&ask::<i64, _>(db, ["TTL", brief])));
    assert_eq!(refused(db, ["CARD.SET", created, "1", "7"]), "ERR tag must be between 5 and 6, got '7'");
    stage_frames(db, staged, &pieces[pieces.len() / 2..]);
    ask::<(), _>(db, ["CARD.COMMIT", staged, key]);
    assert_eq!(records(client, key).len() as u64, LISTED);
    for node in (0..3).filter(|&node| node != home) {
        assert_eq!(ask::<i64, _>(&mut cluster.0[node].connect(), ["DBSIZE"]), 0);
    }
}
