//! A real redis-server with the module loaded, for one test: it listens on a Unix socket in a directory of
//! its own, so that tests run side by side, and it ends with the test, also with one that fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, thread};

use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo};
use tempfile::TempDir;

/// A server needs a few milliseconds; the rest is for a machine that is busy compiling.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The module, as of now. `cargo test` does not build a cdylib, and a file found in the target directory may
/// be an old one; so cargo builds it here, as it ships, without the tests' dependencies, and says where it is.
static MODULE: LazyLock<PathBuf> = LazyLock::new(|| {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let build = Command::new(env!("CARGO"))
        .args(["build", "--lib", "--profile", profile, "--message-format", "json-render-diagnostics"])
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
}

impl Server {
    /// Starts `$REDIS_SERVER`, or the `redis-server` on the PATH, and waits until it answers.
    pub fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("redis-card-").tempdir().expect("a temporary directory");
        let log = File::create(directory.path().join("log")).expect("a log file");
        let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| OsString::from("redis-server"));
        let process = Command::new(&program)
            .args(["--port", "0", "--unixsocket", "socket", "--save", ""])
            .arg("--loadmodule")
            .arg(&*MODULE)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a second handle"))
            .stdout(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{program:?} does not start ({error}): run `make deps`"));
        let mut server = Server { process, directory };
        server.wait_until_it_answers();
        server
    }

    pub fn connect(&self) -> Connection {
        self.try_connect().expect("the server takes connections")
    }

    fn try_connect(&self) -> redis::RedisResult<Connection> {
        let socket = ConnectionAddr::Unix(self.directory.path().join("socket"));
        Client::open(socket.into_connection_info()?)?.get_connection()
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        while let Err(error) = self.try_connect().and_then(|mut connection| redis::cmd("PING").exec(&mut connection)) {
            let exit = self.process.try_wait().expect("the server is our child");
            assert!(exit.is_none(), "redis-server ended: {exit:?}");
            assert!(Instant::now() < deadline, "redis-server does not answer: {error}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either fails only if the server has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.directory.path().join("log")).unwrap_or_default());
        }
    }
}
