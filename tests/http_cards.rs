//! `GET /cards/<table>/<id>` and `GET /cards/<table>?id=…`: cards for those who come without the legacy names.

mod common;

use common::gateway::{Gateway, server_behind};
use common::{Server, ask};

const NOT_FOUND: &str = r#"{"error":"card_not_found","message":"the table has no such card"}"#;

fn gateway() -> (Server, Gateway) {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.MSET t 44015186100181001473 7 1 007 0 2".split(' '));
    let gateway = Gateway::start(&server);
    (server, gateway)
}

#[track_caller]
fn refused(gateway: &Gateway, target: &str) -> (u16, String, String) {
    let answer = gateway.get(target);
    (answer.status, answer.error(), answer.json()["message"].as_str().expect("a sentence").into())
}

#[test]
fn one_card_is_told_or_not_found() {
    let (_server, gateway) = gateway();
    let listed = r#"{"id":"44015186100181001473","type":7,"status":1}"#;
    assert_eq!(gateway.get("/cards/t/44015186100181001473").told(), (200, listed));
    assert_eq!(gateway.get("/cards/%74/%34%34015186100181001473").told(), (200, listed));
    assert_eq!(gateway.get("/cards/t/7").told(), (404, NOT_FOUND), "007 is another card");
    let head = gateway.connect().ask("HEAD", "/cards/t/44015186100181001473");
    assert_eq!((head.status, head.header("content-length")), (200, Some(listed.len().to_string().as_str())));
    gateway.assert_sound();
}

#[test]
fn many_cards_are_an_array_with_null_where_one_is_absent() {
    let (_server, gateway) = gateway();
    let listed = r#"{"id":"44015186100181001473","type":7,"status":1}"#;
    let seven = r#"{"id":"007","type":0,"status":2}"#;
    for (query, cards) in [
        ("id=44015186100181001473", format!("[{listed}]")),
        ("id=1", "[null]".into()),
        ("id=1&id=007&id=44015186100181001473&id=007", format!("[null,{seven},{listed},{seven}]")),
        ("&i%64=%3007&&id=7&", format!("[{seven},null]")),
    ] {
        assert_eq!(gateway.get(&format!("/cards/t?{query}")).told(), (200, cards.as_str()), "{query}");
    }
}

#[test]
fn a_thousand_ids_are_answered_and_one_more_is_refused() {
    let (_server, gateway) = gateway();
    let ids = |count: u64| (0..count).map(|id| format!("id={:020}&", id)).collect::<String>();
    let answer = gateway.get(&format!("/cards/t?{}", ids(1000)));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json().as_array().expect("an array").len(), 1000);
    let answer = gateway.get(&format!("/cards/t?{}id=44015186100181001473", ids(999)));
    assert_eq!(answer.json()[999]["type"], 7);
    let more = refused(&gateway, &format!("/cards/t?{}", ids(1001)));
    assert_eq!(more, (400, "bad_parameter".into(), "there are more than 1000 ids".into()));
}

#[test]
fn an_id_is_exactly_what_was_sent() {
    let (server, gateway) = gateway();
    let db = &mut server.connect();
    let ids = [
        ("a//b", "a%2F%2Fb"),
        ("..", "%2E%2E"),
        ("../t/007", "..%2Ft%2F007"),
        ("a b", "a%20b"),
        ("a+b", "a+b"),
        ("a#b?c&d=e%f", "a%23b%3Fc%26d%3De%25f"),
        ("été\"\\", "%C3%A9t%c3%a9%22%5C"),
        ("a;b,c:d@e", "a;b,c:d@e"),
    ];
    for (id, _) in ids {
        ask::<(), _>(db, ["CARD.SET", "t", id, "5", "1"]);
        ask::<(), _>(db, ["CARD.SET", "odd / table+", id, "6", "1"]);
    }
    for (id, encoded) in ids {
        for (table, type_) in [("t", 5), ("odd%20%2f%20table+", 6)] {
            let answer = gateway.get(&format!("/cards/{table}/{encoded}"));
            assert_eq!((answer.status, &answer.json()["id"], &answer.json()["type"]), (200, &id.into(), &type_.into()));
            let query = format!("/cards/{table}?id={}", encoded.replace('+', "%2B"));
            assert_eq!(gateway.get(&query).json()[0]["id"], id, "{query}");
        }
    }
    assert_eq!(gateway.get("/cards/t?id=a+b").json()[0]["id"], "a b", "a plus sign in a query is a space");
    gateway.assert_sound();
}

#[test]
fn a_bad_request_is_400_and_told() {
    let (server, gateway) = gateway();
    let long = "9".repeat(4097);
    let table = "t".repeat(256);
    for (target, message) in [
        ("/cards/", "table is missing"),
        ("/cards//1", "table is missing"),
        (&format!("/cards/{table}/1"), "table has more than 255 bytes"),
        ("/cards/t", "id is missing"),
        ("/cards/t?", "id is missing"),
        ("/cards/t?&&", "id is missing"),
        ("/cards/t/", "id is empty"),
        ("/cards/t?id=", "id is empty"),
        ("/cards/t?id=1&id", "id is empty"),
        ("/cards/t?id=%4", "id has a bad percent-encoding"),
        ("/cards/t?id=%zz", "id has a bad percent-encoding"),
        ("/cards/t?ids=1", "id is the only parameter there is"),
        ("/cards/t?id=1&x=1", "id is the only parameter there is"),
        ("/cards/t/1?id=2", "a single card has no parameters"),
        (&format!("/cards/t/{long}"), "id has more than 4096 bytes"),
        (&format!("/cards/t?id=1&id={long}"), "id has more than 4096 bytes"),
        ("/cards/t/0#07", "the request has a #, which must be encoded"),
    ] {
        assert_eq!(refused(&gateway, target), (400, "bad_parameter".into(), message.into()), "{target}");
    }
    let longest = &long[1..];
    assert_eq!(gateway.get(&format!("/cards/t/{longest}")).told(), (404, NOT_FOUND), "and this is allowed");
    // A card that JSON cannot tell is there all the same.
    ask::<(), _>(&mut server.connect(), [b"CARD.SET".as_slice(), b"t", b"\xff", b"1", b"1"]);
    assert_eq!(refused(&gateway, "/cards/t/%ff"), (400, "bad_parameter".into(), "id is not UTF-8".into()));
    for path in ["/cards", "/cards/t/1/2", "/cards/t/1/", "/cards/../x"] {
        assert_eq!(gateway.get(path).error(), "path_not_found", "{path}");
    }
    gateway.assert_sound();
}

#[test]
fn a_table_that_cannot_be_asked_is_503_and_never_404() {
    let (server, gateway) = gateway();
    let db = &mut server.connect();
    ask::<(), _>(db, ["CARD.CREATE", "created"]);
    ask::<(), _>(db, ["SET", "text", "x"]);
    for (table, message) in [
        ("missing", "there is no such table"),
        ("text", "there is no such table"),
        ("created", "the table is not loaded yet"),
        ("44015186100181001473", "there is no such table"),
    ] {
        for target in [format!("/cards/{table}/1"), format!("/cards/{table}?id=1&id=2")] {
            assert_eq!(refused(&gateway, &target), (503, "unavailable".into(), message.into()), "{target}");
        }
    }
    drop(server);
    let down = (503, "unavailable".to_owned(), "the table cannot be asked now".to_owned());
    assert_eq!(refused(&gateway, "/cards/t/007"), down);
    assert_eq!(refused(&gateway, "/cards/t?id=7"), down);
    gateway.assert_sound();
}
