//! `make start`, `make stop`, `make status` and `make run`: both servers come and go together, and whatever is in their way is
//! told in a sentence.

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::clone::Clone;
use common::wait_for;

const UNLISTED: &str =
    "/paramquery?cardid=2030230000000002&cardnet=4401&cmdtype=blacklistquery&serialno=1005&tbtype=0&version=201708031";
const LISTED: &str =
    "/paramquery?cardid=5186100181001473&cardnet=4401&cmdtype=blacklistquery&serialno=1011&tbtype=0&version=201708031";
const ANSWERS: [(&str, &str); 2] = [
    (
        UNLISTED,
        r#"{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"1005","version":"201708031"}"#,
    ),
    (
        LISTED,
        concat!(
            r#"{"cmdtype":"blacklistqueryresult","darkstatus0":"1","darktype0":"7","darkver0":"1970-01-01 08:00:00","#,
            r#""errorcode":"0","recordcnt":"1","serialno":"1011","status":"1","type":"7","version":"201708031"}"#
        ),
    ),
];

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_newcomer_starts_it_asks_it_proves_it_and_stops_it() {
    let clone = Clone::new();
    let told = clone.make_well("start");
    for (query, answer) in ANSWERS {
        assert_eq!(clone.get(query), answer);
        assert!(told.contains(query) && told.contains(answer), "{told}");
    }
    assert!(told.contains("1000000 cards in 5."), "{told}");
    assert!(clone.make_well("status").contains("\"ready\":true"));

    let verified = Command::new(clone.path("target/release/cardctl"))
        .args([
            "verify",
            "run/lists/done/blacklist:0.201708031.full.tsv",
            "--table",
            "blacklist:0",
            "--json",
            "--redis",
        ])
        .arg(format!("redis://127.0.0.1:{}", clone.redis_port))
        .current_dir(clone.folder.path())
        .output()
        .expect("cardctl runs");
    let verified: serde_json::Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    for (name, count) in
        [("checked", 1_000_000), ("absent_checked", 1_000_000), ("wrong", 0), ("missing", 0), ("unexpected", 0)]
    {
        assert_eq!(verified[name], count, "{verified}");
    }

    assert!(clone.make_well("start").contains("it runs already"));
    assert!(clone.make_in_vain("run").contains("it runs already"));
    assert!(clone.make_well("stop").contains("stopped"));
    clone.assert_is_gone();
    assert!(clone.make_in_vain("status").contains("it does not run"));
    assert!(clone.make_well("stop").contains("it does not run"));

    // The list is still there: it is not made a second time.
    let again = clone.make_well("start");
    assert!(!again.contains("sample list"), "{again}");
    assert_eq!(clone.get(LISTED), ANSWERS[1].1);
}

#[test]
fn it_runs_in_the_foreground_until_it_is_interrupted() {
    let clone = Clone::new();
    let out = fs::File::options().create(true).append(true).open(clone.path("out")).expect("a file");
    let both = out.try_clone().expect("a second handle");
    // A terminal interrupts make and all that it has started.
    let mut make: Child = clone.command("run").stdout(out).stderr(both).process_group(0).spawn().expect("make runs");
    let told = || fs::read_to_string(clone.path("out")).expect("a file");
    wait_for(60, "it runs", || told().contains("Ctrl-C stops it"));
    assert_eq!(clone.get(LISTED), ANSWERS[1].1);
    let group = format!("-{}", make.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().expect("kill").success());
    make.wait().expect("make is our child");
    assert!(told().contains("stopping"), "{}", told());
    clone.assert_is_gone();
}

#[test]
fn it_ends_when_one_of_the_two_does() {
    let clone = Clone::new();
    let out = fs::File::create(clone.path("out")).expect("a file");
    let make = clone.command("run").stdout(out).stderr(Stdio::piped()).spawn().expect("make runs");
    let told = || fs::read_to_string(clone.path("out")).expect("a file");
    wait_for(60, "it runs", || told().contains("Ctrl-C stops it"));
    assert!(Command::new("kill").args(["-9", &clone.pid("redis").to_string()]).status().expect("kill").success());
    let ended = make.wait_with_output().expect("make is our child");
    assert!(!ended.status.success());
    assert!(String::from_utf8_lossy(&ended.stderr).contains("one of the two has ended"), "{ended:?}");
    clone.make("stop");
    assert!(TcpListener::bind(("127.0.0.1", clone.port)).is_ok(), "nginx has been stopped");
}

#[test]
fn a_port_that_is_taken_is_told_and_nothing_is_left_running() {
    let clone = Clone::new();
    for (port, file) in [(clone.redis_port, "redis.conf"), (clone.port, "site.conf"), (clone.status_port, "site.conf")]
    {
        let taken = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let told = clone.make_in_vain("start");
        assert!(told.contains(&format!("{port} is taken by another program")) && told.contains(file), "{told}");
        drop(taken);
        clone.assert_is_gone();
    }
}

#[test]
fn pid_files_that_are_left_over_are_no_obstacle_and_no_one_elses_process_is_harmed() {
    let clone = Clone::new();
    clone.make_well("start");
    let (redis, nginx) = (clone.pid("redis"), clone.pid("nginx"));
    // Killed with -9, nginx would leave its workers behind.
    for (signal, pid) in [("-9", redis), ("-TERM", nginx)] {
        assert!(Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill").success());
    }
    wait_for(5, "both are gone", || !is_alive(redis) && !is_alive(nginx));
    // By now the numbers are somebody else's.
    let mut other = Command::new("sleep").arg("60").spawn().expect("sleep runs");
    for file in ["run/redis.pid", "run/nginx.pid"] {
        fs::write(clone.path(file), other.id().to_string()).expect("a pid file");
    }
    assert!(clone.make_well("stop").contains("it does not run"));
    clone.make_well("start");
    assert_eq!(clone.get(LISTED), ANSWERS[1].1);
    assert!(other.try_wait().expect("our child").is_none(), "it still sleeps");
    other.kill().expect("it is ours");
    other.wait().expect("it is ours");
}
