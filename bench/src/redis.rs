//! A redis-server of one's own, and a connection that does little more than send and count replies: at a million requests a
//! second a client that does more would be what is measured.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::bytes_of;
use tempfile::TempDir;

/// How long a server may take to start, its data included.
const START_LIMIT: Duration = Duration::from_secs(600);

pub struct Server {
    process: Child,
    directory: TempDir,
    module: PathBuf,
    arguments: Vec<String>,
}

impl Server {
    /// Starts a server that keeps its files in `parent`, and loads the module; with settings such as `["--appendonly", "yes"]`.
    pub fn with(module: &Path, parent: &Path, arguments: &[&str]) -> io::Result<Server> {
        let directory = tempfile::Builder::new().prefix("redis-card-bench-").tempdir_in(parent)?;
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.into()).collect();
        let process = spawn(directory.path(), module, &arguments)?;
        let server = Server { process, directory, module: module.into(), arguments };
        server.wait()?;
        Ok(server)
    }

    /// Where it keeps its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn connect(&self) -> io::Result<Connection> {
        let stream = UnixStream::connect(self.directory.path().join("socket"))?;
        Ok(Connection { replies: BufReader::with_capacity(1 << 18, stream.try_clone()?), stream, awaited: 0 })
    }

    /// Waits until it answers and has its data.
    fn wait(&self) -> io::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while self.connect().and_then(|mut connection| connection.ask(&[b"PING"])).is_err() {
            if Instant::now() > deadline {
                return Err(io::Error::other("redis-server does not answer"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Saves, ends and starts again; returns the seconds until it answers.
    pub fn restart(&mut self) -> io::Result<f64> {
        self.connect()?.ask(&[b"SAVE"])?;
        // The connection breaks instead of an answer.
        let _ = self.connect()?.ask(&[b"SHUTDOWN", b"NOSAVE"]);
        self.process.wait()?;
        let start = Instant::now();
        self.process = spawn(self.directory.path(), &self.module, &self.arguments)?;
        self.wait()?;
        Ok(start.elapsed().as_secs_f64())
    }

    pub fn used_memory(&self) -> io::Result<u64> {
        self.info("memory", "used_memory")
    }

    /// A number of `INFO`.
    pub fn info(&self, section: &str, field: &str) -> io::Result<u64> {
        let info = self.connect()?.ask(&[b"INFO", section.as_bytes()])?;
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.and_then(|number| number.trim().parse().ok());
        number.ok_or_else(|| io::Error::other(format!("INFO has no {field}")))
    }

    pub fn resident(&self) -> io::Result<usize> {
        bytes_of(&format!("/proc/{}/status", self.process.id()), "VmRSS")
    }

    /// The most memory it has had.
    pub fn peak(&self) -> io::Result<usize> {
        bytes_of(&format!("/proc/{}/status", self.process.id()), "VmHWM")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either fails only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(directory: &Path, module: &Path, arguments: &[String]) -> io::Result<Child> {
    let log = fs::File::options().create(true).append(true).open(directory.join("log"))?;
    Command::new(std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()))
        .args(["--port", "0", "--unixsocket", "socket", "--save", ""])
        // As in redis.conf.
        .args(["--lazyfree-lazy-user-del", "yes", "--lazyfree-lazy-server-del", "yes"])
        .arg("--loadmodule")
        .arg(module)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
}

pub struct Connection {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    /// How many replies are to come.
    awaited: usize,
}

/// Requests one after the other, as they go over the wire.
#[derive(Default)]
pub struct Requests {
    pub bytes: Vec<u8>,
    pub count: usize,
}

impl Requests {
    pub fn push(&mut self, words: &[&[u8]]) {
        self.begin(words.len());
        words.iter().for_each(|word| self.word(word));
    }

    /// Begins a request of so many words, which follow.
    pub fn begin(&mut self, words: usize) {
        self.bytes.extend_from_slice(format!("*{words}\r\n").as_bytes());
        self.count += 1;
    }

    pub fn word(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

impl Connection {
    /// Sends requests at once, and does not wait for their replies.
    pub fn send(&mut self, requests: &Requests) -> io::Result<()> {
        self.stream.write_all(&requests.bytes)?;
        self.awaited += requests.count;
        Ok(())
    }

    /// Waits for the replies to all requests that were sent, none of which may be an error.
    pub fn wait(&mut self) -> io::Result<()> {
        while self.awaited > 0 {
            self.skip_reply()?;
            self.awaited -= 1;
        }
        Ok(())
    }

    /// Sends one request and returns its reply if that is a text, otherwise nothing.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<String> {
        let mut request = Requests::default();
        request.push(words);
        self.stream.write_all(&request.bytes)?;
        let line = self.line()?;
        match line.split_at_checked(1) {
            Some(("$", len)) if len != "-1" => self.text(len),
            Some(("-", error)) => Err(io::Error::other(error.to_owned())),
            Some(("*", len)) => {
                for _ in 0..len.parse::<usize>().map_err(io::Error::other)? {
                    self.skip_reply()?;
                }
                Ok(String::new())
            }
            _ => Ok(line),
        }
    }

    /// Sends one request and returns all texts in its reply, an array of any depth.
    pub fn texts(&mut self, words: &[&[u8]]) -> io::Result<Vec<String>> {
        let mut request = Requests::default();
        request.push(words);
        self.stream.write_all(&request.bytes)?;
        let mut texts = Vec::new();
        self.collect(&mut texts)?;
        Ok(texts)
    }

    fn collect(&mut self, texts: &mut Vec<String>) -> io::Result<()> {
        let line = self.line()?;
        match line.split_at_checked(1) {
            Some(("$", len)) if len != "-1" => {
                texts.push(self.text(len)?);
                Ok(())
            }
            Some(("*", len)) if len != "-1" => {
                let len = len.parse::<usize>().map_err(io::Error::other)?;
                (0..len).try_for_each(|_| self.collect(texts))
            }
            Some(("-", error)) => Err(io::Error::other(error.to_owned())),
            _ => Ok(()),
        }
    }

    /// A text, of which so many bytes are to come.
    fn text(&mut self, len: &str) -> io::Result<String> {
        let mut text = vec![0; len.parse::<usize>().map_err(io::Error::other)? + 2];
        self.replies.read_exact(&mut text)?;
        text.truncate(text.len() - 2);
        String::from_utf8(text).map_err(io::Error::other)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.replies.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().into())
    }

    fn skip_reply(&mut self) -> io::Result<()> {
        let mut line = [0; 64];
        let line = self.short_line(&mut line)?;
        let number = || str::from_utf8(&line[1..]).ok().and_then(|digits| digits.parse::<i64>().ok()).unwrap_or(0);
        match line[0] {
            b'$' => match number() {
                -1 => {}
                len => {
                    let mut left = len as usize + 2;
                    while left > 0 {
                        let ready = self.replies.fill_buf()?.len().min(left);
                        if ready == 0 {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        self.replies.consume(ready);
                        left -= ready;
                    }
                }
            },
            b'*' => match number() {
                -1 => {}
                len => {
                    for _ in 0..len {
                        self.skip_reply()?;
                    }
                }
            },
            b'-' => return Err(io::Error::other(String::from_utf8_lossy(line).into_owned())),
            _ => {}
        }
        Ok(())
    }

    /// A line without its end, which fits `to`; the rest of a longer one, an error, is cut off.
    fn short_line<'a>(&mut self, to: &'a mut [u8; 64]) -> io::Result<&'a [u8]> {
        let mut len = 0;
        loop {
            let ready = self.replies.fill_buf()?;
            if ready.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let end = ready.iter().position(|&byte| byte == b'\n');
            let part = &ready[..end.unwrap_or(ready.len())];
            let kept = part.len().min(to.len() - len);
            to[len..len + kept].copy_from_slice(&part[..kept]);
            len += kept;
            let used = part.len() + usize::from(end.is_some());
            self.replies.consume(used);
            if end.is_some() {
                return Ok(to[..len].trim_ascii_end());
            }
        }
    }
}
