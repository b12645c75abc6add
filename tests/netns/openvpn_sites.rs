//! Two sites with OpenVPN and no server: `a` is the client of TLS, `b` its server. Each is ours, OpenVPN itself, or a daemon of ours.

use crate::openvpn_ends::{CLIENT_END, Program, SERVER_END, path, start, write_keys};
use crate::support::{PATIENCE, ask, postern, sites_and, skip, tcp_arrives_whole};
use lab::postern::Postern;
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use tempfile::TempDir;

/// The addresses of both ends in the tunnel, and of a machine behind each.
const INSIDE: [&str; 2] = ["10.9.0.2", "10.9.0.1"];
const INSIDE_V6: [&str; 2] = ["fd09::2", "fd09::1"];
const BEHIND: [&str; 2] = ["10.71.0.1", "10.72.0.1"];
const NETWORKS: [&str; 2] = ["10.71.0.0", "10.72.0.0"];
const OUTSIDE: [&str; 2] = ["192.168.77.1", "192.168.77.2"];

pub struct Sites {
    pub lab: Lab,
    pub files: TempDir,
    processes: [Option<Process>; 2],
}

impl Sites {
    pub fn new(programs: &[Program]) -> Option<Self> {
        if programs.contains(&Program::Stock) && !lab::has_program("/usr/sbin/openvpn") {
            skip("needs openvpn");
            return None;
        }
        let lab = sites_and(&["c"])?;
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        for (site, address) in ["a", "b"].into_iter().zip(BEHIND) {
            lab.ip(site, &format!("address add {address}/32 dev lo")).expect("it is free");
        }
        Some(Self { lab, files, processes: [None; 2] })
    }

    /// Starts an end with these lines.
    pub fn start(&mut self, program: Program, end: usize, lines: &str) {
        let text = self.configuration(end) + lines;
        self.processes[end] = Some(start(&mut self.lab, &self.files, program, end, &text));
    }

    fn configuration(&self, end: usize) -> String {
        let (name, role) = [("client", "tls-client"), ("server", "tls-server\ndh none")][end];
        let interface = self.lab.interface(["oc", "os"][end]);
        let file = |name: &str| path(&self.files, name).to_string_lossy().into_owned();
        let (own, other) = (INSIDE[end], INSIDE[1 - end]);
        format!(
            "dev {interface}\ndev-type tun\ndisable-dco\nverb 4\n{role}\nifconfig {own} {other}\n\
             ifconfig-ipv6 {}/64 {}\nroute {} 255.255.0.0\nca {}\ncert {}\nkey {}\n",
            INSIDE_V6[end],
            INSIDE_V6[1 - end],
            NETWORKS[1 - end],
            file("ca.pem"),
            file(&format!("{name}.pem")),
            file(&format!("{name}.key")),
        )
    }

    fn kill(&mut self, end: usize) {
        self.lab.kill(self.processes[end].take().expect("it runs"), Signal::KILL);
    }

    fn log(&self, end: usize) -> String {
        std::fs::read_to_string(path(&self.files, &format!("{end}.log"))).unwrap_or_default()
    }

    pub fn logs(&self) -> String {
        format!("client of TLS:\n{}\nserver of TLS:\n{}", self.log(CLIENT_END), self.log(SERVER_END))
    }

    /// The machines behind both ends reach each other.
    fn reach_each_other(&self) -> bool {
        let reaches = |site: &str, from: &str, to: &str| {
            self.lab.run(site, "ping", &["-c", "1", "-W", "1", "-I", from, to]).is_ok()
        };
        reaches("a", BEHIND[0], BEHIND[1]) && reaches("b", BEHIND[1], BEHIND[0])
    }

    pub fn wait_until_connected(&self) {
        let connected = wait_until(PATIENCE, || self.reach_each_other());
        assert!(connected.is_ok(), "{}", self.logs());
    }

    pub fn carry_everything(&self) {
        for (from, to, end) in [("a", "b", 1), ("b", "a", 0)] {
            for address in [INSIDE[end], INSIDE_V6[end], BEHIND[end]] {
                tcp_arrives_whole(&self.lab, from, to, address, 2 << 20)
                    .unwrap_or_else(|error| panic!("{address}: {error}\n{}", self.logs()));
            }
        }
    }
}

/// Data goes both ways, over UDP with both ends named and over TCP; each end is killed and comes back.
pub fn sites(programs: [Program; 2]) {
    let Some(mut sites) = Sites::new(&programs) else { return };
    let crypt = path(&sites.files, "static.key").to_string_lossy().into_owned();
    let [client, server] = OUTSIDE;
    let lines = [
        format!("remote {server}\ntls-auth {crypt} 1\nauth SHA256\nkeepalive 1 4\nremote-cert-tls server\n"),
        format!("remote {client}\ntls-auth {crypt} 0\nauth SHA256\nkeepalive 1 4\nremote-cert-tls client\n"),
    ];
    for end in [SERVER_END, CLIENT_END] {
        sites.start(programs[end], end, &lines[end]);
    }
    sites.wait_until_connected();
    sites.carry_everything();
    for end in [CLIENT_END, SERVER_END] {
        sites.kill(end);
        sites.start(programs[end], end, &lines[end]);
        sites.wait_until_connected();
    }
    sites.kill(CLIENT_END);
    sites.kill(SERVER_END);
    // The client may be anywhere, and moves; keys are renewed there.
    let common = format!("tls-crypt {crypt}\nping 1\nping-restart 4\nreneg-sec 5\nfloat\n");
    let lines = [format!("remote {server}\nnobind\n{common}"), common];
    for end in [SERVER_END, CLIENT_END] {
        sites.start(programs[end], end, &lines[end]);
    }
    sites.wait_until_connected();
    sites.lab.ip("a", "address delete 192.168.77.1/24 dev outside").expect("it has it");
    sites.lab.ip("a", "address add 192.168.77.9/24 dev outside").expect("it is free");
    sites.wait_until_connected();
    sites.kill(CLIENT_END);
    sites.kill(SERVER_END);
    let lines = [
        format!("proto tcp-client\nremote {server}\ntls-crypt {crypt}\nping 1\nping-restart 4\n"),
        format!("proto tcp-server\ntls-crypt {crypt}\nping 1\nping-restart 4\n"),
    ];
    for end in [SERVER_END, CLIENT_END] {
        sites.start(programs[end], end, &lines[end]);
    }
    sites.wait_until_connected();
    sites.carry_everything();
}

#[test]
fn two_sites_of_ours_carry_data_and_one_that_is_gone_leaks_nothing() {
    let Some(mut sites) = Sites::new(&[]) else { return };
    let text = |name: &str| std::fs::read_to_string(path(&sites.files, name)).expect("written");
    let body =
        |name: &str| -> String { text(name).lines().filter(|line| !line.starts_with("-----")).collect() };
    let node = "set interfaces openvpn vtun0";
    let configuration = format!(
        "set pki ca ca certificate {}\nset pki certificate it certificate {}\nset pki certificate it private key {}\n\
         set pki openvpn shared-secret tc key {}\n{node} mode site-to-site\n{node} local-address {}\n{node} remote-address {}\n\
         {node} local-address {}\n{node} remote-address {}\n{node} tls role passive\n{node} tls ca-certificate ca\n\
         {node} tls certificate it\n{node} tls crypt-key tc\n{node} keep-alive interval 1\n{node} keep-alive failure-count 4\n\
         {node} openvpn-option 'route {} 255.255.0.0'\n\
         set service path-monitor target other address {}\nset service path-monitor target other interface vtun0\n",
        body("ca.pem"),
        body("server.pem"),
        body("server.key"),
        body("static.key"),
        INSIDE[1],
        INSIDE[0],
        INSIDE_V6[1],
        INSIDE_V6[0],
        NETWORKS[0],
        INSIDE[0],
    );
    let mut daemon = Postern::new(&sites.lab, "b", postern()).expect("a folder");
    daemon.write(&configuration);
    let process = daemon.start(&mut sites.lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    // Before the peer is there, packets for its networks go into the tunnel.
    let route = |sites: &Sites| sites.lab.ip("b", &format!("route get {}", BEHIND[0])).unwrap_or_default();
    assert!(wait_until(PATIENCE, || route(&sites).contains("vtun0")).is_ok(), "{}", daemon.logged());
    let crypt = path(&sites.files, "static.key").to_string_lossy().into_owned();
    let lines = format!("remote {}\ntls-crypt {crypt}\nkeepalive 1 4\n", OUTSIDE[1]);
    sites.start(Program::Ours, CLIENT_END, &lines);
    let connected = wait_until(PATIENCE, || sites.reach_each_other());
    assert!(connected.is_ok(), "{}\n{}", sites.logs(), daemon.logged());
    sites.carry_everything();
    let socket = daemon.socket.to_string_lossy().into_owned();
    let shown = ask(&["show", "openvpn", "site-to-site", "--api", &socket]);
    let session = &shown["interfaces"][0]["sessions"][0];
    assert_eq!(
        (&shown["interfaces"][0]["mode"], &session["common_name"]),
        (&"site-to-site".into(), &"client".into())
    );
    // Probes go through the tunnel, too.
    let is_measured = || {
        let mut command = std::process::Command::new(postern());
        let shown = command.args(["show", "path", "--json", "--api", &socket]).output().expect("it runs");
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        let path = &shown[0]["targets"][0];
        path["state"] == "answers" && path["peer"] == "site" && path["mtu"] == "fits"
    };
    wait_until(2 * PATIENCE, is_measured).expect("it is measured");
    // Without the process, nothing that is for the peer leaves.
    sites.lab.kill(process, Signal::KILL);
    let told = sites.lab.ip("b", &format!("route get {}", BEHIND[0]));
    assert!(told.is_err(), "{told:?}");
}
