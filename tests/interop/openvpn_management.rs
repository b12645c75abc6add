//! The management interface: OpenVPN 2.6 as the client of a server that it decides about, and a client of ours that it controls.

use crate::openvpn_ends::{
    CLIENT_END, INTERFACES, OTHER_END, Program, SERVER, SERVER_END, SITES, configuration, path, start,
    write_keys,
};
use crate::support::{PATIENCE, postern, sites_and, skip};
use lab::{Lab, wait_until};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;

/// A program at the management interface.
struct Manager {
    lines: BufReader<UnixStream>,
    /// Notices that came while an answer was awaited: the client tells at any moment.
    notices: VecDeque<String>,
    /// All that was read.
    seen: String,
}

impl Manager {
    /// Connects, when the socket is there.
    fn connect(socket: &Path) -> Self {
        let mut stream = None;
        let connected = wait_until(4 * PATIENCE, || {
            stream = UnixStream::connect(socket).ok();
            stream.is_some()
        });
        assert!(connected.is_ok(), "{} is not there", socket.display());
        let stream = stream.expect("it is connected");
        stream.set_read_timeout(Some(4 * PATIENCE)).expect("a socket");
        Self { lines: BufReader::new(stream), notices: VecDeque::new(), seen: String::new() }
    }

    fn writes(&mut self, line: &str) {
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it is connected");
    }

    fn line(&mut self, awaited: &str) -> String {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        assert!(matches!(read, Ok(1..)), "{awaited:?} has not come: {read:?}\n{}", self.seen);
        self.seen.push_str(&line);
        line
    }

    /// Reads until a notice begins so; returns this line and those before it.
    fn reads(&mut self, begin: &str) -> String {
        let mut text = String::new();
        loop {
            let line = self.notices.pop_front().unwrap_or_else(|| self.line(begin));
            text.push_str(&line);
            if line.starts_with(begin) {
                return text;
            }
        }
    }

    /// The answer to a command, up to a line that begins so, without the notices in between.
    fn answers(&mut self, line: &str, begin: &str) -> String {
        self.writes(line);
        let mut text = String::new();
        loop {
            let line = self.line(begin);
            if line.starts_with('>') {
                self.notices.push_back(line);
                continue;
            }
            text.push_str(&line);
            if line.starts_with(begin) {
                return text;
            }
        }
    }

    /// The number of the next client that is asked about, with its variables.
    fn asked(&mut self) -> (String, String) {
        let line = self.reads(">CLIENT:CONNECT,");
        let numbers = line.lines().last().and_then(|line| line.strip_prefix(">CLIENT:CONNECT,"));
        let numbers = numbers.expect("it begins so").replace(',', " ");
        (numbers, self.reads(">CLIENT:ENV,END"))
    }
}

/// Both ends, with the folder of their files.
fn lab() -> Option<(Lab, TempDir)> {
    if !lab::has_program("/usr/sbin/openvpn") {
        skip("needs openvpn");
        return None;
    }
    let lab = sites_and(&["c"])?;
    lab.connect(("c", "outside", "192.168.78.1/24"), ("b", "further", "192.168.78.2/24"))
        .expect("veth exists");
    let files = tempfile::tempdir().expect("a directory");
    write_keys(&files);
    Some((lab, files))
}

fn text(lab: &Lab, files: &TempDir, end: usize, lines: &str) -> String {
    configuration(files, end, &lab.interface(INTERFACES[end]), Some(3600)) + lines
}

fn reaches(lab: &Lab, end: usize) -> bool {
    lab.run(SITES[end], "ping", &["-c", "1", "-W", "1", SERVER]).is_ok()
}

/// The status has the client, with its user name and its control packets.
fn status_has(manager: &mut Manager, client: &str) {
    let status = manager.answers("status 3", "END");
    let row: Vec<&str> = status
        .lines()
        .find(|line| line.starts_with("CLIENT_LIST\t"))
        .unwrap_or_default()
        .split('\t')
        .collect();
    assert_eq!(
        [row.get(1), row.get(3), row.get(9), row.get(10)],
        [Some(&"client"), Some(&"10.9.0.2"), Some(&"anna"), Some(&client)],
        "{status}"
    );
    assert!(row[5].parse::<u64>().is_ok_and(|bytes| bytes > 1000), "with control packets: {status}");
}

#[test]
fn clients_are_accepted_refused_and_ended() {
    let Some((mut lab, files)) = lab() else { return };
    let socket = path(&files, "server.socket");
    let password = path(&files, "password");
    std::fs::write(&password, "open sesame\n").expect("ours");
    let lines = format!(
        "management {} unix {}\nmanagement-client-auth\nmanagement-hold\n",
        socket.display(),
        password.display()
    );
    let server = text(&lab, &files, SERVER_END, &lines);
    start(&mut lab, &files, Program::Ours, SERVER_END, &server);
    let mut manager = Manager::connect(&socket);
    manager.answers("open sesame", "ENTER PASSWORD:SUCCESS: password is correct");
    manager.reads(">HOLD:Waiting for hold release");
    manager.answers("state on", "SUCCESS");
    manager.answers("signal SIGHUP", "SUCCESS");
    assert!(manager.reads(">HOLD:").contains("RECONNECTING,SIGHUP"), "{}", manager.seen);
    manager.answers("hold release", "SUCCESS");
    manager.reads(">STATE:");
    let login = path(&files, "login");
    std::fs::write(&login, "anna\nse\"cr,et\n").expect("ours");
    let client = format!("auth-user-pass {}\nauth-retry nointeract\n", login.display());
    let client = text(&lab, &files, CLIENT_END, &client);
    start(&mut lab, &files, Program::Stock, CLIENT_END, &client);
    let log = || std::fs::read_to_string(path(&files, &format!("{CLIENT_END}.log"))).unwrap_or_default();

    let (numbers, variables) = manager.asked();
    for line in [
        "common_name=client",
        "username=anna",
        "password=se\"cr,et",
        "untrusted_ip=192.168.77.1",
        "IV_PLAT=linux",
    ] {
        assert!(variables.contains(&format!(">CLIENT:ENV,{line}\r\n")), "{line}: {variables}");
    }
    manager.answers(&format!("client-deny {numbers} 'not today' 'come tomorrow'"), "SUCCESS: client-deny");
    assert!(wait_until(PATIENCE, || log().contains("AUTH_FAILED,come tomorrow")).is_ok(), "{}", log());
    manager.answers(&format!("client-auth-nt {numbers}"), "ERROR: client-auth command failed");

    let (numbers, _) = manager.asked();
    let lines = "push \"route 10.55.0.0 255.255.0.0\"\niroute 10.66.0.0 255.255.0.0";
    manager.writes(&format!("client-auth {numbers}\n{lines}\nEND"));
    let told = manager.reads(">CLIENT:ESTABLISHED,");
    let (client, _) = numbers.split_once(' ').expect("two numbers");
    assert!(told.contains("SUCCESS: client-auth command succeeded"), "{told}");
    assert!(told.contains(&format!(">CLIENT:ADDRESS,{client},10.9.0.2,1\r\n")), "{told}");
    assert!(told.contains(&format!(">CLIENT:ADDRESS,{client},10.66.0.0/255.255.0.0,0\r\n")), "{told}");
    assert!(wait_until(PATIENCE, || reaches(&lab, CLIENT_END)).is_ok(), "{}", log());
    let interface = lab.interface(INTERFACES[CLIENT_END]);
    let route = lab.ip("a", "route get 10.55.0.1").unwrap_or_default();
    assert!(route.contains(&interface), "{route}");
    status_has(&mut manager, client);

    // The client connects again, and is asked about again.
    manager.answers("kill client", "SUCCESS: common name 'client' found, 1 client(s) killed");
    manager.reads(&format!(">CLIENT:DISCONNECT,{client}"));
    assert!(manager.reads(">CLIENT:ENV,END").contains(">CLIENT:ENV,bytes_received="), "{}", manager.seen);
    let (numbers, _) = manager.asked();
    manager.answers(&format!("client-pending-auth {numbers} CR_TEXT:R,E:PIN 30"), "SUCCESS");
    manager.answers(&format!("client-auth-nt {numbers}"), "SUCCESS");
    manager.reads(">CLIENT:ESTABLISHED,");
    assert!(wait_until(PATIENCE, || log().contains("CR_TEXT:R,E:PIN")).is_ok(), "{}", log());
    assert!(wait_until(PATIENCE, || reaches(&lab, CLIENT_END)).is_ok(), "{}", log());
    manager.answers("signal SIGTERM", "SUCCESS");
    assert!(manager.reads(">STATE:").contains("EXITING"), "{}", manager.seen);
}

#[test]
fn a_program_outside_of_our_pid_namespace_is_served() {
    let Some((mut lab, files)) = lab() else { return };
    let [file, socket] = ["inside.conf", "inside.socket"].map(|name| path(&files, name));
    let lines = format!("management {} unix\nmanagement-hold\n", socket.display());
    std::fs::write(&file, text(&lab, &files, OTHER_END, &lines)).expect("a file");
    let mut command = lab.command(SITES[OTHER_END], "unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(postern()).args(["openvpn", "--config"]).arg(&file);
    lab.start(command.stdout(Stdio::null()).stderr(Stdio::null())).expect("it starts");
    let mut manager = Manager::connect(&socket);
    manager.reads(">HOLD:");
    assert_eq!(
        manager.answers("pid", "SUCCESS").trim_end(),
        "SUCCESS: pid=1",
        "it has a namespace of its own"
    );
}

#[test]
fn a_client_asks_for_passwords_and_where_to_connect_to() {
    let Some((mut lab, files)) = lab() else { return };
    let check = path(&files, "check");
    std::fs::write(&check, "#!/bin/sh\n[ \"$username/$password\" = anna/s3same ]\n").expect("ours");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&check, executable).expect("ours");
    let lines = format!("script-security 3\nauth-user-pass-verify {} via-env\n", check.display());
    let server = text(&lab, &files, SERVER_END, &lines);
    start(&mut lab, &files, Program::Stock, SERVER_END, &server);
    let socket = path(&files, "client.socket");
    let lines = format!(
        "management {} unix\nmanagement-hold\nmanagement-query-passwords\nmanagement-query-remote\nmanagement-up-down\n\
         auth-user-pass\nauth-retry interact\nremote 192.0.2.1 1194 udp\n",
        socket.display()
    );
    let client = text(&lab, &files, OTHER_END, &lines);
    start(&mut lab, &files, Program::Ours, OTHER_END, &client);

    let mut manager = Manager::connect(&socket);
    manager.reads(">HOLD:");
    manager.answers("state on", "SUCCESS");
    manager.answers("hold release", "SUCCESS");
    manager.reads(">PASSWORD:Need 'Auth' username/password");
    manager.answers("username Auth anna", "SUCCESS");
    manager.answers("password Auth wr0ng", "SUCCESS");
    let entries = manager.answers("remote-entry-get all", "END");
    assert!(
        entries.contains("0,192.168.78.2,1194,udp,enabled\r\n1,192.0.2.1,1194,udp,enabled\r\n"),
        "{entries}"
    );
    manager.reads(">REMOTE:192.168.78.2,1194,udp");
    manager.answers("remote ACCEPT", "SUCCESS");
    manager.reads(">PASSWORD:Verification Failed: 'Auth'");

    // A client holds before each attempt.
    assert!(manager.reads(">HOLD:").contains("RECONNECTING,auth-failure"), "{}", manager.seen);
    manager.answers("hold off", "SUCCESS");
    manager.answers("hold release", "SUCCESS");
    manager.reads(">PASSWORD:Need 'Auth' username/password");
    manager.answers("username Auth anna", "SUCCESS");
    manager.answers("password Auth s3same", "SUCCESS");
    manager.reads(">REMOTE:192.168.78.2,1194,udp");
    manager.answers("remote SKIP", "SUCCESS");
    manager.reads(">REMOTE:192.0.2.1,1194,udp");
    manager.answers("remote MOD 192.168.78.2 1194", "SUCCESS");
    let told = manager.reads(">UPDOWN:ENV,END") + &manager.reads(">STATE:");
    for line in [
        "WAIT",
        "AUTH",
        "GET_CONFIG",
        "ASSIGN_IP,,10.9.0.2",
        "CONNECTED,SUCCESS,10.9.0.2,192.168.78.2,1194,,",
    ] {
        assert!(told.contains(&format!(",{line},")), "{line}: {told}");
    }
    assert!(told.contains(">UPDOWN:ENV,ifconfig_local=10.9.0.2\r\n"), "{told}");
    assert!(wait_until(PATIENCE, || reaches(&lab, OTHER_END)).is_ok(), "{}", manager.seen);
    manager.answers("bytecount 1", "SUCCESS");
    manager.reads(">BYTECOUNT:");
    manager.answers("signal SIGUSR1", "SUCCESS");
    manager.reads(">REMOTE:");
    let status = manager.answers("log all", "END");
    assert!(!manager.seen.contains("s3same") && !status.contains("wr0ng"), "{}", manager.seen);
}

#[test]
fn a_program_challenges_a_client_in_its_session_and_another_by_the_reason_of_a_refusal() {
    let Some((mut lab, files)) = lab() else { return };
    let check = "#!/bin/sh\ncase $username/$password in\n\
        anna/secret) printf '30\\ncrtext\\nCR_TEXT:R,E:PIN\\n' > \"$auth_pending_file\"; exit 2;;\n\
        berta/CRV1::state-1::123456) exit 0;;\n\
        berta/*) echo 'CRV1:R,E:state-1:YmVydGE=:PIN' > \"$auth_failed_reason_file\"; exit 1;;\nesac\nexit 1\n";
    // The client sends base64: 123456.
    let respond = "#!/bin/sh\n[ \"$(cat \"$1\")\" = MTIzNDU2 ] && printf 1 > \"$auth_control_file\"\n";
    for (name, text) in [("check", check), ("respond", respond)] {
        std::fs::write(path(&files, name), text).expect("ours");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path(&files, name), executable).expect("ours");
    }
    let folder = files.path().display();
    let lines = format!(
        "script-security 3\nauth-user-pass-verify {folder}/check via-env\nclient-crresponse {folder}/respond\n"
    );
    let server = text(&lab, &files, SERVER_END, &lines);
    start(&mut lab, &files, Program::Ours, SERVER_END, &server);
    let lines = |end: usize| {
        let socket = path(&files, &format!("{end}.socket"));
        format!(
            "management {} unix\nmanagement-query-passwords\nauth-user-pass\nauth-retry interact\n",
            socket.display()
        )
    };
    for end in [CLIENT_END, OTHER_END] {
        let client = text(&lab, &files, end, &lines(end));
        start(&mut lab, &files, Program::Stock, end, &client);
    }
    let log = |end: usize| std::fs::read_to_string(path(&files, &format!("{end}.log"))).unwrap_or_default();
    let logs = || [SERVER_END, CLIENT_END, OTHER_END].map(log).join("\n");
    let login = |manager: &mut Manager, user: &str, password: &str| {
        manager.reads(">PASSWORD:Need 'Auth' username/password");
        manager.answers(&format!("username Auth {user}"), "SUCCESS");
        manager.answers(&format!("password Auth {password}"), "SUCCESS");
    };
    let mut anna = Manager::connect(&path(&files, &format!("{CLIENT_END}.socket")));
    login(&mut anna, "anna", "secret");
    anna.reads(">INFOMSG:CR_TEXT:R,E:PIN");
    anna.answers("cr-response MTIzNDU2", "SUCCESS");
    assert!(wait_until(PATIENCE, || reaches(&lab, CLIENT_END)).is_ok(), "{}", logs());
    let mut berta = Manager::connect(&path(&files, &format!("{OTHER_END}.socket")));
    login(&mut berta, "berta", "any");
    berta.reads(">PASSWORD:Verification Failed: 'Auth' ['CRV1:R,E:state-1:YmVydGE=:PIN']");
    login(&mut berta, "berta", "CRV1::state-1::123456");
    assert!(wait_until(PATIENCE, || reaches(&lab, OTHER_END)).is_ok(), "{}", logs());
}

/// A client whose private key is locked asks for its password, as OpenVPN does: again after a wrong one, and after SIGHUP with
/// `auth-nocache`.
#[test]
fn the_password_of_a_private_key_is_asked_for_as_openvpn_asks() {
    for program in [Program::Ours, Program::Stock] {
        let Some((mut lab, files)) = lab() else { return };
        let server = text(&lab, &files, SERVER_END, "");
        start(&mut lab, &files, Program::Ours, SERVER_END, &server);
        let [plain, sealed] =
            ["client.key", "client.sealed"].map(|name| path(&files, name).to_string_lossy().into_owned());
        let arguments = ["pkcs8", "-topk8", "-in", &plain, "-out", &sealed, "-passout", "pass:s3cret word"];
        lab::run("openssl", arguments).expect("openssl does it");
        std::fs::rename(sealed, plain).expect("moved");
        let socket = path(&files, "client.socket");
        let lines = format!(
            "management {} unix\nmanagement-query-passwords\nauth-retry interact\nauth-nocache\n",
            socket.display()
        );
        let client = text(&lab, &files, CLIENT_END, &lines).replace("persist-key\n", "");
        start(&mut lab, &files, program, CLIENT_END, &client);
        let mut manager = Manager::connect(&socket);
        let entered = "SUCCESS: 'Private Key' password entered, but not yet verified";
        manager.reads(">PASSWORD:Need 'Private Key' password");
        manager.answers("password \"Private Key\" wrong", entered);
        manager.reads(">PASSWORD:Verification Failed: 'Private Key'");
        for reread in [true, false] {
            manager.reads(">PASSWORD:Need 'Private Key' password");
            manager.answers("password \"Private Key\" \"s3cret word\"", entered);
            let log =
                || std::fs::read_to_string(path(&files, &format!("{CLIENT_END}.log"))).unwrap_or_default();
            let reached = wait_until(PATIENCE, || reaches(&lab, CLIENT_END));
            assert!(reached.is_ok() && !log().contains("s3cret"), "{program:?}: {}", log());
            if reread {
                manager.answers("signal SIGHUP", "SUCCESS");
            }
        }
    }
}
