//! Who is admitted by a server of ours, with OpenVPN 2.6 as the clients: passwords, programs, files of clients.

use crate::openvpn_ends::{
    CLIENT, CLIENT_END, CLIENT_SERIAL, INTERFACES, OTHER_END, Program, SERVER, SERVER_END, SITES,
    configuration, path, start, write_keys,
};
use crate::support::{PATIENCE, sites_and, skip};
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The file of hashes of passwords, which is no program.
const USERS: &str = "users";

/// A server of ours at `b`, and stock clients at `a` and `c`.
struct Fixture {
    lab: Lab,
    files: TempDir,
    server: Process,
    lines: String,
}

impl Fixture {
    /// `lines`: of the server beside the usual ones. `scripts`: programs in the folder that `{}` stands for in them.
    fn start(lines: &str, scripts: &[(&str, &str)]) -> Option<Self> {
        if !lab::has_program("/usr/sbin/openvpn") {
            skip("needs openvpn");
            return None;
        }
        let mut lab = sites_and(&["c"])?;
        lab.connect(("c", "outside", "192.168.78.1/24"), ("b", "further", "192.168.78.2/24"))
            .expect("veth exists");
        let files = tempfile::tempdir().expect("a directory");
        // Programs run with the rights of the starter, and files are read by its process for files.
        write_keys(&files);
        for (name, text) in scripts {
            let text = match *name {
                USERS => (*text).to_owned(),
                _ => format!("#!/bin/sh\ncd {}\n{text}\n", files.path().display()),
            };
            std::fs::write(path(&files, name), text).expect("ours");
            std::fs::set_permissions(path(&files, name), PermissionsExt::from_mode(0o755)).expect("ours");
        }
        let lines = lines.replace("{}", &files.path().to_string_lossy());
        let server = serve(&mut lab, &files, &lines);
        Some(Self { lab, files, server, lines })
    }

    /// Kills the server, and starts it again.
    fn restart(&mut self) {
        self.lab.kill(self.server, Signal::KILL);
        self.server = serve(&mut self.lab, &self.files, &self.lines);
    }

    /// Starts a client; with a user name and a password, if they are given.
    fn client(&mut self, end: usize, login: Option<(&str, &str)>, lines: &str) -> Process {
        let interface = self.lab.interface(INTERFACES[end]);
        let mut text = configuration(&self.files, end, &interface, Some(3600)) + lines;
        if let Some((user, password)) = login {
            let file = path(&self.files, &format!("{end}.login"));
            std::fs::write(&file, format!("{user}\n{password}\n")).expect("ours");
            text.extend(["auth-user-pass ", file.to_str().expect("UTF-8"), "\n"]);
        }
        start(&mut self.lab, &self.files, Program::Stock, end, &text)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(path(&self.files, name)).unwrap_or_default()
    }

    fn log(&self, end: usize) -> String {
        self.text(&format!("{end}.log"))
    }

    fn logs(&self) -> String {
        [SERVER_END, CLIENT_END, OTHER_END]
            .map(|end| format!("{}:\n{}", SITES[end], self.log(end)))
            .join("\n")
    }

    fn reaches_server(&self, end: usize) -> bool {
        self.lab.run(SITES[end], "ping", &["-c", "1", "-W", "1", SERVER]).is_ok()
    }

    fn waits_for(&self, what: &str, is_there: impl FnMut() -> bool) {
        assert!(wait_until(PATIENCE, is_there).is_ok(), "{what}\n{}", self.logs());
    }

    fn connects(&self, end: usize) {
        self.waits_for("it connects", || self.reaches_server(end));
    }

    /// The client is told so, and does not connect.
    fn is_refused(&self, end: usize, told: &str) {
        self.waits_for(told, || self.log(end).contains(told));
        assert!(!self.reaches_server(end), "{}", self.logs());
    }

    fn route(&self, end: usize, address: &str) -> bool {
        let interface = self.lab.interface(INTERFACES[end]);
        let found = self.lab.ip(SITES[end], &format!("route get {address}"));
        found.is_ok_and(|route| route.contains(&interface))
    }
}

/// Starts the server, and waits until it is ready: at its first start it measures the ciphers of this machine.
fn serve(lab: &mut Lab, files: &TempDir, lines: &str) -> Process {
    let interface = lab.interface(INTERFACES[SERVER_END]);
    let text = configuration(files, SERVER_END, &interface, Some(3600)) + lines;
    let log = path(files, &format!("{SERVER_END}.log"));
    let starts = || std::fs::read_to_string(&log).unwrap_or_default().matches("is ready").count();
    let before = starts();
    let process = start(lab, files, Program::Ours, SERVER_END, &text);
    assert!(wait_until(4 * PATIENCE, || starts() > before).is_ok(), "the server does not start");
    process
}

#[test]
fn a_program_decides_about_passwords_in_a_file() {
    let check = "env > seen; [ \"$(sed -n 1p \"$1\")\" = anna ] && [ \"$(sed -n 2p \"$1\")\" = 's3cret $(id)' ] && exit 0\n\
        echo 'come later' > \"$auth_failed_reason_file\"; exit 1";
    let lines = "script-security 2\nauth-user-pass-verify {}/check via-file\ntmp-dir {}\n";
    let Some(mut fixture) = Fixture::start(lines, &[("check", check)]) else { return };
    fixture.client(CLIENT_END, Some(("anna", "s3cret $(id)")), "");
    fixture.connects(CLIENT_END);
    let seen = fixture.text("seen");
    for line in
        ["script_type=user-pass-verify", "common_name=client", "untrusted_ip=192.168.77.1", "IV_PLAT=linux"]
    {
        assert!(seen.lines().any(|it| it == line), "{line}: {seen}");
    }
    assert!(!seen.contains("s3cret"), "{seen}");
    fixture.client(OTHER_END, Some(("anna", "wrong")), "");
    fixture.is_refused(OTHER_END, "AUTH_FAILED,come later");
    let left = std::fs::read_dir(fixture.files.path()).expect("ours");
    let left = left.filter_map(|file| file.ok()?.file_name().into_string().ok());
    assert_eq!(left.filter(|name| name.starts_with("postern-")).count(), 0);
}

#[test]
fn users_of_a_file_of_hashes_are_admitted_and_a_broken_file_admits_nobody() {
    // htpasswd -nbB -C 5 anna "Hello world!", and htpasswd -nb5 berta secret.
    let anna = "anna:$2y$05$uWaclRAwv79iwo34Bt0lF.W2Ga09F7BynQGQlVFzukfun.8xgNhPi\n";
    let berta = "berta:$6$knAl7avipyRWCdPV$/LPtu9Mdk9HoDXSqyTmbv255RAh3XKWkdCFoWOjZewB88LP.arIXdTZx.et8hN/NjzNxIfjRTPHAASul3h/.Q1\n";
    let lines =
        "auth-user-pass-hashes {}/users\nverify-client-cert none\nusername-as-common-name\nauth-gen-token\n";
    let Some(mut fixture) = Fixture::start(lines, &[(USERS, anna)]) else { return };
    fixture.client(CLIENT_END, Some(("anna", "Hello world!")), "");
    fixture.connects(CLIENT_END);
    assert!(fixture.log(SERVER_END).contains("connected with client anna"), "{}", fixture.logs());
    fixture.client(OTHER_END, Some(("anna", "wrong")), "");
    fixture.is_refused(OTHER_END, "AUTH_FAILED");
    let replace = |fixture: &Fixture, text: &str| {
        std::fs::write(path(&fixture.files, "new"), text).expect("ours");
        std::fs::rename(path(&fixture.files, "new"), path(&fixture.files, USERS)).expect("ours");
    };
    replace(&fixture, "berta:secret\n");
    fixture
        .waits_for("the file is refused", || fixture.log(SERVER_END).contains("all passwords are refused"));
    replace(&fixture, berta);
    fixture.waits_for("the file is right", || fixture.log(SERVER_END).contains("is used again"));
    fixture.client(OTHER_END, Some(("berta", "secret")), "");
    fixture.connects(OTHER_END);
    assert!(!fixture.log(SERVER_END).contains("Hello world!"));
}

#[test]
fn a_slow_program_delays_neither_another_client_nor_a_packet() {
    let check = "[ \"$username\" = slow ] && sleep 5; [ \"$password\" = secret ]";
    let lines = "script-security 3\nauth-user-pass-verify {}/check via-env\nusername-as-common-name\nverify-client-cert none\n";
    let Some(mut fixture) = Fixture::start(lines, &[("check", check)]) else { return };
    fixture.client(OTHER_END, Some(("quick", "secret")), "");
    fixture.connects(OTHER_END);
    fixture.client(CLIENT_END, Some(("slow", "secret")), "");
    // Its program runs.
    fixture.waits_for("it asks", || fixture.log(CLIENT_END).contains("Control Channel: TLS"));
    let began = Instant::now();
    let report = fixture.lab.run("c", "ping", &["-q", "-i", "0.02", "-W", "1", "-c", "150", SERVER]);
    let report = report.unwrap_or_else(|error| panic!("{error}\n{}", fixture.logs()));
    assert!(report.contains(" 0% packet loss"), "{report}");
    // Another one connects meanwhile: the quick one, again.
    assert!(
        began.elapsed() < Duration::from_secs(5) && !fixture.reaches_server(CLIENT_END),
        "{}",
        fixture.logs()
    );
    fixture.connects(CLIENT_END);
    assert!(fixture.log(SERVER_END).contains("connected with client slow"), "{}", fixture.logs());
}

#[test]
fn a_program_may_decide_later() {
    let check = "(sleep 2; [ \"$password\" = secret ] && printf 1 > \"$auth_control_file\" || printf 0 > \"$auth_control_file\") &\n\
        exit 2";
    let lines = "script-security 3\nauth-user-pass-verify {}/check via-env\n";
    let Some(mut fixture) = Fixture::start(lines, &[("check", check)]) else { return };
    fixture.client(CLIENT_END, Some(("anna", "secret")), "");
    fixture.connects(CLIENT_END);
    fixture.client(OTHER_END, Some(("anna", "wrong")), "");
    fixture.is_refused(OTHER_END, "AUTH_FAILED");
}

#[test]
fn programs_hear_of_clients_and_give_them_options() {
    let connect = "env | sort > connected; printf 'push \"route 10.55.0.0 255.255.0.0\"\\nifconfig-push 10.9.0.50 255.255.255.0\\niroute 10.66.0.0 255.255.0.0\\n' > \"$1\"";
    let disconnect = "env | sort > disconnected";
    let learn = "echo \"$@\" >> learned; [ \"$2\" != 10.66.0.0/16 ]";
    let verify = "echo \"$@\" >> verified";
    let lines = "script-security 2\nclient-connect {}/connect\nclient-disconnect {}/disconnect\nlearn-address {}/learn\n\
        tls-verify {}/verify\nsetenv SITE berlin\n";
    let scripts = [("connect", connect), ("disconnect", disconnect), ("learn", learn), ("verify", verify)];
    let Some(mut fixture) = Fixture::start(lines, &scripts) else { return };
    let client = fixture.client(CLIENT_END, None, "setenv UV_SITE rome\npush-peer-info\n");
    fixture.connects(CLIENT_END);
    fixture.waits_for("a route", || fixture.route(CLIENT_END, "10.55.0.1"));
    let connected = fixture.text("connected");
    for line in [
        "common_name=client",
        "ifconfig_pool_remote_ip=10.9.0.2",
        "ifconfig_pool_local_ip=10.9.0.1",
        "trusted_ip=192.168.77.1",
        "script_type=client-connect",
        "SITE=berlin",
        "X509_0_CN=client",
        "tls_id_1=CN=Test CA",
    ] {
        assert!(connected.lines().any(|it| it == line), "{line}: {connected}");
    }
    assert_eq!(fixture.text("verified"), "1 CN=Test CA\n0 CN=client\n");
    let addresses = fixture.lab.ip("a", "address").expect("it runs");
    assert!(addresses.contains("10.9.0.50/24"), "{addresses}");
    fixture.lab.kill(client, Signal::TERM);
    fixture.waits_for("it is told", || !fixture.text("disconnected").is_empty());
    fixture.waits_for("addresses are forgotten", || fixture.text("learned").contains("delete 10.9.0.50"));
    let learned = fixture.text("learned");
    assert!(learned.starts_with("add 10.9.0.50 client\n"), "{learned}");
    // The refused network is neither learned nor forgotten.
    assert!(learned.contains("add 10.66.0.0/16 client") && !learned.contains("delete 10.66"), "{learned}");
    let disconnected = fixture.text("disconnected");
    assert!(
        disconnected.contains("time_duration=") && disconnected.contains("bytes_received="),
        "{disconnected}"
    );
}

#[test]
fn files_of_clients_are_read_when_they_connect() {
    let Some(mut fixture) =
        Fixture::start("client-config-dir {}/ccd\npush \"route 10.77.0.0 255.255.0.0\"\n", &[])
    else {
        return;
    };
    let folder = path(&fixture.files, "ccd");
    std::fs::create_dir(&folder).expect("ours");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("ours");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("ours");
    write(
        "client",
        "ifconfig-push 10.9.0.77 255.255.255.0\niroute 10.88.0.0 255.255.0.0\npush-remove \"route 10.77\"\n",
    );
    write("DEFAULT", "disable\n");
    let client = fixture.client(CLIENT_END, None, "");
    fixture.connects(CLIENT_END);
    assert!(
        fixture.route(CLIENT_END, "10.99.1.1") && !fixture.route(CLIENT_END, "10.77.0.1"),
        "{}",
        fixture.logs()
    );
    // A network behind the client.
    fixture.lab.ip("a", "address add 10.88.0.1/32 dev lo").expect("it is free");
    let interface = fixture.lab.interface(INTERFACES[SERVER_END]);
    fixture.lab.ip("b", &format!("route add 10.88.0.0/16 dev {interface}")).expect("it is free");
    fixture
        .waits_for("behind", || fixture.lab.run("b", "ping", &["-c", "1", "-W", "1", "10.88.0.1"]).is_ok());
    // The other one has no file of its own.
    fixture.client(OTHER_END, None, "");
    fixture.is_refused(OTHER_END, "AUTH_FAILED,it is disabled");
    fixture.lab.kill(client, Signal::TERM);
    write("client", "ifconfig-push 10.9.0.78 255.255.255.0\n");
    fixture.client(CLIENT_END, None, "");
    fixture.connects(CLIENT_END);
    let addresses = fixture.lab.ip("a", "address").expect("it runs");
    assert!(addresses.contains("10.9.0.78/24") && !addresses.contains(CLIENT), "{addresses}");
}

#[test]
fn a_token_is_taken_in_place_of_the_password_when_keys_are_renewed() {
    let check = "echo call >> calls; [ \"$password\" = secret ]";
    let lines =
        "script-security 3\nauth-user-pass-verify {}/check via-env\nauth-gen-token 3600 5\nreneg-sec 10\n";
    let Some(mut fixture) = Fixture::start(lines, &[("check", check)]) else { return };
    fixture.client(CLIENT_END, Some(("anna", "secret")), "auth-nocache\n");
    fixture.connects(CLIENT_END);
    let renewed = || fixture.log(SERVER_END).matches("sends with a new key").count() >= 3;
    assert!(wait_until(Duration::from_secs(60), renewed).is_ok(), "{}", fixture.logs());
    assert!(fixture.reaches_server(CLIENT_END), "{}", fixture.logs());
    assert_eq!(fixture.text("calls"), "call\n", "{}", fixture.logs());
    assert_eq!(fixture.log(CLIENT_END).matches("Initialization Sequence Completed").count(), 1);
}

#[test]
fn clients_have_their_addresses_again_after_a_restart_of_the_server() {
    let Some(mut fixture) = Fixture::start("ifconfig-pool-persist {}/ipp.txt 10\n", &[]) else { return };
    fixture.client(OTHER_END, None, "");
    fixture.connects(OTHER_END);
    let client = fixture.client(CLIENT_END, None, "");
    fixture.connects(CLIENT_END);
    let addresses = |fixture: &Fixture| fixture.lab.ip("a", "address").unwrap_or_default();
    assert!(addresses(&fixture).contains("10.9.0.3/24"), "{}", fixture.logs());
    let expected = "other,10.9.0.2,fd09::1000\nclient,10.9.0.3,fd09::1001\n";
    fixture.waits_for("the file", || fixture.text("ipp.txt") == expected);
    fixture.lab.kill(client, Signal::KILL);
    fixture.restart();
    // It is the first one now.
    fixture.client(CLIENT_END, None, "");
    fixture.connects(CLIENT_END);
    assert!(addresses(&fixture).contains("10.9.0.3/24"), "{}", fixture.logs());
}

#[test]
fn a_client_is_disconnected_when_a_list_revokes_it() {
    let Some(mut fixture) = Fixture::start("crl-verify {}/none.crl\n", &[]) else { return };
    let [none, revoked] = ["none.crl", "client.crl"].map(|name| fixture.text(name));
    let replace = |fixture: &Fixture, list: &str| {
        std::fs::write(path(&fixture.files, "new.crl"), list).expect("ours");
        std::fs::rename(path(&fixture.files, "new.crl"), path(&fixture.files, "none.crl")).expect("ours");
    };
    fixture.client(CLIENT_END, None, "");
    fixture.client(OTHER_END, None, "");
    fixture.connects(CLIENT_END);
    fixture.connects(OTHER_END);
    replace(&fixture, &revoked);
    fixture.waits_for("it is ended", || {
        fixture.log(SERVER_END).contains("client client has ended: refused: it, or a CA")
    });
    assert!(!fixture.reaches_server(CLIENT_END) && fixture.reaches_server(OTHER_END), "{}", fixture.logs());
    replace(&fixture, &none);
    fixture.connects(CLIENT_END);
}

#[test]
fn a_client_is_disconnected_when_its_serial_number_is_in_the_directory() {
    let Some(mut fixture) = Fixture::start("crl-verify {} dir\n", &[]) else { return };
    fixture.client(CLIENT_END, None, "");
    fixture.connects(CLIENT_END);
    std::fs::write(path(&fixture.files, &CLIENT_SERIAL.to_string()), "").expect("ours");
    fixture.waits_for("it is ended", || {
        fixture.log(SERVER_END).contains("client client: its certificate is revoked")
    });
    fixture.waits_for("it is refused", || {
        fixture.log(SERVER_END).contains("is refused: its certificate is revoked")
    });
    assert!(!fixture.reaches_server(CLIENT_END), "{}", fixture.logs());
}
