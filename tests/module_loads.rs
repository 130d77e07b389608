//! The module as a server sees it: it loads, under its name and version.

mod common;

use std::collections::HashMap;

use common::Server;
use redis::Value;

#[test]
fn a_server_lists_the_module_under_its_name_and_version() {
    let server = Server::start();

    let modules: Vec<HashMap<String, Value>> =
        redis::cmd("MODULE").arg("LIST").query(&mut server.connect()).expect("MODULE LIST answers");

    assert_eq!(modules.len(), 1, "{modules:?}");
    assert_eq!(modules[0]["name"], Value::BulkString(b"card".to_vec()));
    assert_eq!(modules[0]["ver"], Value::Int(version_number()));
}

/// 1.2.3 as 10203, the form in which `MODULE LIST` shows a version.
fn version_number() -> i64 {
    let parts = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<i64>().expect("a number"));
    parts.fold(0, |number, part| number * 100 + part)
}
