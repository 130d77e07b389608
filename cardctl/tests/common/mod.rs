//! Runs cardctl as scripts do, and the servers of the module's own tests.

// Every test file is a program of its own, and uses a part of this.
#![allow(dead_code)]

#[path = "../../../tests/common/mod.rs"]
pub mod servers;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use redis::Connection;
use serde_json::Value;
use tempfile::TempDir;

use servers::Server;

pub const HEADER: &str = "cardId\ttype\tstatus\n";

/// What became of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn new(output: Output) -> Ran {
        Ran {
            code: output.status.code().expect("no signal ended it"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// The one object on the standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn ends_with_code(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// It failed with a sentence, and nothing that looks like a bug.
    #[track_caller]
    pub fn failed(self, code: i32, sentence: &str) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(sentence), "{self:?} does not say '{sentence}'");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }
}

/// A folder of its own for files, and cardctl started in it.
pub struct Desk {
    folder: TempDir,
    url: Option<String>,
}

impl Desk {
    pub fn new() -> Desk {
        Desk { folder: tempfile::tempdir().expect("a temporary directory"), url: None }
    }

    /// One whose cardctl asks a server.
    pub fn at(server: &Server) -> Desk {
        let url = format!("unix://{}", server.directory().join("socket").display());
        Desk { url: Some(url), ..Desk::new() }
    }

    /// The same by another address.
    pub fn at_url(url: &str) -> Desk {
        Desk { url: Some(url.into()), ..Desk::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A list of these rows, each `id type status`.
    pub fn list(&self, name: &str, rows: &[&str]) -> PathBuf {
        let rows: String = rows.iter().map(|row| row.replace(' ', "\t") + "\n").collect();
        self.file(name, HEADER.to_owned() + &rows)
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("it can be written");
        path
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("it can be read")
    }

    /// The names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        names_in(self.folder.path())
    }

    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cardctl"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        // A server of whoever runs the tests is none of ours.
        command.env_remove("CARDCTL_REDIS");
        if let Some(url) = &self.url {
            command.env("CARDCTL_REDIS", url);
        }
        command
    }

    /// Runs `cardctl` with the words of a line.
    pub fn run(&self, line: &str) -> Ran {
        self.run_words(line.split_whitespace())
    }

    pub fn run_words<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        Ran::new(self.command(arguments).output().expect("cardctl runs"))
    }
}

/// Ctrl-C, or another signal.
pub fn interrupt(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// A server with the list `list` of so many cards, and the desk that it came from.
pub fn loaded(rows: u64, set: &str) -> (Server, Connection, Desk) {
    let server = Server::start();
    let desk = Desk::at(&server);
    desk.run(&format!("gen --rows {rows} --set {set} -o list.tsv")).ends_with_code(0);
    desk.run("load list.tsv --table list").ends_with_code(0);
    let db = server.connect();
    (server, db, desk)
}
