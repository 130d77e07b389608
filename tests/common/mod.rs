//! A real redis-server with the module loaded, for one test: it listens on a Unix socket in a directory of its own (and on
//! a port, where one is asked for), so that tests run side by side, and it ends with the test, also with one that fails.

// Every test file is a program of its own, and uses a part of this.
#![allow(dead_code)]

pub mod clone;
pub mod deltas;
pub mod gateway;
pub mod kinds;
pub mod watched;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, thread};

use redis::{Client, Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisResult, Value};
use tempfile::TempDir;

/// A server needs a few milliseconds; the rest is for a machine that is busy compiling.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The module, as of now. `cargo test` does not build a cdylib, and a file found in the target directory may be an old one;
/// so cargo builds it here, as it ships, without the tests' dependencies, and says where it is. Its package is named because
/// cardctl's tests need it too.
pub static MODULE: LazyLock<PathBuf> = LazyLock::new(|| {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let build = Command::new(env!("CARGO"))
        .args([
            "build",
            "--package",
            "redis-card",
            "--lib",
            "--profile",
            profile,
            "--message-format",
            "json-render-diagnostics",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(build.status.success(), "cargo build failed: {}", build.status);
    let messages = String::from_utf8(build.stdout).expect("cargo writes UTF-8");
    let path = messages.split('"').find(|text| text.ends_with("/libredis_card.so"));
    PathBuf::from(path.expect("cargo names the module it built"))
});

pub struct Server {
    process: Child,
    directory: TempDir,
    arguments: Vec<String>,
    port: u16,
}

impl Server {
    /// Starts `$REDIS_SERVER`, or the `redis-server` on the PATH, and waits until it answers.
    pub fn start() -> Self {
        Server::with(&[])
    }

    /// The same with arguments such as `["--appendonly", "yes"]`. Nothing is saved unless they say so.
    pub fn with(arguments: &[&str]) -> Self {
        Server::spawn(0, arguments)
    }

    /// The same with a port on loopback, for what does not work over a Unix socket: replicas, clusters, MIGRATE.
    pub fn with_port(arguments: &[&str]) -> Self {
        Server::spawn(free_port(), arguments)
    }

    fn spawn(port: u16, arguments: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("redis-card-").tempdir().expect("a temporary directory");
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.into()).collect();
        let process = process(directory.path(), port, &arguments);
        let mut server = Server { process, directory, arguments, port };
        server.wait_until_it_answers();
        server
    }

    /// A connection of its own to database 0.
    pub fn connect(&self) -> Connection {
        self.try_connect().expect("the server takes connections")
    }

    /// A connection that speaks RESP3.
    pub fn connect_resp3(&self) -> Connection {
        let info = self.address().into_connection_info().expect("an address");
        let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        Client::open(info.set_redis_settings(settings)).and_then(|client| client.get_connection()).expect("RESP3")
    }

    fn address(&self) -> ConnectionAddr {
        ConnectionAddr::Unix(self.directory.path().join("socket"))
    }

    pub fn try_connect(&self) -> RedisResult<Connection> {
        Client::open(self.address().into_connection_info()?)?.get_connection()
    }

    /// The port, if it was started with one.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the server writes its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Whether the process is still there.
    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("the server is our child").is_none()
    }

    /// kill -9: nothing is saved, nothing is said.
    pub fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.process.kill();
        self.process.wait().expect("the server is our child");
    }

    /// An orderly end; what `--save` or `--appendonly` keep is kept.
    pub fn stop(&mut self) {
        // The connection breaks instead of an answer.
        let _ = redis::cmd("SHUTDOWN").exec(&mut self.connect());
        self.process.wait().expect("the server is our child");
    }

    /// Starts it again, in the same directory with the same arguments. It has been killed or stopped before.
    pub fn start_again(&mut self) {
        assert!(!self.is_alive());
        self.process = process(self.directory.path(), self.port, &self.arguments);
        self.wait_until_it_answers();
    }

    /// The same, but it should not come up: waits until it has ended, and returns its log.
    pub fn start_in_vain(&mut self) -> String {
        assert!(!self.is_alive());
        self.process = process(self.directory.path(), self.port, &self.arguments);
        self.process.wait().expect("the server is our child");
        self.log()
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        while let Err(error) = self.try_connect().and_then(|mut connection| redis::cmd("PING").exec(&mut connection)) {
            assert!(self.is_alive(), "redis-server ended:\n{}", self.log());
            assert!(Instant::now() < deadline, "redis-server does not answer: {error}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn process(directory: &Path, port: u16, arguments: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("a log file");
    let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| OsString::from("redis-server"));
    Command::new(&program)
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--unixsocket", "socket", "--save", ""])
        .arg("--loadmodule")
        .arg(&*MODULE)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stderr(log.try_clone().expect("a second handle"))
        .stdout(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?} does not start ({error}): run `make deps`"))
}

/// A port that nobody listens on now. A cluster also wants the one that is 10000 higher.
pub fn free_port() -> u16 {
    loop {
        let free = |port| TcpListener::bind(("127.0.0.1", port)).and_then(|listener| listener.local_addr());
        let port = free(0).expect("a free port").port();
        if port < 55_000 && free(port + 10_000).is_ok() {
            return port;
        }
    }
}

/// Sends a command and returns its reply, or the error.
pub fn try_ask<T: FromRedisValue, A: AsRef<[u8]>>(
    connection: &mut Connection,
    command: impl IntoIterator<Item = A>,
) -> RedisResult<T> {
    let mut words = command.into_iter();
    let mut request = redis::cmd(str::from_utf8(words.next().expect("a command").as_ref()).expect("a name"));
    words.for_each(|word| {
        request.arg(word.as_ref());
    });
    request.query(connection)
}

/// Sends a command and returns its reply, which is not an error.
#[track_caller]
pub fn ask<T: FromRedisValue, A: AsRef<[u8]>>(connection: &mut Connection, command: impl IntoIterator<Item = A>) -> T {
    try_ask(connection, command).expect("the command succeeds")
}

/// Sends a command and returns the error, which it is, as a client sees it: `ERR no such table`.
#[track_caller]
pub fn refused<A: AsRef<[u8]>>(connection: &mut Connection, command: impl IntoIterator<Item = A>) -> String {
    let error = try_ask::<redis::Value, _>(connection, command).expect_err("the command fails");
    let code = error.code().unwrap_or_default().to_owned();
    format!("{code} {}", error.detail().unwrap_or_default()).trim().into()
}

/// Sends `CARD.LOAD` with these words, and returns its report.
#[track_caller]
pub fn load(db: &mut Connection, line: &str) -> HashMap<String, Value> {
    ask(db, ["CARD.LOAD"].into_iter().chain(line.split(' ')))
}

/// The same for a load that fails: why it does.
#[track_caller]
pub fn not_loaded(db: &mut Connection, line: &str) -> String {
    refused(db, ["CARD.LOAD"].into_iter().chain(line.split(' ')))
}

/// Writes a list of so many cards whose ids are long, so that there is much to stage, all of one type.
pub fn write_long_list(path: &Path, cards: u64, type_: u64) {
    let mut file = BufWriter::new(File::create(path).expect("a file"));
    file.write_all(b"cardId\ttype\tstatus\n").expect("a header");
    for id in long_ids(type_).take(cards as usize) {
        writeln!(file, "{id}\t{type_}\t1").expect("a row");
    }
    file.flush().expect("a file");
}

/// Ids of 192 random digits.
pub fn long_ids(seed: u64) -> impl Iterator<Item = String> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || (0..6).map(|_| format!("{:032x}", random.u128(..))).collect())
}

/// Waits until something holds, which it does within `seconds`.
#[track_caller]
pub fn wait_for(seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !holds() {
        assert!(Instant::now() < deadline, "waited {seconds} s in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either fails only if the server has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
