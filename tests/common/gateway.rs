//! A real nginx with the gateway in front of a [`Server`], for one test: on free ports, with its files in a directory of
//! its own, which is laid out as the project is.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, thread};

use super::{Server, free_port, wait_for};
use tempfile::TempDir;

/// Longer than any answer takes: what is slower than that has hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server as `redis.conf` sets up the one behind the gateway: with the user `gateway`, and a socket that nginx's workers
/// may use, who are nobody if the test is run by root.
pub fn server_behind() -> Server {
    server_with(&[])
}

/// The same with arguments.
pub fn server_with(arguments: &[&str]) -> Server {
    opened(Server::with(&[&as_gateway_expects(), arguments].concat()))
}

/// The same with a port.
pub fn server_with_port() -> Server {
    opened(Server::with_port(&as_gateway_expects()))
}

fn as_gateway_expects() -> Vec<&'static str> {
    static CONF: LazyLock<String> =
        LazyLock::new(|| fs::read_to_string(project().join("redis.conf")).expect("redis.conf"));
    let user = CONF.lines().find_map(|line| line.strip_prefix("user gateway ")).expect("a user for the gateway");
    ["--unixsocketperm", "777", "--user", "gateway"].into_iter().chain(user.split(' ')).collect()
}

fn opened(server: Server) -> Server {
    open_to_all(server.directory());
    server
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Debian's nginx is in a folder that an ordinary user's PATH leaves out.
pub fn nginx() -> PathBuf {
    let debian = Path::new("/usr/sbin/nginx");
    env::var_os("NGINX").map(PathBuf::from).unwrap_or(if debian.exists() { debian } else { Path::new("nginx") }.into())
}

/// A text in a file of the folder `nginx`, and what to put in its place.
pub type Change<'a> = (&'a str, &'a str, &'a str);

pub struct Gateway {
    process: Child,
    folder: TempDir,
    port: u16,
    status_port: u16,
}

impl Gateway {
    pub fn start(server: &Server) -> Gateway {
        Gateway::with(server, &[])
    }

    /// The same with other settings.
    pub fn with(server: &Server, changes: &[Change]) -> Gateway {
        let folder = Gateway::folder();
        symlink(server.directory().join("socket"), folder.path().join("run/redis.sock")).expect("a link");
        // Nobody listens on port 1; and surely not somebody's own server on the port that is the default.
        let redis = format!("127.0.0.1:{}", server.port().max(1));
        let mut all = vec![("gateway/settings.lua", "127.0.0.1:6380", redis.as_str())];
        all.extend(changes);
        Gateway::start_in(folder, "nginx/nginx.conf", &all)
    }

    /// A copy of what the gateway consists of.
    pub fn folder() -> TempDir {
        let folder = tempfile::Builder::new().prefix("redis-card-http-").tempdir().expect("a temporary directory");
        open_to_all(folder.path());
        fs::create_dir(folder.path().join("run")).expect("a folder");
        copy(&project().join("nginx"), &folder.path().join("nginx"));
        folder
    }

    /// Starts nginx in such a folder with a configuration in it, and waits until it answers.
    pub fn start_in(folder: TempDir, conf: &str, changes: &[Change]) -> Gateway {
        let (port, status_port) = (free_port(), free_port());
        change(folder.path(), &("site.conf", "127.0.0.1:8020", &format!("127.0.0.1:{port}")));
        change(folder.path(), &("site.conf", "127.0.0.1:8021", &format!("127.0.0.1:{status_port}")));
        changes.iter().for_each(|one| change(folder.path(), one));
        let stderr = File::create(folder.path().join("run/stderr.log")).expect("a log file");
        let process = Command::new(nginx())
            .arg("-p")
            .arg(folder.path().join("run/"))
            .arg("-c")
            .arg(folder.path().join(conf))
            .args(["-g", "daemon off;"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("{:?} does not start ({error}): run `make deps`", nginx()));
        let mut gateway = Gateway { process, folder, port, status_port };
        wait_for(20, "nginx answers", || {
            assert!(gateway.process.try_wait().expect("our child").is_none(), "nginx ended:\n{}", gateway.logs());
            TcpStream::connect(("127.0.0.1", gateway.status_port)).is_ok()
        });
        gateway
    }

    /// Asks on a connection of its own.
    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        self.connect().get(target)
    }

    /// Asks the listener for monitoring.
    #[track_caller]
    pub fn status(&self, target: &str) -> Answer {
        Client::connect(self.status_port).get(target)
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn connect_status(&self) -> Client {
        Client::connect(self.status_port)
    }

    /// Where its pid, logs and temporary files are.
    pub fn prefix(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// All that nginx has written so far.
    pub fn logs(&self) -> String {
        let files = fs::read_dir(self.prefix()).expect("the prefix").map(|entry| entry.expect("an entry").path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| fs::read_to_string(path).expect("a log")).collect()
    }

    /// The same, when its access log, which is buffered, has been written and it has ended.
    pub fn logs_in_the_end(mut self) -> String {
        self.stop();
        self.logs()
    }

    /// No request made a worker crash, or the gateway fail by a mistake of its own.
    #[track_caller]
    pub fn assert_sound(&self) {
        let logs = self.logs();
        let unsound =
            |line: &&str| ["exited on signal", "[alert]", "[emerg]", ".lua:"].iter().any(|sign| line.contains(sign));
        // Of a failure that is foreseen, the line is the one that tells.
        let foreseen = |line: &&str| line.contains("the gateway failed") && line.matches(".lua:").count() == 1;
        let mistakes: Vec<_> = logs.lines().filter(unsound).filter(|line| !foreseen(line)).collect();
        assert!(mistakes.is_empty(), "{mistakes:#?}");
    }

    fn stop(&mut self) {
        // The master ends its workers; killed, it would leave them behind.
        let ended = Command::new("kill").arg(self.process.id().to_string()).status();
        assert!(ended.is_ok_and(|status| status.success()) || thread::panicking());
        self.process.wait().expect("nginx is our child");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.stop();
        }
        if thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file");
        }
    }
}

#[track_caller]
fn change(folder: &Path, (file, text, replacement): &Change) {
    let path = folder.join("nginx").join(file);
    let content = fs::read_to_string(&path).expect("a file of the gateway");
    assert_eq!(content.matches(text).count(), 1, "{text:?} is once in {file}");
    fs::write(path, content.replace(text, replacement)).expect("a file of the gateway");
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// As they came, but with names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The body, which is JSON and says that it is.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The word that an error has for programs.
    #[track_caller]
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("an error: {self:?}")).into()
    }

    /// Status and body.
    pub fn told(&self) -> (u16, &str) {
        (self.status, &self.body)
    }
}

/// A connection that is kept, and speaks HTTP no better than it must.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("nginx takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("small requests are sent at once");
        Client(BufReader::new(stream))
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target)
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, target: &str) -> Answer {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: gateway\r\n\r\n"));
        self.answer_to(method).unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Sends bytes as they are. nginx may have closed the connection already, and that is not held against it here.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.get_mut().write_all(bytes.as_ref());
    }

    /// The next answer.
    pub fn answer(&mut self) -> io::Result<Answer> {
        self.answer_to("GET")
    }

    fn answer_to(&mut self, method: &str) -> io::Result<Answer> {
        let status_line = self.line()?;
        let status =
            status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
        let Some(status) = status else { return Err(io::Error::other(format!("no answer: {status_line:?}"))) };
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Answer { status, headers, body: String::new() };
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        let Some(length) = length else { return Err(io::Error::other(format!("no length: {answer:?}"))) };
        if method != "HEAD" {
            let mut body = vec![0; length];
            self.0.read_exact(&mut body)?;
            answer.body = String::from_utf8(body).map_err(io::Error::other)?;
        }
        Ok(answer)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Closes a half of the connection, or both.
    pub fn shutdown(&self, half: Shutdown) {
        // Fails only if nginx was quicker.
        let _ = self.0.get_ref().shutdown(half);
    }

    /// What is left until nginx closes the connection.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).map(|_| rest)
    }
}
