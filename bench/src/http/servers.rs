//! The servers that answer over HTTP: nginx with a gateway, and webdis.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use card_bench::redis::Server;
use card_bench::scheme::Scheme;

/// The query of a gate.
pub fn query(card: &str) -> String {
    let (net, id) = card.split_at(4);
    format!("/paramquery?cardid={id}&cardnet={net}&cmdtype=blacklistquery&serialno=1011&tbtype=0&version=201708031")
}

/// The same question to webdis.
pub fn hget(scheme: Scheme, card: &str) -> String {
    let mut request = card_bench::redis::Requests::default();
    scheme.get(card, &mut request);
    let text = String::from_utf8(request.bytes).expect("digits");
    let words: Vec<&str> = text.lines().skip(2).step_by(2).collect();
    format!("/{}", words.join("/"))
}

/// nginx's workers are nobody if this is run by root.
pub fn open_to_all(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
}

pub struct Nginx {
    process: Child,
    pub port: u16,
}

impl Nginx {
    /// The project's gateway in front of a server, with another file in the place of `gateway/paramquery.lua` if one is given.
    pub fn start(project: &Path, parent: &Path, server: &Server, handler: Option<&str>) -> io::Result<Nginx> {
        let folder = parent.join(handler.map_or("gateway", |_| "other-gateway"));
        copy(&project.join("nginx"), &folder.join("nginx"))?;
        fs::create_dir(folder.join("run"))?;
        symlink(server.directory().join("socket"), folder.join("run/redis.sock"))?;
        if let Some(handler) = handler {
            fs::copy(project.join(handler), folder.join("nginx/gateway/paramquery.lua"))?;
        }
        let (port, status_port) = (free_port()?, free_port()?);
        let site = folder.join("nginx/site.conf");
        let conf = fs::read_to_string(&site)?
            .replace("127.0.0.1:8020", &format!("127.0.0.1:{port}"))
            .replace("127.0.0.1:8021", &format!("127.0.0.1:{status_port}"));
        fs::write(site, conf)?;
        // The servers of the benchmark have no users; who has no name may do everything.
        let settings = folder.join("nginx/gateway/settings.lua");
        let lua = fs::read_to_string(&settings)?.replace("user = \"gateway\"", "user = nil");
        fs::write(settings, lua)?;
        let debian = Path::new("/usr/sbin/nginx");
        let process = Command::new(if debian.exists() { debian } else { Path::new("nginx") })
            .arg("-p")
            .arg(folder.join("run/"))
            .arg("-c")
            .arg(folder.join("nginx/nginx.conf"))
            .args(["-g", "daemon off;"])
            .stdin(Stdio::null())
            .stderr(fs::File::create(folder.join("log"))?)
            .spawn()?;
        wait_for(port)?;
        Ok(Nginx { process, port })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers; killed, it would leave them behind.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

pub struct Webdis {
    process: Child,
    pub port: u16,
}

impl Webdis {
    pub fn start(parent: &Path, server: &Server) -> io::Result<Webdis> {
        let port = free_port()?;
        let conf = parent.join("webdis.json");
        let socket = server.directory().join("socket");
        // A host that begins with a slash is a socket. As many threads as nginx has workers, and connections as its pool.
        let threads = thread::available_parallelism().map_or(2, usize::from);
        fs::write(
            &conf,
            format!(
                r#"{{"redis_host":"{}","redis_port":0,"http_host":"127.0.0.1","http_port":{port},"threads":{threads},"pool_size":64,"daemonize":false,"database":0,"verbosity":0,"logfile":"{}"}}"#,
                socket.display(),
                parent.join("webdis.log").display()
            ),
        )?;
        let process = Command::new("webdis")
            .arg(conf)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        wait_for(port)?;
        Ok(Webdis { process, port })
    }
}

impl Drop for Webdis {
    fn drop(&mut self) {
        // Either fails only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn copy(from: &Path, to: &PathBuf) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn wait_for(port: u16) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > deadline {
            return Err(io::Error::other("the server does not answer"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
