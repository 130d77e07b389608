//! How the gateway is started: unprivileged from the project's folder, as a site of a system's nginx, with either client.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::gateway::{Gateway, nginx, server_behind};
use common::{ask, free_port};

const QUERY: &str = "/paramquery?cardid=2&cmdtype=blacklistquery&tbtype=0";

fn filled() -> common::Server {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    server
}

fn said(output: &Output) -> String {
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[test]
fn the_configuration_is_sound_and_unprivileged_users_can_run_it() {
    let folder = Gateway::folder();
    let (run, conf) = (folder.path().join("run/"), folder.path().join("nginx/nginx.conf"));
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let site = folder.path().join("nginx/site.conf");
    let text = fs::read_to_string(&site).expect("site.conf");
    let text = text.replace(":8020", &format!(":{}", free_port())).replace(":8021", &format!(":{}", free_port()));
    fs::write(site, text).expect("site.conf");
    // Root tries it as somebody else, too; all others are somebody else.
    let is_root = fs::write("/proc/self/oom_score_adj", "-1").is_ok();
    let somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    for words in if is_root { vec![&somebody[..], &[]] } else { vec![&[][..]] } {
        let mut command = words.first().map_or_else(|| Command::new(nginx()), Command::new);
        command.args(words.get(1..).unwrap_or_default());
        if !words.is_empty() {
            command.arg(nginx());
        }
        let output = command.arg("-p").arg(&run).arg("-c").arg(&conf).arg("-t").output().expect("nginx runs");
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.lines().count(), 2, "no warnings: {said}");
        assert!(
            said.lines().all(|line| line.ends_with("syntax is ok") || line.ends_with("test is successful")),
            "{said}"
        );
        fs::read_dir(&run).expect("a folder").for_each(|entry| {
            let path = entry.expect("an entry").path();
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        });
    }
}

#[test]
fn all_that_it_writes_is_in_its_prefix() {
    let server = filled();
    let gateway = Gateway::start(&server);
    assert_eq!(gateway.get(QUERY).status, 200);
    let mut names: Vec<_> =
        fs::read_dir(gateway.prefix()).expect("the prefix").map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["nginx.log", "nginx.pid", "redis-card.access.log", "redis.sock", "stderr.log", "temp"]);
}

/// As docs/http.md says to install it, only that the folders are others.
#[test]
fn it_is_a_site_of_another_nginx() {
    let server = filled();
    let folder = Gateway::folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("etc")).expect("a folder");
    let main = "
        load_module /usr/lib/nginx/modules/ndk_http_module.so;
        load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
        pid other.pid;
        error_log other-error.log;
        events { worker_connections 768; }
        http {
            sendfile on;
            gzip on;
            default_type application/octet-stream;
            client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; scgi_temp_path temp;
            access_log other-access.log;
            include ../nginx/*.conf.site;
            server { listen unix:other.sock; location / { return 200 other; } }
        }";
    fs::write(at("etc/nginx.conf"), main).expect("a configuration");
    fs::rename(at("nginx"), at("usr-share")).expect("the Lua files are elsewhere");
    fs::create_dir(at("nginx")).expect("a folder");
    for (from, to) in [("usr-share/site.conf", "nginx/site.conf"), ("usr-share/gateway", "nginx/unused")] {
        if at(from).is_file() {
            fs::copy(at(from), at(to)).expect("a file");
        }
    }
    std::os::unix::fs::symlink(at("nginx/site.conf"), at("nginx/redis-card.conf.site")).expect("a link");
    let settings = fs::read_to_string(at("usr-share/gateway/settings.lua")).expect("settings");
    let socket = format!("\"unix:{}\"", server.directory().join("socket").display());
    let settings =
        settings.replace("\"unix:\" .. ngx.config.prefix() .. \"redis.sock\"", &socket).replace(":6380", ":1");
    fs::write(at("usr-share/gateway/settings.lua"), settings).expect("settings");
    let lua = at("usr-share").display().to_string();
    let gateway = Gateway::start_in(folder, "etc/nginx.conf", &[("site.conf", "/usr/share/redis-card", &lua)]);
    assert_eq!(gateway.get(QUERY).status, 200);
    assert_eq!(gateway.get("/x").error(), "path_not_found");
    assert_eq!(gateway.status("/readyz").status, 200);
    let prefix = gateway.prefix();
    drop(gateway.logs_in_the_end());
    drop(prefix);
}

#[test]
fn the_client_of_openresty_comes_first() {
    let server = filled();
    let folder = Gateway::folder();
    // The same client, as OpenResty calls it; it leaves a trace.
    let debian = fs::read_to_string("/usr/share/lua/5.1/nginx/redis.lua").expect("Debian's client");
    fs::create_dir(folder.path().join("nginx/resty")).expect("a folder");
    let traced =
        debian.replacen("function _M.new(self)", "function _M.new(self)\n    ngx.header[\"X-Client\"] = \"resty\"", 1);
    fs::write(folder.path().join("nginx/resty/redis.lua"), traced).expect("a client");
    std::os::unix::fs::symlink(server.directory().join("socket"), folder.path().join("run/redis.sock"))
        .expect("a link");
    let gateway = Gateway::start_in(folder, "nginx/nginx.conf", &[("gateway/settings.lua", ":6380", ":1")]);
    let answer = gateway.get(QUERY);
    assert_eq!((answer.status, answer.header("x-client")), (200, Some("resty")));
    assert_eq!(Gateway::start(&server).get(QUERY).header("x-client"), None, "otherwise Debian's");
}
