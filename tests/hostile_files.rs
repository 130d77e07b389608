//! Files that are not what they should be, or not where: none is loaded, none harms the server, and the table stays.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{Server, ask, refused, try_ask, wait_for};
use flate2::Compression;
use flate2::write::GzEncoder;
use redis::{Connection, Value};

const HEADER: &str = "cardId\ttype\tstatus\n";
const TOO_LONG: &str = "found more than 65536 bytes, expected at most 65536";

/// A server that loads from the folder `lists` of its own, with a table `list` of the card 1.
fn server() -> Server {
    let server = Server::with(&["--card.load-dir", "lists"]);
    fs::create_dir(server.directory().join("lists")).expect("a folder");
    let _: Value = ask(&mut server.connect(), "CARD.SET list 1 7 1".split(' '));
    server
}

fn path(server: &Server, name: &str) -> PathBuf {
    server.directory().join("lists").join(name)
}

fn write(server: &Server, name: &str, content: impl AsRef<[u8]>) {
    fs::write(path(server, name), content).expect("it can be written");
}

fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(content.as_ref()).unwrap();
    packed.finish().unwrap()
}

fn zstandard(content: impl AsRef<[u8]>) -> Vec<u8> {
    zstd::encode_all(content.as_ref(), 1).unwrap()
}

/// A list whose cards do not pack well, so that a packed file is cut in the middle of them.
fn list(cards: u64) -> String {
    let rows = (0..cards).map(|card| format!("{:020}\t{}\t2\n", card * 1_000_000_007, card % 11));
    HEADER.to_owned() + &rows.collect::<String>()
}

/// The error for a file that is not loaded. The table is as it was, and the server has not grown much.
#[track_caller]
fn not_loaded(server: &Server, name: impl AsRef<[u8]>) -> String {
    let db = &mut server.connect();
    let error = refused(db, [b"CARD.LOAD".as_slice(), b"list", name.as_ref()]);
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "list", "1"]), Some(vec![7, 1]));
    assert_eq!(ask::<Vec<String>, _>(db, ["KEYS", "*"]), ["list"]);
    error
}

#[track_caller]
fn assert_loaded(server: &Server, name: &str, cards: i64) {
    let db = &mut server.connect();
    let _: Value = ask(db, ["CARD.LOAD", "loaded", name]);
    assert_eq!(ask::<i64, _>(db, ["CARD.LEN", "loaded"]), cards, "{name}");
    let _: i64 = ask(db, ["DEL", "loaded"]);
}

/// The most memory that the server has ever had.
fn peak_bytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the process is there");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    1024 * peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

#[test]
fn without_a_directory_there_is_nothing_to_load_from() {
    let server = Server::start();
    let db = &mut server.connect();
    fs::write(server.directory().join("cards.tsv"), list(1)).unwrap();
    let error = refused(db, "CARD.LOAD list cards.tsv".split(' '));
    assert_eq!(error, "ERR card.load-dir is not set, so there is nothing to load from");
}

#[test]
fn the_directory_is_fixed_when_the_server_starts() {
    let server = server();
    let db = &mut server.connect();
    let error = refused(db, "CONFIG SET card.load-dir /".split(' '));
    assert!(error.contains("can't set immutable config"), "{error}");
    let told: Vec<String> = ask(db, "CONFIG GET card.load-dir".split(' '));
    assert_eq!(told, ["card.load-dir", "lists"]);
    fs::remove_dir(server.directory().join("lists")).unwrap();
    let error = not_loaded(&server, "cards.tsv");
    assert!(error.starts_with("ERR cannot open the directory lists: "), "{error}");
}

#[test]
fn only_regular_files_below_the_directory_are_opened() {
    let server = server();
    fs::create_dir(path(&server, "below")).unwrap();
    fs::create_dir(path(&server, "folder.tsv")).unwrap();
    write(&server, "below/cards.tsv", list(3));
    fs::write(server.directory().join("outside.tsv"), list(4)).unwrap();
    let outside = server.directory().join("outside.tsv");
    for (to, name) in [
        (&*outside, "absolute.tsv"),
        ("../outside.tsv".as_ref(), "relative.tsv"),
        ("..".as_ref(), "up"),
        (server.directory(), "out"),
        ("/dev/zero".as_ref(), "device.tsv"),
        ("loop.tsv".as_ref(), "loop.tsv"),
        ("nothing.tsv".as_ref(), "dangling.tsv"),
        ("below/cards.tsv".as_ref(), "inside.tsv"),
        ("below".as_ref(), "also"),
    ] {
        symlink(to, path(&server, name)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(path(&server, "fifo.tsv")).status().unwrap().success());

    const NAMED: &str = "ERR a file is named by its path below card.load-dir, without '..'";
    let absolute = outside.to_str().unwrap();
    for name in [absolute, "../outside.tsv", "below/../below/cards.tsv", "below/../../outside.tsv", "..", "", "/"] {
        assert_eq!(not_loaded(&server, name), NAMED, "{name}");
    }
    for name in ["absolute.tsv", "relative.tsv", "up/outside.tsv", "out/outside.tsv", "device.tsv", "loop.tsv"] {
        let error = not_loaded(&server, name);
        assert!(error.starts_with(&format!("ERR cannot open {name}: ")), "{error}");
    }
    for name in ["dangling.tsv", "none.tsv", "below/none.tsv", "below/cards.tsv/x.tsv"] {
        let error = not_loaded(&server, name);
        assert!(error.starts_with(&format!("ERR cannot open {name}: ")), "{error}");
    }
    for name in ["fifo.tsv", "folder.tsv"] {
        assert_eq!(not_loaded(&server, name), format!("ERR {name} is not a regular file"));
    }
    for name in ["below", "cards", "cards.csv", "cards.tsv.xz", "cards.tsv ", "cards.tsv/", "cards.TSV", "."] {
        let error = not_loaded(&server, name);
        assert_eq!(error, "ERR a file's name ends in .tsv, .tsv.gz or .tsv.zst", "{name}");
    }
    let error = not_loaded(&server, b"a\0\r\n\xff.tsv");
    assert!(error.starts_with(r"ERR cannot open a\x00\r\n\xff.tsv: "), "{error}");
    let error = not_loaded(&server, "x".repeat(5000) + ".tsv");
    assert!(error.starts_with("ERR cannot open xxx"), "{error}");
    for name in ["below/cards.tsv", "./below/./cards.tsv", "inside.tsv", "also/cards.tsv"] {
        assert_loaded(&server, name, 3);
    }
}

#[test]
fn a_file_that_may_not_be_read_is_not() {
    let server = server();
    write(&server, "secret.tsv", list(3));
    fs::set_permissions(path(&server, "secret.tsv"), fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(path(&server, "secret.tsv")).is_ok() {
        return; // Root may read everything.
    }
    let error = not_loaded(&server, "secret.tsv");
    assert!(error.starts_with("ERR cannot open secret.tsv: "), "{error}");
}

#[test]
fn text_from_anywhere_is_read_alike() {
    let server = server();
    let text = list(1000);
    let with_cr = text.replace('\n', "\r\n");
    write(&server, "cr.tsv", &with_cr);
    write(&server, "bom.tsv", format!("\u{feff}{text}"));
    write(&server, "both.tsv", format!("\u{feff}{with_cr}"));
    write(&server, "unended.tsv", text.trim_end());
    write(&server, "unended_cr.tsv", with_cr.trim_end());
    let digest = |name: &str| {
        let db = &mut server.connect();
        let _: Value = ask(db, ["CARD.LOAD", "loaded", name]);
        let told: std::collections::HashMap<String, Value> = ask(db, "CARD.INFO loaded DIGEST".split(' '));
        told["digest"].clone()
    };
    write(&server, "plain.tsv", &text);
    let plain = digest("plain.tsv");
    for name in ["cr.tsv", "bom.tsv", "both.tsv", "unended.tsv", "unended_cr.tsv"] {
        assert_eq!(digest(name), plain, "{name}");
    }
    assert_eq!(ask::<i64, _>(&mut server.connect(), ["CARD.LEN", "loaded"]), 1000);
}

#[test]
fn packed_files_are_unpacked_also_in_several_parts() {
    let server = server();
    let text = list(20_000);
    let (first, rest) = text.split_at(text.len() / 3);
    write(&server, "one.tsv.gz", gzip(&text));
    write(&server, "one.tsv.zst", zstandard(&text));
    write(&server, "parts.tsv.gz", [gzip(first), gzip(""), gzip(rest)].concat());
    write(&server, "parts.tsv.zst", [zstandard(first), zstandard(""), zstandard(rest)].concat());
    for name in ["one.tsv.gz", "one.tsv.zst", "parts.tsv.gz", "parts.tsv.zst"] {
        assert_loaded(&server, name, 20_000);
    }
}

#[test]
fn packed_files_that_are_cut_short_or_damaged_are_refused() {
    let server = server();
    let text = list(20_000);
    let rows = &text[HEADER.len()..];
    for (suffix, packed, rows) in [("gz", gzip(&text), gzip(rows)), ("zst", zstandard(&text), zstandard(rows))] {
        let name = format!("damaged.tsv.{suffix}");
        let refuse = |what: &str, content: &[u8]| {
            write(&server, &name, content);
            let error = not_loaded(&server, &name);
            assert!(error.starts_with("ERR cannot read: "), "{what}: {error}");
        };
        for len in [1, 5, 10, packed.len() / 2, packed.len() - 4, packed.len() - 1] {
            refuse("cut short", &packed[..len]);
        }
        refuse("more at the end", &[&packed, b"garbage".as_slice()].concat());
        refuse("a part cut short", &[&packed[..], &rows[..rows.len() / 2]].concat());
        refuse("not packed", text.as_bytes());
        let mut flipped = packed.clone();
        flipped[packed.len() - 6] ^= 1;
        if suffix == "gz" {
            refuse("a checksum that is wrong", &flipped);
        }
    }
    write(&server, "packed.tsv", gzip(&text));
    assert!(not_loaded(&server, "packed.tsv").starts_with(r"ERR line 1: found '\x1f\x8b"));
}

#[test]
fn a_row_that_is_not_exactly_right_is_refused() {
    let server = server();
    for (rows, expected) in [
        ("1\t7\n", r"line 2: found 2 columns in '1\t7', expected 3 columns"),
        ("1\t7\t1\t\n", r"line 2: found 4 columns in '1\t7\t1\t', expected 3 columns"),
        ("1 7 1\n", "line 2: found 1 columns in '1 7 1', expected 3 columns"),
        ("1\t7\t1\n\n", "line 3: found an empty line, expected 3 columns"),
        ("1\t7\t1\n\t7\t1\n", "line 3, column cardId: found '', expected 1 to 4096 bytes"),
        ("1\t\t1\n", "line 2, column type: found nothing, expected a number between 0 and 10"),
        ("1\t7\t0\n", "line 2, column status: found '0', expected a number between 1 and 2"),
        ("1\t-1\t1\n", "line 2, column type: found '-1', expected a number between 0 and 10"),
        ("1\t7\t1 \n", "line 2, column status: found '1 ', expected a number between 1 and 2"),
        ("1\t7\u{0}\t1\n", r"line 2, column type: found '7\x00', expected a number between 0 and 10"),
        ("1\t7\t1\rx\n", r"line 2, column status: found '1\rx', expected a number between 1 and 2"),
    ] {
        write(&server, "wrong.tsv", HEADER.to_owned() + rows);
        assert_eq!(not_loaded(&server, "wrong.tsv"), format!("ERR {expected}"), "{rows:?}");
    }
    for header in ["cardid\ttype\tstatus", "cardId\ttype", "cardId\ttype\ttype", "cardId\ttype\tstatus\tx", "\0", ""] {
        write(&server, "wrong.tsv", format!("{header}\n1\t7\t1\n"));
        let error = not_loaded(&server, "wrong.tsv");
        let shown = header.escape_default();
        let expected = format!("ERR line 1: found '{shown}', expected a header with the columns cardId, type, status");
        assert_eq!(error, expected.replace(r"\u{0}", r"\x00"));
    }
}

#[test]
fn noise_is_refused_in_one_line() {
    let server = server();
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = (0..4 << 20).map(|_| random.u8(..)).collect();
    let mut below_a_header = HEADER.as_bytes().to_vec();
    below_a_header.extend(&noise);
    for (name, content) in [
        ("noise.tsv", &noise),
        ("below.tsv", &below_a_header),
        ("nul.tsv", &vec![0; 50_000]),
        ("lf.tsv", &vec![b'\n'; 9]),
    ] {
        write(&server, name, content);
        let error = not_loaded(&server, name);
        assert!(error.starts_with("ERR line "), "{error}");
        assert!(error.len() < 8000, "{name}: {} bytes", error.len());
    }
    let mut ids = HEADER.as_bytes().to_vec();
    ids.extend(b"a\0b\t7\t1\n\0\t7\t1\n\xff\xfe\t7\t1\n");
    write(&server, "ids.tsv", ids);
    assert_loaded(&server, "ids.tsv", 3);
    let db = &mut server.connect();
    let _: Value = ask(db, "CARD.LOAD list ids.tsv".split(' '));
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, [b"CARD.GET".as_slice(), b"list", b"a\0b"]), Some(vec![7, 1]));
}

/// A line takes no memory however long it is, and little time.
#[test]
fn a_line_of_gigabytes_is_refused_without_memory_for_it() {
    let server = server();
    let before = peak_bytes(&server);
    let started = Instant::now();
    for (name, content, line) in [("header.tsv", "", 1), ("row.tsv", HEADER, 2)] {
        let mut file = File::create(path(&server, name)).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file.set_len(10 << 30).unwrap();
        assert_eq!(not_loaded(&server, name), format!("ERR line {line}: {TOO_LONG}"));
    }
    let seconds = started.elapsed().as_secs();
    assert!(seconds < 5, "{seconds} s");
    assert!(peak_bytes(&server) < before + (64 << 20), "{before} bytes and then {}", peak_bytes(&server));
}

#[test]
fn a_small_file_that_unpacks_to_a_line_of_gigabytes_is_refused_without_memory_for_it() {
    let server = server();
    let before = peak_bytes(&server);
    let zeros = vec![b'0'; 32 << 20];
    for (name, header, part) in
        [("bomb.tsv.gz", gzip(HEADER), gzip(&zeros)), ("bomb.tsv.zst", zstandard(HEADER), zstandard(&zeros))]
    {
        let mut bomb = header;
        (0..64).for_each(|_| bomb.extend(&part));
        write(&server, name, bomb);
        assert_eq!(not_loaded(&server, name), format!("ERR line 2: {TOO_LONG}"), "{name}");
    }
    assert!(peak_bytes(&server) < before + (64 << 20), "{before} bytes and then {}", peak_bytes(&server));
}

/// Whoever has begun to load a file that never ends must be able to stop that.
#[test]
fn a_load_of_one_endless_line_can_be_cancelled() {
    let server = server();
    let mut file = File::create(path(&server, "endless.tsv")).unwrap();
    file.write_all(HEADER.as_bytes()).unwrap();
    file.set_len(1 << 40).unwrap();
    // Otherwise the load fails at once, and rightly: here the line is skipped, which takes its time.
    let _: Value = ask(&mut server.connect(), "CONFIG SET card.load-max-errors 10".split(' '));
    thread::scope(|scope| {
        let load = scope.spawn(|| refused(&mut server.connect(), "CARD.LOAD list endless.tsv".split(' ')));
        let db = &mut server.connect();
        wait_for(5, "the load has begun", || server.log().contains("endless.tsv: reading"));
        let _: Value = ask(db, "CARD.LOAD list CANCEL".split(' '));
        let deadline = Instant::now() + Duration::from_secs(3);
        while !load.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let ended = load.is_finished();
        // Lets the load come to its end also where it cannot be cancelled.
        file.set_len(0).unwrap();
        let error = load.join().unwrap();
        assert!(ended, "it went on for seconds, and ended with: {error}");
        assert_eq!(error, "ERR the load was cancelled");
    });
}

/// Loads a file large enough to be caught at it, and does something when a tenth of it or more has been read.
fn load_while(server: &Server, name: &str, meanwhile: impl FnOnce()) -> redis::RedisResult<Value> {
    let _: Value = ask(&mut server.connect(), "CONFIG SET card.load-threads 1 card.load-memory 1mb".split(' '));
    write(server, name, list(1_500_000));
    thread::scope(|scope| {
        let load = scope.spawn(|| try_ask(&mut server.connect(), ["CARD.LOAD", "list", name]));
        let db = &mut server.connect();
        wait_for(10, "some of it is read", || is_being_read(db));
        meanwhile();
        load.join().unwrap()
    })
}

fn is_being_read(db: &mut Connection) -> bool {
    let info: String = ask(db, ["INFO", "everything"]);
    let percent = info.lines().find_map(|line| {
        let load = line.strip_prefix("card_load_0:")?;
        load.contains("phase=reading").then(|| load.split("percent=").nth(1)?.split(',').next()?.parse::<u64>().ok())?
    });
    percent.is_some_and(|percent| (7..50).contains(&percent))
}

#[test]
fn a_file_that_changes_while_it_is_read_is_not_loaded() {
    let server = server();
    let add = || {
        let mut file = File::options().append(true).open(path(&server, "growing.tsv")).unwrap();
        file.write_all(b"99999999999999999999\t7\t1\n").unwrap();
    };
    let error = load_while(&server, "growing.tsv", add).expect_err("it changed");
    assert_eq!(error.detail(), Some("growing.tsv changed while it was read"));
    let cut = || File::options().write(true).open(path(&server, "cut.tsv")).unwrap().set_len(20).unwrap();
    let error = load_while(&server, "cut.tsv", cut).expect_err("it changed");
    let told = error.detail().unwrap();
    assert!(told == "cut.tsv changed while it was read" || told.starts_with("line "), "{told}");
    assert_eq!(ask::<i64, _>(&mut server.connect(), ["CARD.LEN", "list"]), 1, "the old table is there");
}

#[test]
fn a_file_that_is_removed_or_replaced_while_it_is_read_is_loaded_as_it_was() {
    let server = server();
    load_while(&server, "removed.tsv", || fs::remove_file(path(&server, "removed.tsv")).unwrap()).expect("loaded");
    assert_eq!(ask::<i64, _>(&mut server.connect(), ["CARD.LEN", "list"]), 1_500_000);
    let replace = || {
        write(&server, "next.tsv", list(2));
        fs::rename(path(&server, "next.tsv"), path(&server, "replaced.tsv")).unwrap();
    };
    load_while(&server, "replaced.tsv", replace).expect("loaded");
    assert_eq!(ask::<i64, _>(&mut server.connect(), ["CARD.LEN", "list"]), 1_500_000);
    assert_loaded(&server, "replaced.tsv", 2);
}
