//! Sends a table that was built here to any Redis: into a staging key, a few blocks at a time, and then at once into its place.
//!
//! The staging key has the name that the module's own loads use, so a left-over of either is replaced by the next load.

use card_table::Table;
use indicatif::ProgressBar;

use crate::failure::Failure;
use crate::interrupt::Interruptible;
use crate::server::Server;

/// What is sent in one command: the server is busy with it for less than a millisecond.
const PIECE_BYTES: usize = 256 << 10;

/// How many are sent before their answers are waited for.
const PIECES_AT_ONCE: usize = 4;

/// How much may wait to be sent to a replica, below the limit of 256 MB at which Redis would cut it off.
const MAX_BYTES_BEHIND: u64 = 32 << 20;

/// How often that is looked at, in pieces.
const LOOK_EVERY: usize = 64;

const WAIT: std::time::Duration = std::time::Duration::from_millis(20);

/// Where a table came from.
pub struct Origin<'a> {
    pub version: Option<u64>,
    pub source: &'a [u8],
    pub rows: u64,
}

/// Puts a table in the place of what `key` holds. The bar counts the table's records.
pub fn replace(
    server: &mut Server,
    key: &[u8],
    table: Table,
    origin: &Origin,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let staging = staging_key(key);
    let begin = redis::cmd("CARD.STAGE").arg(&staging).arg("BEGIN").arg(table.header_bytes()).to_owned();
    let mut for_cleaning = server.another()?;
    server.ask::<()>(&begin)?;
    let unlink = redis::cmd("UNLINK").arg(&staging).to_owned();
    let removed = unlink.clone();
    let _interruptible = Interruptible::new(move || {
        let _ = for_cleaning.ask::<()>(&removed);
    });
    let outcome = send(server, &staging, table, bar).and_then(|()| server.ask(&commit(&staging, key, origin)));
    if outcome.is_err() {
        // If that fails as well, the next load replaces it.
        let _ = server.ask::<()>(&unlink);
    }
    outcome
}

fn send(server: &mut Server, staging: &[u8], table: Table, bar: &ProgressBar) -> Result<(), Failure> {
    let mut pieces = table.into_pieces(PIECE_BYTES).enumerate().peekable();
    while let Some((at, _)) = pieces.peek() {
        if at % LOOK_EVERY == 0 {
            wait_for_replicas(server)?;
        }
        let mut commands = redis::pipe();
        let mut records = 0;
        for (_, piece) in pieces.by_ref().take(PIECES_AT_ONCE) {
            records += piece.len() as u64;
            commands.cmd("CARD.STAGE").arg(staging).arg("FRAMES").arg(piece.to_bytes());
        }
        server.ask_all::<()>(&commands)?;
        bar.inc(records);
    }
    Ok(())
}

fn commit(staging: &[u8], key: &[u8], origin: &Origin) -> redis::Cmd {
    let mut commit = redis::cmd("CARD.COMMIT");
    commit.arg(staging).arg(key).arg("SOURCE").arg(origin.source).arg("ROWS").arg(origin.rows);
    if let Some(version) = origin.version {
        commit.arg("VERSION").arg(version);
    }
    commit
}

/// Waits while a replica is far behind. A user who may not ask for that does not wait.
fn wait_for_replicas(server: &mut Server) -> Result<(), Failure> {
    while let Some(told) = server.ask_if_allowed::<String>(redis::cmd("INFO").arg("replication"))? {
        if most_bytes_behind(&told) <= MAX_BYTES_BEHIND {
            break;
        }
        std::thread::sleep(WAIT);
    }
    Ok(())
}

/// Of the replicas that receive changes, the one that is farthest behind.
fn most_bytes_behind(told: &str) -> u64 {
    let sent = told.lines().find_map(|line| line.strip_prefix("master_repl_offset:")?.parse::<u64>().ok());
    let received = told.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
    let received =
        received.filter_map(|line| line.split(',').find_map(|part| part.strip_prefix("offset=")?.parse().ok()));
    received.map(|received: u64| sent.unwrap_or(0).saturating_sub(received)).max().unwrap_or(0)
}

/// The name that the module gives it: in a cluster, the key that is in the same slot as the table.
fn staging_key(key: &[u8]) -> Vec<u8> {
    const SUFFIX: &[u8] = b".staging";
    let open = key.iter().position(|&byte| byte == b'{');
    let has_tag =
        open.is_some_and(|open| key[open + 1..].iter().position(|&byte| byte == b'}').is_some_and(|len| len > 0));
    if has_tag || key.contains(&b'}') || key.is_empty() {
        [key, SUFFIX].concat()
    } else {
        [b"{", key, b"}", SUFFIX].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staging_key_is_named_as_the_module_names_it() {
        for (key, expected) in [
            ("blacklist:0", "{blacklist:0}.staging"),
            ("list:{7}", "list:{7}.staging"),
            ("{a}b{c}", "{a}b{c}.staging"),
            ("a{b", "{a{b}.staging"),
            ("a}b", "a}b.staging"),
            ("a{}b", "a{}b.staging"),
        ] {
            assert_eq!(staging_key(key.as_bytes()), expected.as_bytes());
        }
    }

    #[test]
    fn the_replica_that_is_farthest_behind_counts() {
        let told = "# Replication\r\nrole:master\r\n\
            slave0:ip=127.0.0.1,port=1,state=online,offset=900,lag=0\r\n\
            slave1:ip=127.0.0.1,port=2,state=online,offset=400,lag=0\r\n\
            slave2:ip=127.0.0.1,port=3,state=wait_bgsave,offset=0,lag=0\r\n\
            master_repl_offset:1000\r\n";
        assert_eq!(most_bytes_behind(told), 600);
        assert_eq!(most_bytes_behind("role:master\r\nmaster_repl_offset:1000\r\n"), 0);
        assert_eq!(most_bytes_behind(""), 0);
    }
}
