//! `docs/openapi.yaml` is what a running gateway does: every answer that it describes is asked for, and is as described.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::ask;
use common::gateway::{Answer, Client, Gateway, project, server_behind};
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

struct Description(Yaml);

impl Description {
    fn read() -> Description {
        let text = fs::read_to_string(project().join("docs/openapi.yaml")).expect("the description");
        Description(YamlLoader::load_from_str(&text).expect("YAML").remove(0))
    }

    /// What a node is, wherever it is written.
    fn resolved<'a>(&'a self, node: &'a Yaml) -> &'a Yaml {
        let Some(reference) = node["$ref"].as_str() else { return node };
        let path = reference.strip_prefix("#/").expect("a place in the description").split('/');
        let found = path.fold(&self.0, |node, name| &node[name]);
        assert!(!found.is_badvalue(), "{reference} is nowhere");
        found
    }

    /// Every path and status that is described.
    fn answers(&self) -> BTreeSet<(String, String)> {
        let paths = self.0["paths"].as_hash().expect("paths");
        let mut all = BTreeSet::new();
        for (path, item) in paths {
            for status in item["get"]["responses"].as_hash().expect("responses").keys() {
                all.insert((path.as_str().expect("a path").to_owned(), status.as_str().expect("a status").to_owned()));
            }
        }
        all
    }

    /// An answer is as it is described for a path and a status.
    #[track_caller]
    fn check(&self, path: &str, status: &str, answer: &Answer) {
        assert!(status == "default" || status == answer.status.to_string(), "{path} {status}: {answer:?}");
        let response = self.resolved(&self.0["paths"][path]["get"]["responses"][status]);
        let content = response["content"].as_hash().expect("content");
        let (kind, content) = content.front().expect("one kind");
        assert_eq!(answer.header("content-type"), kind.as_str(), "{path} {status}");
        let value = if kind.as_str() == Some("application/json") { answer.json() } else { answer.body.clone().into() };
        let verdict = self.validate(&content["schema"], &value);
        assert_eq!(verdict, Ok(()), "{path} {status}: {answer:?}");
    }

    /// As much of JSON Schema as the description uses; a word that is not known here is a mistake.
    fn validate(&self, schema: &Yaml, value: &Value) -> Result<(), String> {
        let schema = self.resolved(schema);
        let fail = |what: &str| Err(format!("{what}: {value} is not {schema:?}"));
        for (word, rule) in schema.as_hash().expect("a schema") {
            let texts = |rule: &Yaml| rule.as_vec().map_or_else(|| vec![rule.clone()], Clone::clone);
            let holds = match word.as_str().expect("a word") {
                "description" => true,
                "type" => texts(rule).iter().any(|kind| is_a(value, kind.as_str().expect("a type"))),
                "enum" => rule.as_vec().expect("values").iter().any(|one| match one {
                    Yaml::Boolean(one) => value == one,
                    one => value.as_str() == one.as_str(),
                }),
                "maxLength" => {
                    value.as_str().is_none_or(|text| text.chars().count() as i64 <= rule.as_i64().expect("a number"))
                }
                "maxItems" => {
                    value.as_array().is_none_or(|items| items.len() as i64 <= rule.as_i64().expect("a number"))
                }
                "required" => {
                    rule.as_vec().expect("names").iter().all(|name| value.get(name.as_str().expect("a name")).is_some())
                }
                "oneOf" => {
                    rule.as_vec().expect("schemas").iter().filter(|one| self.validate(one, value).is_ok()).count() == 1
                }
                "items" => {
                    value.as_array().into_iter().flatten().try_for_each(|item| self.validate(rule, item))?;
                    true
                }
                "properties" => {
                    for (name, schema) in rule.as_hash().expect("properties") {
                        value
                            .get(name.as_str().expect("a name"))
                            .map_or(Ok(()), |value| self.validate(schema, value))?;
                    }
                    true
                }
                "additionalProperties" => {
                    let known = |name: &str| !schema["properties"][name].is_badvalue();
                    let mut others = value.as_object().into_iter().flatten().filter(|(name, _)| !known(name));
                    match rule {
                        Yaml::Boolean(allowed) => *allowed || others.next().is_none(),
                        rule => {
                            others.try_for_each(|(_, value)| self.validate(rule, value))?;
                            true
                        }
                    }
                }
                other => panic!("{other} is not known here"),
            };
            if !holds {
                return fail(word.as_str().unwrap_or_default());
            }
        }
        Ok(())
    }
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}

/// Good and bad requests to each path that is described.
const QUERIES: [(&str, &[&str], &[&str]); 3] = [
    (
        "/paramquery",
        &[
            "/paramquery?cardid=1&cmdtype=blacklistquery&tbtype=0",
            "/paramquery?cardid=2&cmdtype=blacklistquery&tbtype=0&serialno=7",
        ],
        &["/paramquery", "/paramquery?cardid=1&cmdtype=x&tbtype=0", "/paramquery?tbtype=x"],
    ),
    ("/cards/{table}/{id}", &["/cards/blacklist:0/1"], &["/cards/blacklist:0/", "/cards/blacklist:0/1?x"]),
    ("/cards/{table}", &["/cards/blacklist:0?id=1&id=2"], &["/cards/blacklist:0", "/cards/blacklist:0?x=1"]),
];
const STATUS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

fn raw(mut client: Client, request: &str) -> Answer {
    client.send(request);
    client.answer().unwrap_or_else(|error| panic!("{error}: {request:.100}"))
}

#[test]
fn every_answer_that_is_described_is_given_and_as_described() {
    let description = Description::read();
    let mut server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    let gateway = Gateway::start(&server);
    let limited = Gateway::with(
        &server,
        &[
            ("site.conf", "# limit_req zone=gateway_clients burst=50", "limit_req zone=gateway_clients burst=1"),
            ("site.conf", "rate=100r/s", "rate=1r/m"),
        ],
    );
    let mut seen = BTreeSet::new();
    let mut check = |path: &str, status: &str, answer: Answer| {
        description.check(path, status, &answer);
        seen.insert((path.to_owned(), status.to_owned()));
    };
    let long = "x".repeat(70_000);
    let head = "HTTP/1.1\r\nHost: gateway\r\n";
    for (path, good, bad) in QUERIES {
        good.iter().for_each(|target| check(path, "200", gateway.get(target)));
        bad.iter().for_each(|target| check(path, "400", gateway.get(target)));
        check(path, "405", gateway.connect().ask("POST", good[0]));
        check(path, "414", gateway.get(&format!("{}{long}", good[0])));
        check(path, "431", raw(gateway.connect(), &format!("GET {} {head}X: {long}\r\n\r\n", good[0])));
        (0..3).for_each(|_| drop(limited.get(good[0])));
        check(path, "429", limited.get(good[0]));
        for line in ["If-Match: x", "Content-Length: 9999999", "Transfer-Encoding: x", "Content-Length: x"] {
            check(path, "default", raw(gateway.connect(), &format!("GET {} {head}{line}\r\n\r\n", good[0])));
        }
        check(path, "default", raw(gateway.connect(), &format!("GET {} HTTP/7.0\r\n\r\n", good[0])));
    }
    check("/cards/{table}/{id}", "404", gateway.get("/cards/blacklist:0/2"));
    check("/cards/{table}/{id}", "404", gateway.get("/cards/blacklist:0/2/3"));
    check("/paramquery", "503", gateway.get("/paramquery?cardid=1&cmdtype=blacklistquery&tbtype=1"));
    for path in STATUS {
        check(path, "200", gateway.status(path));
        check(path, "405", gateway.connect_status().ask("POST", path));
        check(path, "default", raw(gateway.connect_status(), &format!("GET {path} {head}If-Match: x\r\n\r\n")));
        check(path, "default", raw(gateway.connect_status(), &format!("GET {path} {head}X: {long}\r\n\r\n")));
    }
    let broken =
        Gateway::with(&server, &[("gateway/paramquery.lua", "    local tbtype =", "    error()\n    local tbtype =")]);
    check("/paramquery", "default", broken.get("/paramquery"));
    server.kill();
    QUERIES.iter().for_each(|(path, good, _)| check(path, "503", gateway.get(good[0])));
    check("/readyz", "503", gateway.status("/readyz"));
    check("/metrics", "200", gateway.status("/metrics"));
    assert_eq!(seen, description.answers(), "all that is described, and nothing else");
}

#[test]
fn the_validator_refuses_what_is_not_described() {
    let description = Description::read();
    let schema = |name: &str| &description.0["components"]["schemas"][name];
    let verdict =
        |name: &str, json: &str| description.validate(schema(name), &serde_json::from_str(json).expect("JSON")).is_ok();
    assert!(verdict("Card", r#"{"id":"1","type":7,"big":"9007199254740993"}"#));
    assert!(
        !verdict("Card", r#"{"type":7}"#)
            && !verdict("Card", r#"{"id":1}"#)
            && !verdict("Card", r#"{"id":"1","type":null}"#)
    );
    let not_listed = r#"{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"","version":""}"#;
    assert!(
        verdict("NotListed", not_listed) && !verdict("Listed", not_listed) && !verdict("QueryUnavailable", not_listed)
    );
    assert!(!verdict("NotListed", &not_listed.replace("\"0\"", "0")));
    assert!(!verdict("Readiness", r#"{"ready":true,"tables":[{"table":"t","ready":true,"message":"x"}]}"#));
}
