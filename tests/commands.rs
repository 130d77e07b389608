//! What each command does, and how it refuses what it cannot do.

mod common;

use common::{Server, ask, refused};

#[test]
fn a_card_is_set_and_got() {
    let server = Server::start();
    let db = &mut server.connect();

    assert_eq!(ask::<i64, _>(db, ["CARD.SET", "t", "44015186100181001473", "7", "1"]), 1);
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "t", "44015186100181001473"]), [7, 1]);
    assert_eq!(ask::<i64, _>(db, ["CARD.SET", "t", "44015186100181001473", "7", "2"]), 0);
    assert_eq!(ask::<Vec<u64>, _>(db, ["CARD.GET", "t", "44015186100181001473"]), [7, 2]);
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "t", "4"]), None);
    assert_eq!(ask::<Option<Vec<u64>>, _>(db, ["CARD.GET", "no table", "4"]), None);
    assert_eq!(refused(db, ["CARD.SET", "t", "1", "11", "1"]), "ERR type must be between 0 and 10, got '11'");
}
