//! A copy of the project's files, with ports of its own, in which `make start` starts both servers. What `make build` has
//! built is shared.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use super::gateway::{Client, project};
use super::{free_port, wait_for};
use tempfile::TempDir;

/// The project's `target`, with the module and cardctl as they ship. After `make build` there is nothing left to do here.
static TARGET: LazyLock<PathBuf> = LazyLock::new(|| {
    for package in ["redis-card", "cardctl"] {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--release", "--package", package]).current_dir(project());
        assert!(build.status().expect("cargo runs").success());
    }
    project().join("target")
});

/// A copy of the project.
pub struct Clone {
    pub folder: TempDir,
    pub redis_port: u16,
    pub port: u16,
    pub status_port: u16,
}

impl Clone {
    pub fn new() -> Clone {
        let folder = tempfile::Builder::new().prefix("redis-card-service-").tempdir().expect("a temporary directory");
        // nginx's workers, who are nobody if the test is run by root, come to the socket through it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut files = Command::new("git");
        files.args(["ls-files", "Makefile", "redis.conf", "scripts", "nginx", "run"]);
        let files = text(&files.current_dir(project()).output().expect("git runs"));
        for file in files.lines() {
            let to = folder.path().join(file);
            fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            fs::copy(project().join(file), to).expect("a copy");
        }
        symlink(&*TARGET, folder.path().join("target")).expect("a link");
        let clone = Clone { folder, redis_port: free_port(), port: free_port(), status_port: free_port() };
        let redis = format!("127.0.0.1:{}", clone.redis_port);
        clone.change("redis.conf", "port 6380", &format!("port {}", clone.redis_port));
        clone.change("redis.conf", "card.watch-interval 5", "card.watch-interval 1");
        clone.change("nginx/gateway/settings.lua", "127.0.0.1:6380", &redis);
        clone.change("nginx/site.conf", "127.0.0.1:8020", &format!("127.0.0.1:{}", clone.port));
        clone.change("nginx/site.conf", "127.0.0.1:8021", &format!("127.0.0.1:{}", clone.status_port));
        clone
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn change(&self, file: &str, from: &str, to: &str) {
        let before = fs::read_to_string(self.path(file)).expect("a file");
        assert!(before.contains(from), "{file} has {from}");
        fs::write(self.path(file), before.replace(from, to)).expect("a file");
    }

    pub fn command(&self, target: &str) -> Command {
        // Tests that run in the background have been told to ignore interrupts, and bash would go on doing so.
        let mut make = Command::new("env");
        // What is to be built has been built, from the files that these are copies of.
        make.args(["--default-signal=INT", "make", target, "CARGO=true"])
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        make
    }

    pub fn make(&self, target: &str) -> Output {
        self.command(target).output().expect("make runs")
    }

    pub fn make_well(&self, target: &str) -> String {
        let made = self.make(target);
        assert!(made.status.success(), "make {target}: {made:?}\n{}", self.logs());
        text(&made)
    }

    /// What make says when it fails.
    pub fn make_in_vain(&self, target: &str) -> String {
        let made = self.make(target);
        assert!(!made.status.success(), "make {target}: {made:?}");
        text(&made) + &String::from_utf8_lossy(&made.stderr)
    }

    pub fn get(&self, target: &str) -> String {
        Client::connect(self.port).get(target).body
    }

    pub fn pid(&self, of: &str) -> u32 {
        fs::read_to_string(self.path(&format!("run/{of}.pid"))).expect("a pid file").trim().parse().expect("a pid")
    }

    pub fn logs(&self) -> String {
        let log = |file| fs::read_to_string(self.path(file)).unwrap_or_default();
        log("run/redis.log") + &log("run/nginx.log") + &log("run/nginx.start.log")
    }

    /// Nothing of it is left running.
    pub fn assert_is_gone(&self) {
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        wait_for(5, "the ports are free", || [self.redis_port, self.port, self.status_port].into_iter().all(free));
        for file in ["run/redis.pid", "run/nginx.pid"] {
            assert!(!self.path(file).exists(), "{file} is left over");
        }
    }
}

impl Drop for Clone {
    fn drop(&mut self) {
        self.make("stop");
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
