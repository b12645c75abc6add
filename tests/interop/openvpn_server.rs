//! Servers of ours with stock clients: where clients go when one ends, addresses of `topology net30`, and how many may begin.

use crate::openvpn_client_ends::Client;
use crate::openvpn_ends::{
    CLIENT_END, OTHER_END, Program, SERVER_END, SITES, configuration, path, start, write_keys,
};
use crate::support::{PATIENCE, answers, sites_and, skip};
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use tempfile::TempDir;

/// The inner addresses of the two servers.
const SERVERS: [&str; 2] = ["10.9.0.1", "10.10.0.1"];

/// Two servers of ours at `b`, and stock clients at `a` and `c`.
struct Servers {
    lab: Lab,
    files: TempDir,
    processes: Vec<Process>,
}

impl Servers {
    /// `lines`: of each server beside the usual ones.
    fn start(protocol: &str, lines: &[&str]) -> Option<Self> {
        if !lab::has_program("/usr/sbin/openvpn") {
            skip("needs openvpn");
            return None;
        }
        let lab = sites_and(&["c"])?;
        lab.connect(("c", "outside", "192.168.78.1/24"), ("b", "further", "192.168.78.2/24"))
            .expect("veth exists");
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        let mut servers = Self { lab, files, processes: Vec::new() };
        for (number, lines) in lines.iter().enumerate() {
            let interface = servers.lab.interface(&format!("os{number}"));
            let text = configuration(&servers.files, SERVER_END, &interface, Some(3600))
                .replace("port 1194", &format!("port {}", 1194 + number))
                .replace("10.9.0.0", ["10.9.0.0", "10.10.0.0"][number])
                .replace("fd09::", ["fd09::", "fd10::"][number])
                .replace("proto udp", &format!("proto {protocol}"))
                .replace("topology subnet\n", "");
            let text = text + lines;
            let process = start(&mut servers.lab, &servers.files, Program::Ours, SERVER_END, &text);
            servers.processes.push(process);
            servers.wait("it is ready", |it| it.log(SERVER_END).matches("is ready").count() == number + 1);
        }
        Some(servers)
    }

    /// Starts a stock client with these lines.
    fn client(&mut self, protocol: &str, end: usize, lines: &str) {
        let interface = self.interface(end);
        let text = configuration(&self.files, end, &interface, Some(3600))
            .replace("proto udp", &format!("proto {protocol}"));
        start(&mut self.lab, &self.files, Program::Stock, end, &(text + lines));
    }

    fn interface(&self, end: usize) -> String {
        self.lab.interface(["oc", "", "ox"][end])
    }

    fn log(&self, end: usize) -> String {
        std::fs::read_to_string(path(&self.files, &format!("{end}.log"))).unwrap_or_default()
    }

    fn reaches(&self, end: usize, address: &str) -> bool {
        self.lab.run(SITES[end], "ping", &["-c", "1", "-W", "1", address]).is_ok()
    }

    /// The IPv4 addresses of a client: its own, and the other end.
    fn addresses(&self, end: usize) -> String {
        let command = format!("-4 -o address show dev {}", self.interface(end));
        self.lab.ip(SITES[end], &command).unwrap_or_default()
    }

    fn wait(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let done = wait_until(PATIENCE, || condition(self));
        let logs = || [CLIENT_END, SERVER_END, OTHER_END].map(|end| self.log(end)).join("\n---\n");
        assert!(done.is_ok(), "{what}\n{}", logs());
    }
}

#[test]
fn a_server_that_ends_sends_stock_clients_of_net30_to_their_next_server() {
    let net30 = "topology net30\nexplicit-exit-notify 2\n";
    // The addresses of the second begin elsewhere.
    let p2p = "topology p2p\nexplicit-exit-notify\n";
    let Some(mut servers) = Servers::start("udp", &[net30, p2p]) else { return };
    // The third server is the first one again; no client asks another server by itself for two minutes.
    for (end, address) in [(CLIENT_END, "192.168.77.2"), (OTHER_END, "192.168.78.2")] {
        servers.client("udp", end, &format!("remote {address} 1195\n"));
        servers.wait("it connects", |it| it.reaches(end, SERVERS[0]));
    }
    for (end, pair) in [(CLIENT_END, "10.9.0.6 peer 10.9.0.5/32"), (OTHER_END, "10.9.0.10 peer 10.9.0.9/32")]
    {
        assert!(servers.addresses(end).contains(pair), "{}", servers.addresses(end));
        let address = pair.split(' ').next().expect("the first word");
        assert!(answers(&servers.lab, "b", address), "{}", servers.log(SERVER_END));
    }
    let first = servers.processes.remove(0);
    servers.lab.kill(first, Signal::TERM);
    for end in [CLIENT_END, OTHER_END] {
        servers.wait("it goes to the next server", |it| it.reaches(end, SERVERS[1]));
        let log = servers.log(end);
        assert!(log.contains("command was pushed by server ('[N]')"), "{log}");
        let pair = servers.addresses(end);
        assert!(pair.contains("peer 10.10.0.1/32") && !pair.contains("10.9.0."), "{pair}");
    }
    // `explicit-exit-notify 1`: clients come back to the server that they had.
    let restarted = |it: &Servers| it.log(CLIENT_END).matches("command was pushed by server").count();
    let second = servers.processes.remove(0);
    servers.lab.kill(second, Signal::TERM);
    servers.wait("it is told", |it| restarted(it) == 2);
    let tries =
        |it: &Servers| it.log(CLIENT_END).matches("UDPv4 link remote: [AF_INET]192.168.77.2:1195").count();
    servers.wait("the same server again", |it| tries(it) == 2);
}

#[test]
fn connections_of_stock_clients_over_tcp_begin_no_faster_than_connect_freq_says() {
    // The second client of ten minutes waits.
    let Some(mut servers) = Servers::start("tcp-server", &["connect-freq 1 600\n"]) else { return };
    servers.client("tcp-client", CLIENT_END, "");
    servers.wait("the first connects", |it| it.reaches(CLIENT_END, SERVERS[0]));
    servers.client("tcp-client", OTHER_END, "hand-window 3\n");
    let tries = |it: &Servers| it.log(OTHER_END).matches("TCP connection established").count();
    servers.wait("the second tries again and again", |it| tries(it) >= 3);
    let log = servers.log(OTHER_END);
    assert!(!log.contains("Peer Connection Initiated") && !servers.reaches(OTHER_END, SERVERS[0]), "{log}");
    assert!(servers.reaches(CLIENT_END, SERVERS[0]), "{}", servers.log(SERVER_END));
}

/// Private keys with a password in both of their forms, and directories of authorities, are read as OpenVPN reads them.
#[test]
fn encrypted_keys_and_directories_of_authorities_are_those_of_openvpn() {
    for (server, client) in [(Program::Ours, Program::Stock), (Program::Stock, Program::Ours)] {
        let Some(mut ends) = Client::sites(Program::Stock) else { return };
        let file = |name: &str| path(&ends.files, name).to_string_lossy().into_owned();
        let (authorities, authority) = (file("authorities"), file("authorities/ca.pem"));
        std::fs::create_dir(&authorities).expect("made");
        std::fs::rename(file("ca.pem"), authority).expect("moved");
        let openssl =
            |arguments: &[&str]| lab::run("openssl", arguments.iter().copied()).expect("openssl does it");
        // OpenVPN finds a file by the hash of the name in it.
        openssl(&["rehash", &authorities]);
        let secret = ends.write("secret", "s3cret word\nno password\n", 0o600);
        let password = format!("file:{secret}");
        // PKCS #8, and PEM as OpenSSL wrote it before.
        let forms = [
            ("server", &["pkcs8", "-topk8"][..], "BEGIN ENCRYPTED"),
            ("client", &["ec", "-aes256"], "DEK-Info"),
        ];
        for (name, form, marker) in forms {
            let (plain, sealed) = (file(&format!("{name}.key")), file(&format!("{name}.sealed")));
            let files = ["-in", &plain, "-out", &sealed, "-passout", &password];
            openssl(&[form, &files].concat());
            assert!(std::fs::read_to_string(&sealed).expect("written").contains(marker));
            std::fs::rename(sealed, plain).expect("moved");
        }
        for (end, program) in [(SERVER_END, server), (CLIENT_END, client)] {
            ends.start_with(program, end, |text| {
                let (before, after) = text.split_once("ca ").expect("it names an authority");
                let (_, after) = after.split_once('\n').expect("a line");
                format!("{before}capath {authorities}\n{after}askpass {secret}\n")
            });
        }
        ends.wait("it connects", |it| it.reaches(SERVERS[0]));
    }
}
