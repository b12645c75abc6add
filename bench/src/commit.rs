//! `postern bench commit`: commits of one changed peer to a gateway with a thousand IPsec tunnels and a thousand WireGuard peers,
//! while packets pass through a tunnel of either protocol; and how long it takes to load the tunnels.

mod client;

use crate::report::{Machine, median, short, table};
use crate::sites::{self, End, GATEWAY_NETWORK, Peer, Suite};
use crate::tunnel::progress_bar;
use crate::{Outcome, crowd};
use crypto::PublicKey;
use lab::postern::Postern;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What to measure.
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// Peers of each protocol.
    pub peers: usize,
    /// Commits of each protocol.
    pub rounds: u32,
    /// Whether to show progress.
    pub progress: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Peers of each protocol.
    pub peers: usize,
    /// Seconds from the start of `postern run` with a file of all IPsec tunnels until its API answers.
    pub start_seconds: Vec<f64>,
    /// Seconds of a commit that adds all IPsec tunnels.
    pub load_seconds: f64,
    /// Seconds of each commit of a changed IPsec peer.
    pub ipsec_seconds: Vec<f64>,
    /// Seconds of each commit of a changed WireGuard peer.
    pub wireguard_seconds: Vec<f64>,
    /// Packets that were sent during the commits, and those that arrived.
    pub traffic: Vec<Traffic>,
}

/// Packets through a tunnel that no commit changes.
#[derive(Debug, Serialize)]
pub struct Traffic {
    /// Through what.
    pub protocol: &'static str,
    /// How many were sent.
    pub sent: u64,
    /// How many of them arrived.
    pub received: u64,
}

const SUITE: Suite = Suite::CbcX25519;
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two packets of a flow.
const GAP: Duration = Duration::from_millis(1);
/// A start is measured so often.
const STARTS: usize = 3;
/// The addresses inside of the other gateway, by protocol.
const INSIDE: [(&str, Ipv4Addr); 2] =
    [("IPsec", Ipv4Addr::new(10, 20, 0, 1)), ("WireGuard", Ipv4Addr::new(10, 66, 0, 2))];
/// The keys of both gateways for WireGuard.
const KEYS: [usize; 2] = [1_000_001, 1_000_002];

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let progress = progress_bar(options.progress, 3);
    let mut lab = sites::lab()?;
    lab.ip("b", "address add 10.20.0.1/32 dev lo")?;
    progress.set_message("a start with all tunnels");
    let start_seconds = starts(&mut lab, options)?;
    progress.inc(1);
    progress.set_message("a commit of all tunnels");
    let mut gateway = Postern::new(&lab, "a", &options.program)?;
    gateway.write(&(wireguard(options.peers, 0) + &SUITE.groups() + &ends(0).lines("b", "none")));
    gateway.start(&mut lab, "error", PATIENCE)?;
    let mut other = Postern::new(&lab, "b", &options.program)?;
    other.write(&(wireguard(0, 1) + &SUITE.groups() + &ends(1).lines("a", "initiate")));
    other.start(&mut lab, "error", PATIENCE)?;
    for (_, inside) in INSIDE {
        let inside = inside.to_string();
        wait_until(PATIENCE, || lab.run("a", "ping", &["-c", "1", "-W", "1", &inside]).is_ok())?;
    }
    let added = sites::configuration(SUITE, options.peers);
    let load_seconds = client::commit(&gateway.socket, added.lines())?;
    progress.inc(1);
    progress.set_message("commits of one peer");
    let (ipsec_seconds, wireguard_seconds, traffic) = commits(&lab, &gateway, options)?;
    progress.finish_and_clear();
    let machine = Machine::here();
    let peers = options.peers;
    Ok(Report { machine, peers, start_seconds, load_seconds, ipsec_seconds, wireguard_seconds, traffic })
}

/// Starts a gateway with a file of all tunnels, and stops it, several times.
fn starts(lab: &mut Lab, options: &Options) -> Outcome<Vec<f64>> {
    let mut gateway = Postern::new(lab, "a", &options.program)?;
    gateway.write(&sites::configuration(SUITE, options.peers));
    let mut taken = Vec::new();
    // The first start measures the ciphers.
    for round in 0..=STARTS {
        let started = Instant::now();
        let process = gateway.start(lab, "error", PATIENCE)?;
        if round > 0 {
            taken.push(started.elapsed().as_secs_f64());
        }
        process.signal(Signal::TERM);
        wait_until(PATIENCE, || lab.ended(process).is_some())?;
    }
    Ok(taken)
}

fn public(number: usize) -> PublicKey {
    crowd::key(number).public()
}

/// The WireGuard interface of a gateway: the other one is its peer, and so many others.
fn wireguard(peers: usize, end: usize) -> String {
    let interface = "set interfaces wireguard wg0";
    let private = base64(KEYS[end]);
    let mut text = format!(
        "{interface} private-key {private}\n{interface} port 51820\n{interface} address 10.66.0.{}/24\n\
         {interface} peer other public-key {}\n{interface} peer other allowed-ips 10.66.0.0/24\n\
         {interface} peer other address 192.168.77.{}\n{interface} peer other port 51820\n",
        end + 1,
        public(KEYS[1 - end]),
        2 - end
    );
    text.extend((0..peers).map(|number| {
        let peer = format!("{interface} peer site{number}");
        format!("{peer} public-key {}\n{peer} allowed-ips {}/32\n", public(number), network(number))
    }));
    text
}

/// A private key as configurations have it.
fn base64(number: usize) -> String {
    // The same alphabet and padding as a public key, of which the bytes are the text.
    PublicKey(*crowd::key(number).secret().expose()).to_string()
}

/// What is behind a WireGuard peer.
fn network(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(0xac10_0000 + number as u32)
}

/// The IPsec peer of a gateway.
fn ends(end: usize) -> Peer {
    let of = |identity: &str, address: &str, network: &str| End {
        identity: identity.to_owned(),
        address: address.to_owned(),
        network: network.to_owned(),
    };
    let a = of("a.example", "192.168.77.1", GATEWAY_NETWORK);
    let b = of("b.example", "192.168.77.2", "10.20.0.0/16");
    if end == 0 { Peer { local: a, remote: b } } else { Peer { local: b, remote: a } }
}

/// Changes a peer of either protocol in turn, while packets pass through others.
fn commits(lab: &Lab, gateway: &Postern, options: &Options) -> Outcome<(Vec<f64>, Vec<f64>, Vec<Traffic>)> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flows = INSIDE.map(|(protocol, inside)| {
            let ended = &ended;
            scope.spawn(move || flow(lab, protocol, inside, ended))
        });
        let committed = change(gateway, options);
        ended.store(true, Ordering::Relaxed);
        let mut traffic = Vec::new();
        for flow in flows {
            traffic.push(flow.join().map_err(|_| "a flow failed")??);
        }
        let (ipsec, wireguard) = committed?;
        Ok((ipsec, wireguard, traffic))
    })
}

fn change(gateway: &Postern, options: &Options) -> Outcome<(Vec<f64>, Vec<f64>)> {
    let (mut ipsec, mut wireguard) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let number = round as usize % options.peers;
        let peer = format!("vpn ipsec site-to-site peer site{number} tunnel 1 remote prefix");
        let edits = [format!("delete {peer}"), format!("set {peer} 10.21.{}.0/24", round % 256)];
        ipsec.push(client::commit(&gateway.socket, edits.iter().map(String::as_str))?);
        let peer = format!("interfaces wireguard wg0 peer site{number} allowed-ips");
        let edits = [format!("delete {peer}"), format!("set {peer} 10.22.{}.0/24", round % 256)];
        wireguard.push(client::commit(&gateway.socket, edits.iter().map(String::as_str))?);
    }
    Ok((ipsec, wireguard))
}

/// Sends packets through a tunnel until `ended`.
fn flow(lab: &Lab, protocol: &'static str, inside: Ipv4Addr, ended: &AtomicBool) -> Outcome<Traffic> {
    let receiver = lab.enter("b", || UdpSocket::bind(SocketAddr::from((inside, 0))))??;
    receiver.set_read_timeout(Some(Duration::from_secs(2)))?;
    let target = receiver.local_addr()?;
    let sender = lab.enter("a", || UdpSocket::bind("0.0.0.0:0"))??;
    sender.connect(target)?;
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut count = 0;
            while receiver.recv(&mut [0; 64]).is_ok() {
                count += 1;
            }
            count
        });
        let mut sent = 0;
        while !ended.load(Ordering::Relaxed) {
            sender.send(&[0; 64])?;
            sent += 1;
            std::thread::sleep(GAP);
        }
        let received = counting.join().map_err(|_| "the receiver failed")?;
        Ok(Traffic { protocol, sent, received })
    })
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let milliseconds = |seconds: f64| short(seconds * 1000.0);
        let row = |name: &str, seconds: &[f64]| {
            let worst = seconds.iter().copied().fold(0.0, f64::max);
            vec![name.to_owned(), milliseconds(median(seconds)), milliseconds(worst)]
        };
        let rows = [
            row("postern run with a file of all IPsec tunnels", &self.start_seconds),
            row("a commit that adds all IPsec tunnels", &[self.load_seconds]),
            row("a commit of one changed IPsec peer", &self.ipsec_seconds),
            row("a commit of one changed WireGuard peer", &self.wireguard_seconds),
        ];
        let lost: String = self
            .traffic
            .iter()
            .map(|Traffic { protocol, sent, received }| {
                format!(
                    "{protocol}: {} of {sent} packets of another peer lost\n",
                    sent.saturating_sub(*received)
                )
            })
            .collect();
        format!(
            "{}{} IPsec tunnels and {} WireGuard peers, {} commits of each\n\n{}\n{lost}",
            self.machine.head(),
            self.peers,
            self.peers,
            self.ipsec_seconds.len(),
            table(&["", "median ms", "worst ms"], &rows)
        )
    }
}
