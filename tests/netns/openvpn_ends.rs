//! OpenVPN's ends in two namespaces, ours or OpenVPN itself: a server at `b`, clients at `a` and `c`, AES-256-GCM and tls-crypt.

use crate::support::{PATIENCE, answers, dropped, postern, sites_and, skip, tcp_arrives_whole};
use lab::{Lab, Process, wait_until};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};
use rustix::process::Signal;
use std::fs::File;
use std::path::PathBuf;
use tempfile::TempDir;

/// A program that speaks OpenVPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Ours,
    Stock,
}

/// The addresses inside of the tunnel: of the client, and of the server.
pub const CLIENT: &str = "10.9.0.2";
pub const SERVER: &str = "10.9.0.1";
const OTHER: &str = "10.9.0.3";
const CLIENT_V6: &str = "fd09::1000";
const SERVER_V6: &str = "fd09::1";

/// Routes that a client has from the server, and from its own file.
const PUSHED: &str = "10.99.1.1";
const ROUTED: &str = "10.99.2.1";

/// The client is the first.
pub struct Ends {
    pub lab: Lab,
    /// `udp` or `tcp`.
    protocol: &'static str,
    programs: [Program; 2],
    processes: [Process; 2],
    /// How often data keys are renewed, if not after an hour.
    renegotiate_seconds: Option<u64>,
    files: TempDir,
}

pub const CLIENT_END: usize = 0;
/// The end that is a server.
pub const SERVER_END: usize = 1;
/// The end of a second client.
pub const OTHER_END: usize = 2;
pub const SITES: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 3] = ["client", "server", "other"];
pub const INTERFACES: [&str; 3] = ["oc", "os", "ox"];
/// Where a client finds the server.
const REMOTES: [&str; 3] = ["192.168.77.2", "", "192.168.78.2"];
const SERVER_OUTSIDE_V6: &str = "fd77::2";

impl Ends {
    /// Starts both ends, and waits until they reach each other; without root or OpenVPN, says that the test is skipped.
    pub fn start(programs: [Program; 2], renegotiate_seconds: Option<u64>) -> Option<Self> {
        Self::start_over("udp", programs, renegotiate_seconds)
    }

    /// The same over TCP or UDP.
    pub fn start_over(
        protocol: &'static str,
        programs: [Program; 2],
        renegotiate_seconds: Option<u64>,
    ) -> Option<Self> {
        if programs.contains(&Program::Stock) && !lab::has_program("/usr/sbin/openvpn") {
            skip("needs openvpn");
            return None;
        }
        let mut lab = sites_and(&["c"])?;
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        let processes = [CLIENT_END, SERVER_END].map(|end| {
            let interface = lab.interface(INTERFACES[end]);
            let text = configuration(&files, end, &interface, renegotiate_seconds);
            start(&mut lab, &files, programs[end], end, &over(protocol, &text))
        });
        let ends = Self { lab, protocol, programs, processes, renegotiate_seconds, files };
        ends.wait_until_connected();
        Some(ends)
    }

    /// Both ends reach each other.
    pub fn wait_until_connected(&self) {
        let connected = wait_until(PATIENCE, || self.is_connected());
        assert!(connected.is_ok(), "{}", self.logs());
    }

    pub fn is_connected(&self) -> bool {
        self.lab.run("a", "ping", &["-c", "1", "-W", "1", SERVER]).is_ok()
    }

    /// IPv4, IPv6 and TCP go both ways.
    pub fn carries_everything(&self) {
        for (from, to, address, address_v6) in [("a", "b", SERVER, SERVER_V6), ("b", "a", CLIENT, CLIENT_V6)]
        {
            assert!(answers(&self.lab, from, address_v6), "{}", self.logs());
            for address in [address, address_v6] {
                tcp_arrives_whole(&self.lab, from, to, address, 8 << 20)
                    .unwrap_or_else(|error| panic!("{error}\n{}", self.logs()));
            }
        }
    }

    /// Kills one end, and starts it again.
    pub fn kill(&mut self, end: usize) {
        self.lab.kill(self.processes[end], Signal::KILL);
        let interface = self.lab.interface(INTERFACES[end]);
        let (program, renegotiate) = (self.programs[end], self.renegotiate_seconds);
        let text = over(self.protocol, &configuration(&self.files, end, &interface, renegotiate));
        self.processes[end] = start(&mut self.lab, &self.files, program, end, &text);
    }

    /// Starts a second client of ours, at `c`, which the server calls `other`, and waits until it reaches the server; returns its
    /// address inside.
    pub fn start_other_client(&mut self) -> &'static str {
        self.lab
            .connect(("c", "outside", "192.168.78.1/24"), ("b", "further", "192.168.78.2/24"))
            .expect("veth exists");
        let interface = self.lab.interface(INTERFACES[OTHER_END]);
        let text = over(self.protocol, &configuration(&self.files, OTHER_END, &interface, None));
        start(&mut self.lab, &self.files, Program::Ours, OTHER_END, &text);
        let reaches = || self.lab.run("c", "ping", &["-c", "1", "-W", "1", SERVER]).is_ok();
        let reached = wait_until(PATIENCE, reaches);
        assert!(reached.is_ok(), "{}\n{}", self.logs(), self.log(OTHER_END));
        OTHER
    }

    /// Sends a signal to the first client.
    pub fn signal_client(&self, signal: Signal) {
        self.processes[CLIENT_END].signal(signal);
    }

    pub fn interface_of_server(&self) -> String {
        self.lab.interface(INTERFACES[SERVER_END])
    }

    pub fn log_of_server(&self) -> String {
        self.log(SERVER_END)
    }

    fn log(&self, end: usize) -> String {
        std::fs::read_to_string(self.files.path().join(format!("{end}.log"))).unwrap_or_default()
    }

    pub fn logs(&self) -> String {
        let logs = [CLIENT_END, SERVER_END].map(|end| {
            let log = self.log(end);
            let lines: Vec<&str> = log.lines().rev().take(60).collect();
            format!(
                "{:?} {}:\n{}\n",
                self.programs[end],
                SITES[end],
                lines.into_iter().rev().collect::<Vec<_>>().join("\n")
            )
        });
        logs.concat()
    }

    /// How many data keys an end has used to send.
    fn keys(&self, end: usize) -> usize {
        let line = match self.programs[end] {
            Program::Ours => "sends with a new key",
            Program::Stock => "Outgoing Data Channel: Cipher 'AES-256-GCM'",
        };
        self.log(end).matches(line).count()
    }
}

/// Data goes through both ways; a killed end comes back.
pub fn end_to_end(programs: [Program; 2]) {
    end_to_end_over("udp", programs);
}

/// The same over TCP or UDP.
pub fn end_to_end_over(protocol: &'static str, programs: [Program; 2]) {
    let Some(mut ends) = Ends::start_over(protocol, programs, None) else { return };
    ends.carries_everything();
    let interface = ends.lab.interface(INTERFACES[CLIENT_END]);
    for address in [PUSHED, ROUTED] {
        let leads =
            || ends.lab.ip("a", &format!("route get {address}")).is_ok_and(|it| it.contains(&interface));
        assert!(wait_until(PATIENCE, leads).is_ok(), "no route to {address}\n{}", ends.logs());
    }
    for end in [CLIENT_END, SERVER_END] {
        ends.kill(end);
        ends.wait_until_connected();
    }
    ends.carries_everything();
}

/// No packet is lost although keys are renewed every ten seconds.
pub fn renewals(programs: [Program; 2]) {
    renewals_over("udp", programs);
}

/// The same over TCP or UDP.
pub fn renewals_over(protocol: &'static str, programs: [Program; 2]) {
    const SECONDS: u32 = 35;
    const EACH: u32 = 50;
    let Some(ends) = Ends::start_over(protocol, programs, Some(10)) else { return };
    let before = [CLIENT_END, SERVER_END].map(|end| ends.keys(end));
    let count = (SECONDS * EACH).to_string();
    let arguments = ["-q", "-i", "0.02", "-W", "2", "-c", &count, SERVER];
    let report =
        ends.lab.run("a", "ping", &arguments).unwrap_or_else(|error| panic!("{error}\n{}", ends.logs()));
    assert!(report.contains(" 0% packet loss"), "{report}\n{}", ends.logs());
    for end in [CLIENT_END, SERVER_END] {
        let renewed = ends.keys(end) - before[end];
        assert!(renewed >= 2, "{renewed} renewals\n{}", ends.logs());
    }
    ends.carries_everything();
}

/// Data goes through both ways with each of these ciphers and limits: lines of the client, and of the server.
pub fn ciphers(programs: [Program; 2]) {
    const CHOICES: &[[&str; 2]] = &[
        ["data-ciphers AES-256-CBC\nauth SHA512", "data-ciphers AES-256-GCM:AES-256-CBC\nauth SHA512"],
        ["data-ciphers AES-192-CBC\nauth SHA384", "data-ciphers AES-192-CBC\nauth SHA384"],
        ["data-ciphers AES-128-CBC\nauth SHA1", "data-ciphers AES-128-CBC\nauth SHA1\nreplay-window 128 30"],
        ["data-ciphers none\nauth SHA256", "data-ciphers none\nauth SHA256"],
        [
            "data-ciphers AES-128-GCM\ntls-ciphersuites TLS_CHACHA20_POLY1305_SHA256",
            "data-ciphers AES-128-GCM\ntls-groups secp384r1\ntls-version-min 1.3",
        ],
        [
            "data-ciphers AES-128-GCM\ntls-version-max 1.2",
            "data-ciphers AES-128-GCM\ntls-cipher TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384",
        ],
    ];
    if programs.contains(&Program::Stock) && !lab::has_program("/usr/sbin/openvpn") {
        return skip("needs openvpn");
    }
    for lines in CHOICES {
        let Some(mut lab) = sites_and(&["c"]) else { return };
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        let processes = [CLIENT_END, SERVER_END].map(|end| {
            let interface = lab.interface(INTERFACES[end]);
            let text = configuration(&files, end, &interface, Some(3600));
            let text = text.replace("data-ciphers AES-256-GCM\nauth SHA256", lines[end]);
            assert!(text.contains(lines[end]), "{text}");
            start(&mut lab, &files, programs[end], end, &text)
        });
        let (protocol, renegotiate_seconds) = ("udp", Some(3600));
        let ends = Ends { lab, protocol, programs, processes, renegotiate_seconds, files };
        ends.wait_until_connected();
        ends.carries_everything();
    }
}

/// The client at `a` gets another address, and stays in its session, whose keys are renewed there. The server is ours.
pub fn moves(client: Program) {
    const MOVED: &str = "192.168.77.9";
    let Some(ends) = Ends::start([client, Program::Ours], Some(10)) else { return };
    let sessions = |ends: &Ends| ends.log(SERVER_END).matches("connected with client").count();
    let before = sessions(&ends);
    ends.lab.ip("a", "address delete 192.168.77.1/24 dev outside").expect("it has it");
    ends.lab.ip("a", &format!("address add {MOVED}/24 dev outside")).expect("it is free");
    ends.wait_until_connected();
    // The control thread is told after the data path.
    let told = || ends.log(SERVER_END).contains(&format!("client client is at {MOVED}"));
    assert!(wait_until(PATIENCE, told).is_ok(), "{}", ends.logs());
    let keys = ends.keys(SERVER_END);
    let renewed = wait_until(PATIENCE, || ends.keys(SERVER_END) > keys);
    assert!(renewed.is_ok() && sessions(&ends) == before, "{}", ends.logs());
    assert!(ends.is_connected(), "{}", ends.logs());
}

/// A second client of ours has an address of its own, reaches the first one, and sends from no other address.
pub fn two_clients(first: Program) {
    let Some(mut ends) = Ends::start([first, Program::Ours], None) else { return };
    ends.lab.run("b", "sysctl", &["-qw", "net.ipv4.ip_forward=1"]).expect("root may");
    ends.start_other_client();
    let interface = ends.lab.interface(INTERFACES[OTHER_END]);
    assert!(answers(&ends.lab, "a", OTHER) && answers(&ends.lab, "c", CLIENT), "{}", ends.logs());
    ends.lab.ip("c", &format!("address add 10.9.0.77/32 dev {interface}")).expect("it is free");
    assert!(ends.lab.run("c", "ping", &["-c", "2", "-W", "1", "-I", "10.9.0.77", SERVER]).is_err());
    assert!(dropped(&ends.lab.interface(INTERFACES[SERVER_END]), "foreign-source") >= 2);
}

/// With `client-to-client`, two clients and the network behind one reach each other without forwarding in the kernel. The
/// second client is connected in UDP or over TCP, as `protocol` says.
pub fn relayed(clients: Program, protocol: &str) {
    if clients == Program::Stock && !lab::has_program("/usr/sbin/openvpn") {
        return skip("needs openvpn");
    }
    let Some(mut lab) = sites_and(&["c"]) else { return };
    let files = tempfile::tempdir().expect("a directory");
    write_keys(&files);
    lab.run("b", "sysctl", &["-qw", "net.ipv4.ip_forward=0"]).expect("root may");
    lab.connect(("c", "outside", "192.168.78.1/24"), ("b", "further", "192.168.78.2/24"))
        .expect("veth exists");
    lab.ip("a", "address add 10.71.0.1/32 dev lo").expect("it is free");
    let folder = path(&files, "clients");
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("client"), "iroute 10.71.0.0 255.255.0.0\n").expect("written");
    let more = format!(
        "client-to-client\nclient-config-dir {}\nroute 10.71.0.0 255.255.0.0\npush \"route 10.71.0.0 255.255.0.0\"\n\
         local * 1194 udp\nstatus {} 1\n{}",
        folder.display(),
        path(&files, "status").display(),
        if protocol == "tcp" { "local * 1194 tcp\n" } else { "" }
    );
    for (end, program) in [(SERVER_END, Program::Ours), (CLIENT_END, clients), (OTHER_END, clients)] {
        let interface = lab.interface(INTERFACES[end]);
        let own = if end == SERVER_END { &more } else { "" };
        let text = configuration(&files, end, &interface, Some(3600)) + own;
        let text = if end == OTHER_END { over(protocol, &text) } else { text };
        start(&mut lab, &files, program, end, &text);
    }
    let log = |end: usize| std::fs::read_to_string(path(&files, &format!("{end}.log"))).unwrap_or_default();
    let reaches =
        |lab: &Lab, from: &str, to: &str| lab.run(from, "ping", &["-c", "1", "-W", "1", to]).is_ok();
    let is_up = || reaches(&lab, "a", SERVER) && reaches(&lab, "c", SERVER);
    assert!(wait_until(PATIENCE, is_up).is_ok(), "{}", log(SERVER_END));
    let address = |site: &str, end: usize| {
        let shown = lab.ip(site, &format!("-4 -o address show dev {}", lab.interface(INTERFACES[end])));
        let shown = shown.expect("it is there");
        let found = shown.split_whitespace().find_map(|word| word.strip_suffix("/24"));
        found.expect("an address").to_owned()
    };
    let (client, other) = (address("a", CLIENT_END), address("c", OTHER_END));
    for (from, to, called) in [("a", "c", other.as_str()), ("c", "a", &client), ("c", "a", "10.71.0.1")] {
        let reached = wait_until(PATIENCE, || reaches(&lab, from, called));
        assert!(reached.is_ok(), "{called}\n{}", log(SERVER_END));
        tcp_arrives_whole(&lab, from, to, called, 2 << 20)
            .unwrap_or_else(|error| panic!("{called}: {error}\n{}", log(SERVER_END)));
    }
    // No client has this address.
    assert!(!reaches(&lab, "a", "10.9.0.99"));
    if protocol == "tcp" {
        let status = || std::fs::read_to_string(path(&files, "status")).unwrap_or_default();
        let each = ["client,udp4:192.168.77.1:", "other,tcp4-server:192.168.78.1:"];
        let shown = wait_until(PATIENCE, || each.iter().all(|line| status().contains(line)));
        assert!(shown.is_ok(), "{}", status());
    }
}

/// A client of ours ends instead of sending in clear what its server wants in the tunnel.
pub fn ends_because_of(server: Program, option: &str, told: &str) {
    if server == Program::Stock && !lab::has_program("/usr/sbin/openvpn") {
        return skip("needs openvpn");
    }
    let Some(mut lab) = sites_and(&["c"]) else { return };
    let files = tempfile::tempdir().expect("a directory");
    write_keys(&files);
    let [client, server] = [(CLIENT_END, Program::Ours), (SERVER_END, server)].map(|(end, program)| {
        let push = if end == SERVER_END { format!("push \"{option}\"\n") } else { String::new() };
        let interface = lab.interface(INTERFACES[end]);
        let text = configuration(&files, end, &interface, Some(3600)) + &push;
        start(&mut lab, &files, program, end, &text)
    });
    let mut status = None;
    let ended = wait_until(PATIENCE, || {
        status = lab.ended(client);
        status.is_some()
    });
    let log = std::fs::read_to_string(path(&files, &format!("{CLIENT_END}.log"))).unwrap_or_default();
    assert!(ended.is_ok() && status.and_then(|it| it.code()) == Some(1), "{status:?} {log}");
    assert!(log.contains(told) && log.contains("fix: "), "{log}");
    lab.kill(server, Signal::TERM);
}

/// Starts one end with this file; its log is `END.log`.
pub fn start(lab: &mut Lab, files: &TempDir, program: Program, end: usize, configuration: &str) -> Process {
    let log = File::options().create(true).append(true).open(files.path().join(format!("{end}.log")));
    let log = log.expect("created");
    let path = path(files, &format!("{}.conf", NAMES[end]));
    std::fs::write(&path, configuration).expect("written");
    let mut command = match program {
        Program::Ours => {
            let mut command = lab.command(SITES[end], postern());
            command.arg("openvpn").env("LOG_LEVEL", "debug");
            command
        }
        Program::Stock => lab.command(SITES[end], "openvpn"),
    };
    command.arg("--config").arg(path).stdout(log.try_clone().expect("duplicated")).stderr(log);
    lab.start(&mut command).expect("it starts")
}

/// A configuration of UDP, with another protocol, and IPv6 outside if its name says so.
fn over(protocol: &str, configuration: &str) -> String {
    let text = configuration.replacen("proto udp", &format!("proto {protocol}"), 1);
    if protocol.contains('6') { text.replace(REMOTES[CLIENT_END], SERVER_OUTSIDE_V6) } else { text }
}

pub fn path(files: &TempDir, name: &str) -> PathBuf {
    files.path().join(name)
}

/// OpenVPN's own file, of the server or of a client.
pub fn configuration(
    files: &TempDir,
    end: usize,
    interface: &str,
    renegotiate_seconds: Option<u64>,
) -> String {
    let own = NAMES[end];
    let file = |name: &str| path(files, name).to_string_lossy().into_owned();
    let inline = std::fs::read_to_string(path(files, "static.key")).expect("written");
    let common = format!(
        "dev {interface}\ndev-type tun\nproto udp\ndisable-dco\nverb 4\ndata-ciphers AES-256-GCM\nauth SHA256\n\
         ca {}\ncert {}\nkey {}\npersist-key\npersist-tun\n<tls-crypt>\n{inline}</tls-crypt>\n",
        file("ca.pem"),
        file(&format!("{own}.pem")),
        file(&format!("{own}.key")),
    );
    let renewal = renegotiate_seconds.map(|seconds| format!("reneg-sec {seconds}\n")).unwrap_or_default();
    let side = if end == SERVER_END {
        format!(
            "port 1194\nserver 10.9.0.0 255.255.255.0\nserver-ipv6 fd09::/64\ntopology subnet\ndh none\nkeepalive 1 4\n\
             remote-cert-tls client\npush \"route {PUSHED} 255.255.255.255\"\n"
        )
    } else {
        let remote = REMOTES[end];
        // No server answers at the first port.
        let silent = if renegotiate_seconds.is_none() {
            format!("remote {remote} 1195\nserver-poll-timeout 4\n")
        } else {
            String::new()
        };
        format!(
            "client\nnobind\n{silent}remote {remote} 1194\nresolv-retry infinite\n\
             remote-cert-tls server\nverify-x509-name server name\nroute {ROUTED} 255.255.255.255\n"
        )
    };
    [common, renewal, side].concat()
}

/// The serial number of the client's certificate.
pub const CLIENT_SERIAL: u64 = 1_000_000_007;

/// A CA, certificates of both ends, revocation lists without and with the client, and a key of tls-crypt.
pub fn write_keys(files: &TempDir) {
    let named = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut params = named("Test CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("works")).expect("valid");
    let write = |name: &str, text: String| std::fs::write(path(files, name), text).expect("written");
    write("ca.pem", authority.pem());
    for (name, revoked) in [("none.crl", None), ("client.crl", Some(CLIENT_SERIAL))] {
        let entry = |serial: u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.into_iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        write(name, list.signed_by(&authority).expect("valid").pem().expect("valid"));
    }
    for name in NAMES {
        let purpose = if name == "server" {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        };
        let mut params = named(name);
        params.extended_key_usages = vec![purpose];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if name == NAMES[CLIENT_END] {
            params.serial_number = Some(SerialNumber::from(CLIENT_SERIAL));
        }
        let key = KeyPair::generate().expect("works");
        write(&format!("{name}.pem"), params.signed_by(&key, &authority).expect("valid").pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
    let lines: Vec<String> = (0..16u8).map(|line| format!("{line:02x}").repeat(16)).collect();
    write(
        "static.key",
        format!(
            "-----BEGIN OpenVPN Static key V1-----\n{}\n-----END OpenVPN Static key V1-----\n",
            lines.join("\n")
        ),
    );
}
