//! A new configuration that is applied whole or not at all, in a daemon that this process is.

mod steps;

use crate::daemon::{key_pair, lines};
use crate::ipsec::{Gateway, configuration, peer};
use crate::support::{PATIENCE, answers, ask, sites, without};
use config::Settings;
use crypto::choice::Choice;
use crypto::engine::aws_lc::AwsLc;
use gateway::api;
use gateway::daemon::{self, Daemon};
use gateway::host::Host;
use gateway::https::Process;
use gateway::machine::{Client, Connection};
use gateway::service::Policy;
use lab::taken::release;
use lab::{Lab, wait_until};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};

fn wireguard(name: &str, private: &str, lines: &[String]) -> String {
    let lines = lines.iter().map(|line| format!("set interfaces wireguard {name} {line}\n"));
    format!("set interfaces wireguard {name} private-key {private}\n") + &lines.collect::<String>()
}

/// The same, with another port for `wg0`; its peer keeps its own.
fn on_another_port(text: &str) -> String {
    text.replace("port 51820\n", "port 51821\n").replace("other port 51821", "other port 51820")
}

/// A further peer of IPsec, which is nowhere.
fn third() -> String {
    let psk = "set vpn ipsec authentication psk sites id 192.168.77.9\n";
    let outside = ["192.168.77.1", "192.168.77.9"];
    psk.to_owned() + &peer(0, "third", outside, ["10.10.0.0/16", "10.30.0.0/16"], "none")
}

fn settings(text: &str) -> Settings {
    Settings::new(&config::parse(text).expect("the grammar knows it")).expect("it is right").0
}

/// None of the settings of a machine can be changed.
fn machine() -> Client {
    Client::new(Connection::Off, "/etc/postern/postern.conf".as_ref())
}

fn engines() -> Arc<Choice> {
    Arc::new(Choice::among(vec![Arc::new(AwsLc)]))
}

/// Two sites with a tunnel of either protocol between them; the second is a daemon of its own.
struct Sites {
    lab: Lab,
    /// The keys of both for WireGuard.
    keys: [(String, String); 2],
    /// The first, once its API is served.
    a: Gateway,
    b: Gateway,
}

impl Sites {
    fn new() -> Option<Self> {
        let mut lab = sites()?;
        let keys = [key_pair(), key_pair()];
        for (site, end) in [("a", 1), ("b", 2)] {
            lab.ip(site, &format!("address add 10.{end}0.0.1/32 dev lo")).expect("an address");
        }
        let (a, mut b) = (Gateway::new(&lab, "a"), Gateway::new(&lab, "b"));
        b.write(&(wireguard("wg0", &keys[1].0, &lines(1, &keys[0].1, &[])) + &configuration(1)));
        b.0.start(&mut lab);
        Some(Self { lab, keys, a, b })
    }

    /// What the first site is configured with, but for other interfaces.
    fn common(&self, more: &[&str]) -> String {
        wireguard("wg0", &self.keys[0].0, &lines(0, &self.keys[1].1, more)) + &configuration(0)
    }

    /// An interface for another peer, which is nowhere.
    fn extra(&self, name: &str, number: u32) -> String {
        let lines = [
            format!("address 10.{number}.0.1/24"),
            format!("port {}", 51900 + number),
            format!("peer b public-key {}", self.keys[1].1),
            format!("peer b allowed-ips 10.{}.0.0/16", number + 100),
        ];
        wireguard(name, &self.keys[0].0, &lines)
    }

    fn before(&self) -> String {
        self.common(&[]) + &self.extra("wg2", 72)
    }

    /// Changes, additions and removals of both protocols.
    fn after(&self) -> String {
        let more = ["mtu 1300", "address 10.67.0.1/24", "peer other allowed-ips 0.0.0.0/0"];
        let kept = on_another_port(&self.common(&more));
        let kept = without(&kept, "peer second");
        kept + &third() + &self.extra("wg1", 71)
    }

    /// What the kernel has. An interface that was removed and came back has another number. Link-local addresses come when the
    /// kernel has found out that they are unique.
    fn kernel(&self) -> Vec<String> {
        let commands =
            ["-o link", "-o address", "rule", "-6 rule", "route show table all", "-6 route show table all"];
        let mut all = Vec::new();
        for command in commands {
            let text = self.lab.ip("a", command).expect("ip shows it");
            let numbered = command.starts_with("-o");
            let line = |line: &str| match line.split_once(": ") {
                Some((_, rest)) if numbered => rest.to_owned(),
                _ => line.to_owned(),
            };
            all.extend(text.lines().map(line).filter(|line| !line.contains("fe80::")));
        }
        all.sort();
        all
    }

    /// The sessions of both protocols.
    fn sessions(&self) -> (Vec<u64>, serde_json::Value) {
        (self.a.spis("other"), self.a.0.peer("other")["latest_handshake"].clone())
    }

    fn carry(&self) -> bool {
        answers(&self.lab, "a", "10.66.0.2") && answers(&self.lab, "a", "10.20.0.1")
    }

    fn come_up(&self) {
        wait_until(PATIENCE, || self.a.0.socket.exists()).expect("its API is served");
        let up = || self.a.spis("other").len() == 1 && self.carry();
        if let Err(error) = wait_until(PATIENCE, up) {
            panic!(
                "{error}\n{:#?}\n{}",
                self.kernel(),
                std::fs::read_to_string(&self.b.0.log).unwrap_or_default()
            );
        }
    }

    /// Runs a test in the namespace of the first site.
    fn inside(&self, test: impl FnOnce(&Runtime) + Send) {
        let inside = || {
            let runtime = Builder::new_current_thread().enable_all().build();
            test(&runtime.expect("a runtime"));
        };
        self.lab.enter("a", inside).expect("the test passes");
    }

    /// Serves the API of the first site beside the test, which waits for its answers.
    fn serve_api(&self, shown: api::Shown) -> Served {
        let (socket, ended) = (self.a.0.socket.clone(), Arc::new(Notify::new()));
        let end = Arc::clone(&ended);
        let serve = async move {
            let listener = api::bind(&socket).await.expect("a socket");
            tokio::select! {
                () = api::serve(listener, shown) => {}
                () = ended.notified() => {}
            }
        };
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Served { end, thread: Some(std::thread::spawn(move || runtime.block_on(serve))) }
    }

    /// The same, with a daemon that serves what is configured before.
    fn with_daemon(&self, test: impl FnOnce(&Runtime, &mut Daemon) + Send) {
        self.inside(|runtime| {
            let before = settings(&self.before());
            let host = Host::start(daemon::wanted(&before)).expect("root may");
            let mut daemon = Daemon::new(
                engines(),
                mpsc::unbounded_channel().0,
                host,
                machine(),
                Process::default(),
                gateway::health::Connection::Off,
                gateway::helper::Connection::Off,
                gateway::helper::Connection::Off,
                None,
                None,
            );
            let refused = runtime.block_on(daemon.apply(before, Policy::AllOrNothing));
            assert!(refused.is_empty(), "{refused:?}");
            let _served = self.serve_api(daemon.shown());
            self.come_up();
            test(runtime, &mut daemon);
        });
    }
}

/// The API is served as long as this lives.
struct Served {
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so already.
            let _ = thread.join();
        }
    }
}

/// A commit of `text` is refused for this reason, and changes nothing. Returns the whole output.
fn refused(
    sites: &Sites,
    runtime: &Runtime,
    daemon: &mut Daemon,
    text: &str,
    path: &str,
    why: &str,
) -> Vec<String> {
    let before = (sites.kernel(), sites.sessions());
    let refused = runtime.block_on(daemon.apply(settings(text), Policy::AllOrNothing));
    let said: Vec<String> = refused.iter().map(|(path, refusal)| format!("{path}: {refusal}")).collect();
    assert!(said.iter().any(|said| said.starts_with(path) && said.contains(why)), "{said:?}");
    assert_eq!((sites.kernel(), sites.sessions()), before, "after {said:?}");
    assert!(sites.carry(), "after {said:?}");
    said
}

#[test]
fn a_commit_of_which_a_step_is_refused_leaves_everything_as_it_was() {
    let Some(sites) = Sites::new() else { return };
    sites.with_daemon(|runtime, daemon| {
        let after = sites.after();
        let taken = sites.lab.take("a", "0.0.0.0:51971").expect("free");
        refused(&sites, runtime, daemon, &after, "interfaces wireguard wg1", "UDP port 51971 is in use");
        drop(taken);
        // The last thing that is prepared: all else was already. The new interface has the port of one that goes for it.
        let moved = after.replace("port 51971", "port 51972");
        sites.lab.ip("a", "route add 10.30.0.0/16 dev outside table 220").expect("a route");
        refused(&sites, runtime, daemon, &moved, "vpn ipsec", "of another program");
        sites.lab.ip("a", "route delete 10.30.0.0/16 dev outside table 220").expect("it is there");
        // The whole of IPsec is to go, and WireGuard is refused.
        let taken = sites.lab.take("a", "0.0.0.0:51971").expect("free");
        let no_ipsec = without(&after, "vpn ipsec");
        refused(&sites, runtime, daemon, &no_ipsec, "interfaces wireguard wg1", "UDP port 51971 is in use");
        drop(taken);
        let committed = runtime.block_on(daemon.apply(settings(&moved), Policy::AllOrNothing));
        assert!(committed.is_empty(), "{committed:?}");
        let kernel = sites.kernel().join("\n");
        assert!(
            kernel.contains("10.67.0.1") && kernel.contains("wg1") && !kernel.contains("wg2"),
            "{kernel}"
        );
        assert!(!sites.a.peer("third").is_null() && sites.a.peer("second").is_null());
        wait_until(PATIENCE, || sites.carry()).expect("what was changed carries packets");
    });
}

#[test]
fn all_that_is_wrong_with_peers_is_told_before_anything_is_done() {
    let Some(sites) = Sites::new() else { return };
    sites.with_daemon(|runtime, daemon| {
        let wrong = |name: &str, number: u32| {
            let remote = format!("192.168.77.{number}");
            let networks = ["10.10.0.0/16", &format!("10.{number}.0.0/16")];
            let peer = peer(0, name, ["192.168.77.1", &remote], networks, "none");
            let set = format!("set vpn ipsec site-to-site peer {name} authentication x509");
            peer.replace("pre-shared-secret", "x509")
                + &format!("{set} certificate none\n{set} ca-certificate none\n")
        };
        let pki = "set pki ca none certificate AAAA\nset pki certificate none certificate AAAA\n\
                   set pki certificate none private key AAAA\n";
        let text = sites.after() + pki + &wrong("one", 41) + &wrong("two", 42);
        let said = refused(&sites, runtime, daemon, &text, "vpn ipsec site-to-site peer one", "certificate");
        assert!(said.len() == 2 && said[1].starts_with("vpn ipsec site-to-site peer two"), "{said:?}");
    });
}

#[test]
fn a_commit_costs_what_it_does_not_change_no_packet() {
    let Some(sites) = Sites::new() else { return };
    sites.with_daemon(|runtime, daemon| {
        let before = sites.sessions();
        let text = without(&(sites.common(&[]) + &sites.extra("wg1", 71)), "peer second");
        let pings = ["10.66.0.2", "10.20.0.1"].map(|address| {
            let ping = ["-q", "-c", "150", "-i", "0.02", "-W", "10", address];
            sites
                .lab
                .command("a", "ping")
                .args(ping)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("ping")
        });
        let committed = runtime.block_on(daemon.apply(settings(&text), Policy::AllOrNothing));
        assert!(committed.is_empty(), "{committed:?}");
        for ping in pings {
            let said = String::from_utf8(ping.wait_with_output().expect("it ends").stdout).expect("text");
            assert!(said.contains("150 received, 0% packet loss"), "{said}");
        }
        assert_eq!(sites.sessions(), before);
    });
}

/// A ping that goes on all the while loses nothing.
fn loses_no_packet(sites: &Sites, from: &str, to: &str, during: impl FnOnce()) {
    let mut ping = sites.lab.command(from, "stdbuf");
    let ping = ping.args(["-oL", "ping", "-c", "200", "-i", "0.02", "-W", "10", to]);
    let mut ping = ping.stdout(std::process::Stdio::piped()).spawn().expect("ping");
    let mut lines = BufReader::new(ping.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.expect("text").contains("icmp_seq=")), "it has begun");
    during();
    let said: Vec<String> = lines.map(|line| line.expect("text")).collect();
    ping.wait().expect("it ends");
    assert!(said.iter().any(|line| line.contains("200 received, 0% packet loss")), "{said:#?}");
}

#[test]
fn a_port_of_another_program_is_found_before_a_packet_is_lost() {
    let Some(sites) = Sites::new() else { return };
    sites.lab.ip("b", "address add 10.50.0.1/32 dev lo").expect("an address");
    sites.with_daemon(|runtime, daemon| {
        wait_until(PATIENCE, || answers(&sites.lab, "a", "10.50.0.1")).expect("it carries");
        let _taken = sites.lab.take("a", "0.0.0.0:51999").expect("free");
        let refused_port = sites.extra("wg2", 72).replace("port 51972", "port 51999");
        // A prefix is to go to another interface, and this one to another port.
        let prefix = "set interfaces wireguard wg0 peer other allowed-ips 10.50.0.0/16\n";
        let moved = sites.common(&[]).replace(prefix, "");
        assert_ne!(moved, sites.common(&[]));
        let text = on_another_port(&moved)
            + &sites.extra("wg1", 71).replace("10.171.0.0/16", "10.50.0.0/16")
            + &refused_port;
        for (from, to) in [("a", "10.50.0.1"), ("b", "10.66.0.1")] {
            loses_no_packet(&sites, from, to, || {
                let refused = runtime.block_on(daemon.apply(settings(&text), Policy::AllOrNothing));
                let said: Vec<String> = refused.values().map(ToString::to_string).collect();
                assert!(said.len() == 1 && said[0].contains("wg2: UDP port 51999 is in use"), "{said:?}");
            });
        }
    });
}

#[test]
fn what_cannot_go_back_keeps_nothing_else_back_and_is_tried_again() {
    let Some(sites) = Sites::new() else { return };
    sites.with_daemon(|runtime, daemon| {
        let before = sites.kernel();
        let text = sites.common(&["mtu 1300", "peer other allowed-ips 10.69.0.0/16"]);
        let text = on_another_port(&text) + &sites.extra("wg2", 72).replace("port 51972", "port 51999");
        // The port of `wg2`, only for IPv6: it is noticed late.
        let taken = sites.lab.take("a", "[::]:51999").expect("free");
        // As soon as `wg0` has left its port, another program takes it.
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let other = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if let Ok(socket) = UdpSocket::bind("0.0.0.0:51820") {
                    return Some(socket);
                }
            }
            None
        });
        let refused = runtime.block_on(daemon.apply(settings(&text), Policy::AllOrNothing));
        is_over.store(true, Ordering::Relaxed);
        let other = other.join().expect("it ends").expect("wg0 had left its port");
        let place = |name: &str| format!("interfaces wireguard {name}");
        let places: Vec<(String, bool)> =
            refused.iter().map(|(path, refusal)| (path.to_string(), refusal.is_temporary())).collect();
        assert_eq!(places, [(place("wg0"), true), (place("wg2"), false)], "{refused:?}");
        assert_eq!(sites.kernel(), before, "only the port is another");
        runtime.block_on(daemon.maintain());
        release(other);
        drop(taken);
        runtime.block_on(daemon.maintain());
        assert!(UdpSocket::bind("0.0.0.0:51820").is_err(), "it has its port again");
        wait_until(PATIENCE, || sites.carry()).expect("it carries");
        assert_eq!(sites.kernel(), before);
    });
}

#[test]
fn two_interfaces_swap_their_ports_and_get_them_back_if_the_commit_is_refused() {
    let Some(sites) = Sites::new() else { return };
    sites.with_daemon(|runtime, daemon| {
        let socket = sites.a.0.socket.to_str().expect("UTF-8").to_owned();
        let ports = || {
            ["wg0", "wg2"].map(|name| {
                let shown = ask(&["show", "interfaces", "wireguard", name, "--api", &socket]);
                shown["interfaces"][0]["listen_port"].as_u64().expect("a port")
            })
        };
        assert_eq!(ports(), [51_820, 51_972]);
        let swapped = sites.before().replace("wg0 port 51820\n", "wg0 port 51972\n");
        let swapped = swapped.replace("wg2 port 51972\n", "wg2 port 51820\n");
        sites.lab.ip("a", "route add 10.30.0.0/16 dev outside table 220").expect("a route");
        let text = swapped.clone() + &third();
        refused(&sites, runtime, daemon, &text, "vpn ipsec", "of another program");
        assert_eq!(ports(), [51_820, 51_972]);
        sites.lab.ip("a", "route delete 10.30.0.0/16 dev outside table 220").expect("it is there");
        let committed = runtime.block_on(daemon.apply(settings(&swapped), Policy::AllOrNothing));
        assert!(committed.is_empty(), "{committed:?}");
        assert_eq!(ports(), [51_972, 51_820]);
        wait_until(PATIENCE, || sites.carry()).expect("the peer follows");
    });
}
