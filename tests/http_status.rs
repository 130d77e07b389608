//! `/healthz`, `/readyz` and `/metrics`: what monitoring sees of the gateway, of Redis and of the lists.

mod common;

use std::collections::{BTreeMap, HashSet};
use std::fs;

use common::gateway::{Gateway, server_behind, server_with};
use common::{ask, wait_for};

const QUERY: &str = "/paramquery?cardid=1&cmdtype=blacklistquery&tbtype=0";

/// The samples of Prometheus's text format, by name and labels; checks the format on the way.
#[track_caller]
fn samples(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'));
    let (mut samples, mut types, mut described) = (BTreeMap::new(), BTreeMap::new(), HashSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help");
            assert!(described.insert(name) && !help.is_empty(), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind) && described.contains(name), "{line}");
            assert!(types.insert(name, kind).is_none(), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let (name, labels) = series.split_once('{').map_or((series, None), |(name, labels)| (name, Some(labels)));
            if let Some(labels) = labels {
                let labels = labels.strip_suffix('}').expect("a brace");
                let well_formed = |label: &str| {
                    label.split_once('=').is_some_and(|(name, value)| {
                        name.bytes().all(|byte| byte.is_ascii_lowercase())
                            && value.len() > 2
                            && value.starts_with('"')
                            && value.ends_with('"')
                    })
                };
                assert!(labels.split(',').all(well_formed), "{line}");
            }
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts
                .iter()
                .find_map(|part| name.strip_suffix(part))
                .filter(|family| types.get(family) == Some(&"histogram"));
            let kind = types.get(family.unwrap_or(name)).unwrap_or_else(|| panic!("no type: {line}"));
            assert_eq!(*kind == "counter", name.ends_with("_total"), "{line}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            assert!(samples.insert(series.to_owned(), value.parse().expect("a number")).is_none(), "twice: {line}");
        }
    }
    samples
}

fn metrics(gateway: &Gateway) -> BTreeMap<String, f64> {
    let answer = gateway.status("/metrics");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    samples(&answer.body)
}

#[test]
fn healthz_tells_of_the_process_alone() {
    let server = server_behind();
    let gateway = Gateway::start(&server);
    drop(server);
    assert_eq!(gateway.status("/healthz").told(), (200, r#"{"status":"ok"}"#));
    assert_eq!(gateway.connect_status().ask("HEAD", "/healthz").status, 200);
}

#[test]
fn readyz_follows_the_list() {
    let lists = tempfile::tempdir().expect("a folder");
    let mut server = server_with(&["--card.load-dir", lists.path().to_str().expect("UTF-8")]);
    let gateway = Gateway::start(&server);
    let tables = |rest: &str| format!(r#""tables":[{{"table":"blacklist:0",{rest}}}]}}"#);
    let not_ready = |rest: &str| (503, format!(r#"{{"ready":false,{}"#, tables(rest)));
    let told = || {
        let answer = gateway.status("/readyz");
        assert_eq!(answer.json()["ready"], answer.status == 200);
        (answer.status, answer.body)
    };
    assert_eq!(told(), not_ready(r#""ready":false,"message":"there is no such table""#));
    let db = &mut server.connect();
    ask::<(), _>(db, ["CARD.CREATE", "blacklist:0"]);
    let created = r#""ready":false,"version":null,"records":0,"age_seconds":null,"stale":false,"loading":false"#;
    assert_eq!(told(), not_ready(created));

    fs::write(lists.path().join("list.tsv"), "cardId\ttype\tstatus\n1\t7\t1\n2\t7\t2\n").expect("a list");
    ask::<redis::Value, _>(db, "CARD.LOAD blacklist:0 list.tsv VERSION 201708031".split(' '));
    let loaded = gateway.status("/readyz");
    let table = &loaded.json()["tables"][0];
    assert_eq!(
        (loaded.status, &table["version"], &table["records"]),
        (200, &201708031.into(), &2.into()),
        "{loaded:?}"
    );
    assert!(table["age_seconds"].as_u64().is_some_and(|age| age < 60), "{loaded:?}");
    wait_for(5, "it grows older", || gateway.status("/readyz").json()["tables"][0]["age_seconds"].as_u64() > Some(0));

    ask::<(), _>(db, "ACL SETUSER gateway -card.info".split(' '));
    assert_eq!(told(), not_ready(r#""ready":false,"message":"Redis refuses to tell: NOPERM""#));
    server.kill();
    assert_eq!(told(), not_ready(r#""ready":false,"message":"Redis does not answer""#));
}

#[test]
fn several_tables_must_be_ready() {
    let server = server_behind();
    let tables = r#"ready_tables = { "blacklist:0", "b\"\\" }"#;
    let gateway = Gateway::with(&server, &[("gateway/settings.lua", r#"ready_tables = { "blacklist:0" }"#, tables)]);
    let db = &mut server.connect();
    ask::<(), _>(db, "CARD.SET blacklist:0 1 1 1".split(' '));
    let answer = gateway.status("/readyz");
    assert_eq!((answer.status, &answer.json()["tables"][1]["table"]), (503, &"b\"\\".into()));
    ask::<(), _>(db, ["CARD.SET", "b\"\\", "1", "1", "1"]);
    assert_eq!(gateway.status("/readyz").status, 200);
}

#[test]
fn metrics_count_requests_by_outcome_and_time() {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    let gateway = Gateway::start(&server);
    let none = metrics(&gateway);
    assert!(
        !none.keys().any(|name| name.starts_with("redis_card_http_requests_total")),
        "nothing yet, and monitoring does not count"
    );
    let mut client = gateway.connect();
    (0..20).for_each(|_| assert_eq!(client.get(QUERY).status, 200));
    (0..3).for_each(|_| assert_eq!(client.get("/paramquery?x").status, 400));
    (0..2).for_each(|_| assert_eq!(client.get("/cards/blacklist:0/2").status, 404));
    assert_eq!(client.get("/x").status, 404);
    assert_eq!(client.get("/cards/none/1").status, 503);
    // A request is counted when it has been answered, which may be a moment later.
    wait_for(5, "all are counted", || {
        metrics(&gateway)
            .iter()
            .filter(|(name, _)| name.contains("requests_total"))
            .map(|(_, count)| count)
            .sum::<f64>()
            == 27.0
    });
    let all = metrics(&gateway);
    let requests = |endpoint: &str, code: u16| {
        all.get(&format!(r#"redis_card_http_requests_total{{endpoint="{endpoint}",code="{code}"}}"#)).copied()
    };
    assert_eq!(requests("paramquery", 200), Some(20.0));
    assert_eq!(requests("paramquery", 400), Some(3.0));
    assert_eq!(requests("cards", 404), Some(2.0));
    assert_eq!(requests("cards", 503), Some(1.0));
    assert_eq!(requests("other", 404), Some(1.0));

    let duration = "redis_card_http_request_duration_seconds";
    for (endpoint, count) in [("paramquery", 23.0), ("cards", 3.0), ("other", 1.0)] {
        let bounds = ["0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.25", "0.5", "1", "+Inf"];
        let buckets = bounds.map(|bound| all[&format!(r#"{duration}_bucket{{endpoint="{endpoint}",le="{bound}"}}"#)]);
        assert!(buckets.is_sorted(), "{buckets:?}");
        assert_eq!((buckets[10], all[&format!(r#"{duration}_count{{endpoint="{endpoint}"}}"#)]), (count, count));
        assert!(all[&format!(r#"{duration}_sum{{endpoint="{endpoint}"}}"#)] >= 0.0);
    }
    assert_eq!(all["redis_card_http_redis_failures_total"], 1.0);
    let connections = all["redis_card_http_redis_connections_total"];
    assert!((1.0..10.0).contains(&connections), "a pool: {connections}");
    gateway.assert_sound();
}

#[test]
fn metrics_have_every_figure_of_the_module_and_go_on_without_redis() {
    let server = server_behind();
    let db = &mut server.connect();
    ask::<(), _>(db, "CARD.MSET blacklist:0 1 1 1 2 1 1".split(' '));
    ask::<redis::Value, _>(db, "CARD.MGET blacklist:0 1 2 3".split(' '));
    let gateway = Gateway::start(&server);
    let all = metrics(&gateway);
    assert_eq!(all["redis_up"], 1.0);
    let info: String = ask(db, ["INFO", "card"]);
    let figures: Vec<_> = info.lines().filter_map(|line| line.strip_prefix("card_")?.split_once(':')).collect();
    assert!(figures.len() > 5, "{info}");
    for (name, value) in figures {
        let metric = all.get(&format!("redis_card_{name}")).or(all.get(&format!("redis_card_{name}_total")));
        assert_eq!(metric, Some(&value.parse().expect("a number")), "{name}");
    }
    assert_eq!(
        (all["redis_card_records"], all["redis_card_hits_total"], all["redis_card_misses_total"]),
        (2.0, 2.0, 1.0)
    );
    drop(server);
    let without = metrics(&gateway);
    assert_eq!(without["redis_up"], 0.0);
    assert!(
        without.contains_key("redis_card_http_redis_failures_total") && !without.contains_key("redis_card_records")
    );
    gateway.assert_sound();
}
