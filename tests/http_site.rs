//! How the gateway is started: unprivileged from the project's folder, as a site of a system's nginx, with either client.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use common::gateway::{Gateway, nginx, server_behind};
use common::{ask, free_port, wait_for};

const QUERY: &str = "/paramquery?cardid=2&cmdtype=blacklistquery&tbtype=0";

fn filled() -> common::Server {
    let server = server_behind();
    ask::<(), _>(&mut server.connect(), "CARD.SET blacklist:0 1 1 1".split(' '));
    server
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
    // Root tries it as nobody, too; all others are unprivileged anyway.
    let is_root = fs::metadata("/proc/self").expect("this process").uid() == 0;
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    for user in if is_root { vec![nobody.as_slice(), &[]] } else { vec![[].as_slice()] } {
        let nginx = nginx();
        let words: Vec<_> = user.iter().map(OsStr::new).chain([nginx.as_os_str()]).collect();
        let output =
            Command::new(words[0]).args(&words[1..]).arg("-p").arg(&run).arg("-c").arg(&conf).arg("-t").output();
        let output = output.expect("nginx runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(output.status.success(), "{said}");
        assert_eq!(said.lines().count(), 2, "no warnings: {said}");
        assert!(said.contains("syntax is ok") && said.contains("test is successful"), "{said}");
        // What the one has made may not be the other's to use.
        fs::remove_dir_all(&run).and_then(|()| fs::create_dir(&run)).expect("a new folder");
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
    assert_eq!(
        names,
        ["nginx.log", "nginx.pid", "redis-card.access.log", "redis-card.error.log", "redis.sock", "stderr.log", "temp"]
    );
}

/// As docs/http.md says to install it, only that the folders are others.
#[test]
fn it_is_a_site_of_another_nginx() {
    let server = filled();
    let folder = Gateway::folder();
    let at = |name: &str| folder.path().join(name);
    let edit = |name: &str, text: &str, replacement: &str| {
        let content = fs::read_to_string(at(name)).expect("a file");
        assert!(content.contains(text), "{text} is in {name}");
        fs::write(at(name), content.replace(text, replacement)).expect("a file");
    };
    fs::create_dir(at("lua")).expect("a folder");
    fs::rename(at("nginx/gateway.lua"), at("lua/gateway.lua")).expect("a file");
    fs::rename(at("nginx/gateway"), at("lua/gateway")).expect("a folder");
    fs::write(at("nginx/nginx.conf"), SYSTEM).expect("a configuration");
    edit("nginx/site.conf", "/usr/share/redis-card", at("lua").to_str().expect("UTF-8"));
    edit("nginx/site.conf", "_log redis-card", "_log ../redis-card");
    let socket = format!("\"unix:{}\"", server.directory().join("socket").display());
    edit("lua/gateway/settings.lua", "\"unix:\" .. ngx.config.prefix() .. \"redis.sock\"", &socket);
    edit("lua/gateway/settings.lua", ":6380", ":1");

    let gateway = Gateway::start_in(folder, "nginx/nginx.conf", &[]);
    assert_eq!(gateway.get(QUERY).status, 200);
    assert_eq!(gateway.get("/x").error(), "path_not_found");
    assert_eq!(gateway.status("/readyz").status, 200);
    let prefix = gateway.prefix();
    wait_for(5, "its log is written", || {
        fs::metadata(prefix.join("../redis-card.access.log")).is_ok_and(|log| log.len() > 0)
    });
    let system = fs::read_to_string(prefix.join("system-access.log")).expect("the system's log");
    assert_eq!(system, "", "where whole queries would be");
}

/// The main parts of Debian's.
const SYSTEM: &str = "
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
pid system.pid;
error_log system-error.log;
events { worker_connections 768; }
http {
    sendfile on;
    tcp_nopush on;
    gzip on;
    default_type application/octet-stream;
    access_log system-access.log;
    client_body_temp_path temp;
    proxy_temp_path temp;
    fastcgi_temp_path temp;
    uwsgi_temp_path temp;
    scgi_temp_path temp;
    include site.conf;
}
";

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
