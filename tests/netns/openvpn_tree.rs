//! `interfaces openvpn` of the daemon: a commit makes a server for a stock client, other commits leave its session up.

use crate::openvpn_ends::{SERVER, configuration, write_keys};
use crate::support::{PATIENCE, answers, ask, postern, sites_and, skip};
use lab::postern::Postern;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A gateway at `b`, and a client at `a`.
struct Gateway {
    lab: Lab,
    postern: Postern,
    files: TempDir,
}

/// The lines between BEGIN and END of a PEM file, joined.
pub fn body(files: &TempDir, name: &str) -> String {
    let text = std::fs::read_to_string(files.path().join(name)).expect("written");
    text.lines().filter(|line| !line.starts_with("-----")).collect()
}

impl Gateway {
    fn new() -> Option<Self> {
        if !lab::has_program("/usr/sbin/openvpn") {
            skip("needs openvpn");
            return None;
        }
        let lab = sites_and(&["c"])?;
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        let postern = Postern::new(&lab, "b", postern()).expect("a folder");
        Some(Self { lab, postern, files })
    }

    /// The configuration: vtun0 for the client, and more.
    fn write(&self, more: &[&str]) {
        let pki = format!(
            "set pki ca ca certificate {}\nset pki certificate server certificate {}\n\
             set pki certificate server private key {}\nset pki openvpn shared-secret tc key {}\n",
            body(&self.files, "ca.pem"),
            body(&self.files, "server.pem"),
            body(&self.files, "server.key"),
            body(&self.files, "static.key"),
        );
        let own: String = [
            "mode server",
            "server subnet 10.9.0.0/24",
            "server subnet fd09::/64",
            "server push-route 10.99.1.1/32",
            "encryption data-ciphers aes256gcm",
            "hash sha256",
            "keep-alive interval 1",
            "tls ca-certificate ca",
            "tls certificate server",
            "tls crypt-key tc",
        ]
        .iter()
        .map(|line| format!("set interfaces openvpn vtun0 {line}\n"))
        .collect();
        let more: String = more.iter().map(|line| format!("set interfaces openvpn {line}\n")).collect();
        self.postern.write(&(pki + &own + &more));
    }

    /// Has the daemon read its file again.
    fn reload(&self) -> String {
        let before = self.postern.logged().len();
        self.postern.signal(Signal::HUP);
        let told = || {
            let log = self.postern.logged();
            ["in force", "is unchanged"].iter().any(|words| log[before..].contains(words))
        };
        wait_until(PATIENCE, told).unwrap_or_else(|error| panic!("{error}:\n{}", self.postern.logged()));
        self.postern.logged()[before..].to_owned()
    }

    fn ask(&self, words: &[&str]) -> serde_json::Value {
        let socket = self.postern.socket.to_string_lossy().into_owned();
        ask(&[words, &["--api", &socket]].concat())
    }

    /// The sessions of vtun0.
    fn sessions(&self) -> Vec<serde_json::Value> {
        let shown = self.ask(&["show", "openvpn", "server"]);
        let interfaces = shown["interfaces"].as_array().expect("a list");
        let own = interfaces.iter().find(|it| it["name"] == "vtun0");
        own.and_then(|it| it["sessions"].as_array()).cloned().unwrap_or_default()
    }

    /// Starts OpenVPN itself at `a` with this file.
    fn start_client(&mut self, text: &str) {
        let path = self.files.path().join("client.conf");
        std::fs::write(&path, text).expect("written");
        let log = File::create(self.files.path().join("client.log")).expect("created");
        let mut command = self.lab.command("a", "openvpn");
        command.arg("--config").arg(path).stdout(log.try_clone().expect("duplicated")).stderr(log);
        self.lab.start(&mut command).expect("it starts");
    }

    fn logs(&self) -> String {
        let client = std::fs::read_to_string(self.files.path().join("client.log")).unwrap_or_default();
        format!("{}\n{client}", self.postern.logged())
    }

    fn wait_until_connected(&self) {
        let connected = || self.lab.run("a", "ping", &["-c", "1", "-W", "1", SERVER]).is_ok();
        assert!(wait_until(PATIENCE, connected).is_ok(), "{}", self.logs());
    }
}

#[test]
fn a_commit_makes_a_server_for_a_stock_client_and_others_leave_its_session_up() {
    let Some(mut gateway) = Gateway::new() else { return };
    gateway.write(&[]);
    gateway.postern.start(&mut gateway.lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    let interface = gateway.lab.interface("oc");
    let text = configuration(&gateway.files, 0, &interface, Some(3600));
    gateway.start_client(&text);
    gateway.wait_until_connected();
    assert!(answers(&gateway.lab, "a", "fd09::1"), "{}", gateway.logs());
    let sessions = gateway.sessions();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert_eq!(
        (&sessions[0]["common_name"], &sessions[0]["tunnel_ips"][0]),
        (&"client".into(), &"10.9.0.2".into())
    );
    assert_eq!(sessions[0]["cipher"], "AES-256-GCM");
    let facts = gateway.ask(&["show", "metrics"]);
    let tunnel = &facts[0]["tunnels"][0];
    assert_eq!(
        (&tunnel["protocol"], &tunnel["peer"], &tunnel["state"]),
        (&"openvpn".into(), &"client".into(), &"up".into()),
        "{facts}"
    );
    assert!(tunnel["received_packets"].as_u64() > Some(0) && tunnel["suite"] == "AES-256-GCM", "{facts}");
    let pushed = gateway.lab.ip("a", "route get 10.99.1.1").expect("a route");
    assert!(pushed.contains(&interface), "{pushed}");
    let complete = |words: &[&str]| {
        let mut command = Command::new(postern());
        command.arg("complete").arg("--api").arg(&gateway.postern.socket).arg("--").args(words);
        String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned()
    };
    assert!(complete(&["show", "openvpn", ""]).contains("site-to-site"));
    assert!(complete(&["explain", "openvpn", ""]).contains("vtun0"));
    assert!(complete(&["reset", "openvpn", "client", ""]).contains("client"));
    // Another interface comes, and changes, without a word to the client.
    let other = [
        "vtun1 mode server",
        "vtun1 local-port 1195",
        "vtun1 server subnet 10.19.0.0/24",
        "vtun1 tls ca-certificate ca",
        "vtun1 tls certificate server",
    ];
    gateway.write(&other);
    gateway.reload();
    let changed = [&other[..], &["vtun1 server push-route 10.29.0.0/24"]].concat();
    gateway.write(&changed);
    gateway.reload();
    assert_eq!(
        gateway.ask(&["show", "interfaces", "openvpn"])["interfaces"].as_array().map(Vec::len),
        Some(2)
    );
    let still = gateway.sessions();
    assert_eq!(still[0]["remote_host"], sessions[0]["remote_host"], "{}", gateway.logs());
    assert!(
        !gateway.postern.logged().contains("the session with client client has ended"),
        "{}",
        gateway.logs()
    );
    // What clients are told, and the settings of another client, change without an end of sessions.
    let told = [&changed[..], &["vtun0 server push-route 10.98.0.0/24", "vtun0 description Office"]].concat();
    gateway.write(&told);
    assert!(gateway.reload().contains("in force"), "{}", gateway.logs());
    let still = gateway.sessions();
    assert_eq!(still[0]["remote_host"], sessions[0]["remote_host"], "{}", gateway.logs());
    assert!(!gateway.postern.logged().contains("has ended"), "{}", gateway.logs());
    // A reset ends the session; the client connects again.
    gateway.ask(&["reset", "openvpn", "client", "client"]);
    let ended = |count| {
        let log = || gateway.postern.logged();
        wait_until(PATIENCE, || log().matches("the session with client client has ended").count() == count)
    };
    assert!(ended(1).is_ok(), "{}", gateway.logs());
    gateway.wait_until_connected();
    let pushed = || gateway.lab.ip("a", "route get 10.98.0.1").is_ok_and(|route| route.contains(&interface));
    assert!(wait_until(PATIENCE, pushed).is_ok(), "{}", gateway.logs());
    gateway.ask(&["reset", "openvpn", "interface", "vtun0"]);
    assert!(ended(2).is_ok(), "{}", gateway.logs());
    gateway.wait_until_connected();
    // What is not served changes nothing.
    gateway.write(&[&changed[..], &["vtun1 openvpn-option 'user nobody'"]].concat());
    let told = gateway.reload();
    assert!(told.contains("interfaces openvpn vtun1 openvpn-option: user: "), "{told}");
    assert!(answers(&gateway.lab, "a", SERVER), "{}", gateway.logs());
    // A disabled client is refused, and the refusal is explained.
    gateway.write(&["vtun0 server client client disable"]);
    gateway.reload();
    let why = || {
        let told = gateway.ask(&["explain", "openvpn", "vtun0"]);
        told["interfaces"][0]["failed"][0]["fix"][0]
            == "delete interfaces openvpn vtun0 server client client disable"
    };
    assert!(wait_until(PATIENCE, why).is_ok(), "{}", gateway.logs());
    gateway.postern.write("set system allow-empty\n");
    gateway.reload();
    for name in ["vtun0", "vtun1"] {
        assert!(gateway.lab.ip("b", &format!("link show {name}")).is_err(), "{}", gateway.logs());
    }
}

/// Runs `postern generate` with the configuration of a file; its output.
fn generate(words: &[&str], config: &Path) -> String {
    let mut command = Command::new(postern());
    command.arg("generate").args(words);
    if config.exists() {
        command.arg("--config").arg(config);
    }
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A server and its client from what is generated; the file with the configuration.
fn generated(gateway: &mut Gateway, list: Option<&Path>) -> PathBuf {
    let config = gateway.files.path().join("generated.conf");
    let none = gateway.files.path().join("none");
    add(&config, &generate(&["pki", "ca", "install", "users"], &none));
    for (name, purpose) in [("server", "server"), ("anna", "client")] {
        let words = ["pki", "certificate", "sign", "users", "install", name, "--type", purpose];
        add(&config, &generate(&words, &config));
    }
    add(&config, &generate(&["pki", "openvpn", "shared-secret", "install", "tc"], &none));
    for line in [
        "mode server",
        "server subnet 10.9.0.0/24",
        "keep-alive interval 1",
        "encryption data-ciphers aes128gcm",
        "tls ca-certificate users",
        "tls certificate server",
        "tls crypt-key tc",
        "openvpn-option 'remote-cert-tls client'",
    ] {
        add(&config, &format!("set interfaces openvpn vtun0 {line}\n"));
    }
    if let Some(list) = list {
        std::fs::write(list, generate(&["pki", "crl", "users"], &config)).expect("written");
        add(&config, &format!("set pki ca users crl-file {}\n", list.display()));
    }
    gateway.postern.write(&read(&config));
    gateway.postern.start(&mut gateway.lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    let words = [
        "openvpn",
        "client-config",
        "interface",
        "vtun0",
        "ca",
        "users",
        "certificate",
        "anna",
        "--remote",
        "192.168.77.2",
    ];
    let text = generate(&words, &config);
    assert!(
        text.contains("\nremote-cert-tls server\n") && text.contains("\ndata-ciphers AES-128-GCM\n"),
        "{text}"
    );
    let interface = gateway.lab.interface("oc");
    gateway.start_client(&format!("{text}disable-dco\ndev {interface}\ndev-type tun\n"));
    gateway.wait_until_connected();
    assert_eq!(gateway.sessions()[0]["common_name"], "anna", "{}", gateway.logs());
    config
}

fn add(config: &Path, lines: &str) {
    let before = std::fs::read_to_string(config).unwrap_or_default();
    std::fs::write(config, before + lines).expect("written");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("there")
}

/// Waits until the client is refused, and has no session.
fn wait_until_revoked(gateway: &Gateway) {
    let refused = || {
        let told = gateway.ask(&["explain", "openvpn", "vtun0"]);
        let failed = told["interfaces"][0]["failed"].as_array().cloned().unwrap_or_default();
        failed
            .iter()
            .any(|it| it["reason"].as_str().is_some_and(|reason| reason.to_lowercase().contains("revoked")))
    };
    assert!(wait_until(PATIENCE, refused).is_ok(), "{}", gateway.logs());
    assert!(gateway.sessions().is_empty(), "{}", gateway.logs());
}

#[test]
fn what_is_generated_connects_a_stock_client_until_it_is_revoked() {
    let Some(mut gateway) = Gateway::new() else { return };
    let config = generated(&mut gateway, None);
    // Revoked, the client does not connect again.
    add(&config, "set pki certificate anna revoke\n");
    let list = generate(&["pki", "crl", "users", "install"], &config);
    let lines = list.lines().filter(|line| line.starts_with("set "));
    add(&config, &lines.map(|line| format!("{line}\n")).collect::<String>());
    gateway.postern.write(&read(&config));
    gateway.reload();
    wait_until_revoked(&gateway);
}

#[test]
fn a_list_in_a_file_revokes_a_client_without_a_commit() {
    let Some(mut gateway) = Gateway::new() else { return };
    let folder = tempfile::tempdir().expect("a directory");
    // The daemon is another user.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    let list = folder.path().join("users.crl");
    let config = generated(&mut gateway, Some(&list));
    add(&config, "set pki certificate anna revoke\n");
    std::fs::write(&list, generate(&["pki", "crl", "users"], &config)).expect("written");
    // The client itself notices that after ping-restart.
    let ended = || gateway.postern.logged().contains("client anna has ended: refused");
    assert!(wait_until(PATIENCE, ended).is_ok(), "{}", gateway.logs());
    assert!(gateway.sessions().is_empty(), "{}", gateway.logs());
}
