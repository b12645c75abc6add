//! ESP between two kernels' stacks, with keys set by hand: tunnel and transport mode, with UDP and without.

use crate::manual::{Ipsec, PORT};
use crate::support::{answers, sites, tcp_arrives_whole, udp_echoes};
use crossbeam_channel::Receiver;
use crypto::engine::aws_lc::AwsLc;
use crypto::{Cipher, SecretBytes, random};
use gateway::datapath::DataPathEvent;
use gateway::datapath::protocol::{PeerState, Tunnel};
use gateway::datapath::staging::Budget;
use gateway::datapath::tables::{Peer, Session};
use lab::Lab;
use packet::{DropReason, Endpoint};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tunnel::esp::{
    self, ChildSa, Half, Mode, Policy, Processing, Selectors, TrafficSelector, Transform, Transport,
};
use tunnel::{PeerId, Time};

/// One end of a tunnel.
struct Site {
    ipsec: Ipsec,
    datapath_events: Receiver<DataPathEvent>,
    peer: Arc<Peer>,
}

/// What a test is about.
struct Plan {
    mode: Mode,
    raw: bool,
    /// Outer addresses of both sites.
    outside: [&'static str; 2],
    /// The addresses that the tunnel is for, at both sites.
    inside: [&'static str; 2],
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("literal")
}

fn host(text: &str) -> TrafficSelector {
    TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses: address(text)..=address(text) }
}

/// Both sites make the same keys of nothing: the first sends with the first half.
fn half(direction: usize) -> Half {
    let spi = 0x1000 + direction as u32;
    Half { spi, keys: SecretBytes::new(vec![spi as u8 + 1; 36]) }
}

impl Plan {
    fn child(&self, site: usize) -> ChildSa {
        ChildSa {
            transform: Transform::Aead(Cipher::Aes256Gcm, 16),
            extended_sequence: true,
            mode: self.mode,
            outbound: half(site),
            inbound: half(1 - site),
            local: vec![host(self.inside[site])],
            remote: vec![host(self.inside[1 - site])],
        }
    }

    /// Makes the interface of a site, and leads the packets of the other into it.
    fn start(&self, lab: &Lab, names: [&str; 2], site: usize) -> Site {
        let interface = lab.interface("i");
        let created = lab.enter(names[site], || Ipsec::create(&interface, self.raw, 0));
        let (ipsec, datapath_events) = created.expect("a namespace");
        let tunnel = Tunnel { in_udp: AtomicBool::new(!self.raw), ..Tunnel::default() };
        let peer = Arc::new(Peer::new(PeerId::new(1), PeerState::Ipsec(tunnel), Budget::default()));
        let port = if self.raw { 0 } else { PORT };
        let remote = SocketAddr::new(address(self.outside[1 - site]), port);
        peer.endpoint.store(Some(Endpoint::new(remote)));
        let child = self.child(site);
        let selectors = Selectors::new(&child.local, &child.remote);
        ipsec.set_policies(vec![Policy { selectors, processing: Processing::Protect(Arc::clone(&peer)) }]);
        let ip = |arguments: String| lab.ip(names[site], &arguments).expect("ip works");
        ip(format!("link set {interface} mtu 1400 up"));
        if self.mode == Mode::Tunnel {
            // A tentative address is no source for a route yet.
            let nodad = if self.inside[site].contains(':') { " nodad" } else { "" };
            ip(format!("address add {} dev {interface}{nodad}", self.inside[site]));
        }
        ip(format!("route add {} dev {interface} src {}", self.inside[1 - site], self.inside[site]));
        Site { ipsec, datapath_events, peer }
    }
}

impl Site {
    /// Installs what a key exchange would have agreed on, and sends what waited for it.
    fn install(&self, plan: &Plan, site: usize) {
        let child = plan.child(site);
        let (random, now) = (&mut random::System::default(), Time::from_nanoseconds(1));
        let (outbound, inbound) =
            child.load(&esp::Options::default(), &AwsLc, random, now).expect("keys of the right length");
        let selectors = Some(Selectors::new(&child.local, &child.remote));
        let transport = (plan.mode == Mode::Transport).then(|| Transport {
            local: address(plan.inside[site]),
            remote: address(plan.inside[1 - site]),
            translated: false,
        });
        let (sa, peer) = (Arc::new(inbound), Arc::clone(&self.peer));
        let session = Session { sa, peer, selectors, transport };
        self.ipsec.tables().install(session);
        self.peer.sending.store(Some(Arc::new(outbound)));
        self.ipsec.flush(&self.peer);
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        let counts = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name(), self.ipsec.drops().read(reason).iter().sum()));
        counts.filter(|&(_, count)| count > 0).collect()
    }
}

/// Two sites whose SAs are installed when the first packet has asked for them.
fn joined(plan: &Plan) -> Option<(Lab, [Site; 2])> {
    let lab = sites()?;
    let names = ["a", "b"];
    let sites = [0, 1].map(|site| plan.start(&lab, names, site));
    sites[1].install(plan, 1);
    let first = std::thread::scope(|scope| {
        let first = scope.spawn(|| answers(&lab, "a", plan.inside[1]));
        assert_eq!(sites[0].datapath_events.recv(), Ok(DataPathEvent::NoKey(sites[0].peer.id)));
        sites[0].install(plan, 0);
        first.join().expect("no panic")
    });
    assert!(
        first,
        "the packet that asked for the key was not lost: {:?}",
        sites.each_ref().map(Site::dropped)
    );
    Some((lab, sites))
}

fn carries_everything(plan: &Plan) {
    let Some((lab, sites)) = joined(plan) else { return };
    let drops = || format!("{:?}", sites.each_ref().map(Site::dropped));
    tcp_arrives_whole(&lab, "a", "b", plan.inside[1], 4 << 20)
        .unwrap_or_else(|error| panic!("{error} {}", drops()));
    tcp_arrives_whole(&lab, "b", "a", plan.inside[0], 4 << 20)
        .unwrap_or_else(|error| panic!("{error} {}", drops()));
    let sizes = [1, 2, 100, 1000, 1200];
    assert_eq!(
        udp_echoes(&lab, "a", "b", plan.inside[1], &sizes).expect("sockets"),
        sizes.len(),
        "{}",
        drops()
    );
    for site in &sites {
        assert!(site.peer.sent.packets() > 100 && site.peer.received.packets() > 100);
        let losses = ["bad-tag", "malformed", "bad-padding", "foreign-source", "denied", "send-failed"];
        assert!(site.dropped().iter().all(|(name, _)| !losses.contains(name)), "{}", drops());
    }
}

#[test]
fn esp_in_udp_carries_everything() {
    let (outside, inside) = (["192.168.77.1", "192.168.77.2"], ["10.91.0.1", "10.91.0.2"]);
    carries_everything(&Plan { mode: Mode::Tunnel, raw: false, outside, inside });
}

#[test]
fn esp_without_udp_carries_everything() {
    let (outside, inside) = (["192.168.77.1", "192.168.77.2"], ["10.91.0.1", "10.91.0.2"]);
    carries_everything(&Plan { mode: Mode::Tunnel, raw: true, outside, inside });
}

#[test]
fn ipv6_goes_in_ipv4_and_ipv4_in_ipv6() {
    let (v4, v6) = (["192.168.77.1", "192.168.77.2"], ["fd77::1", "fd77::2"]);
    for raw in [false, true] {
        carries_everything(&Plan { mode: Mode::Tunnel, raw, outside: v4, inside: ["fd91::1", "fd91::2"] });
        carries_everything(&Plan {
            mode: Mode::Tunnel,
            raw,
            outside: v6,
            inside: ["10.91.0.1", "10.91.0.2"],
        });
    }
}
