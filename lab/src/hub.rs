//! A hub with two WireGuard peers, each on a link of its own, one of which can be made slow.

use crate::wireguard::{Daemon, Gateway, private_key};
use crate::{Lab, Outcome, wait_until};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// The hub's outer addresses towards the slow and the fast peer, and theirs.
pub const OUTSIDE: [[&str; 4]; 2] = [
    ["192.168.77.1", "192.168.78.1", "192.168.77.2", "192.168.78.2"],
    ["fd77::1", "fd78::1", "fd77::2", "fd78::2"],
];
/// The inner address of the slow peer, in namespace `b`.
pub const SLOW: &str = "10.77.0.2";
/// The inner address of the fast peer, in namespace `c`.
pub const FAST: &str = "10.77.0.3";
const PATIENCE: Duration = Duration::from_secs(20);

/// A running hub.
pub struct Hub {
    /// The hub, in namespace `a`.
    pub gateway: Gateway,
    /// The slow and the fast peer.
    pub peers: [Gateway; 2],
}

/// Makes the namespaces and the links: the hub `a`, with the device `slow` to `b` and the device `fast` to `c`.
pub fn connect(lab: &Lab) -> Outcome<()> {
    for (near, far, net) in [("slow", "b", 77), ("fast", "c", 78)] {
        let [ours, theirs] = [1, 2].map(|host| format!("192.168.{net}.{host}/24"));
        lab.connect(("a", near, &ours), (far, "outside", &theirs))?;
        lab.ip("a", &format!("address add fd{net}::1/64 dev {near} nodad"))?;
        lab.ip(far, &format!("address add fd{net}::2/64 dev outside nodad"))?;
    }
    Ok(())
}

impl Hub {
    /// Starts a hub with tunnels to both peers, over the outer addresses of `outside`, such as one of [`OUTSIDE`].
    pub fn start(lab: &mut Lab, daemon: &Daemon, outside: [&str; 4]) -> Outcome<Self> {
        let [to_slow, to_fast, slow, fast] = outside;
        let peers = [("b", slow, to_slow, SLOW), ("c", fast, to_fast, FAST)];
        let interface = lab.interface("h");
        let gateway = Gateway::start(lab, daemon, "a", &interface)?;
        let mut request = format!("private_key={}\nlisten_port=51820\n", secret(0));
        for (end, (_, remote, _, inside)) in (1..).zip(peers) {
            let endpoint = SocketAddr::new(remote.parse()?, 51_820);
            writeln!(request, "public_key={}\nendpoint={endpoint}\nallowed_ip={inside}/32", public(end))?;
        }
        gateway.set(&request)?;
        raise(lab, "a", &interface, "10.77.0.1")?;
        let mut started = Vec::new();
        for (end, (namespace, _, hub, inside)) in (1..).zip(peers) {
            let interface = lab.interface(namespace);
            let peer = Gateway::start(lab, daemon, namespace, &interface)?;
            peer.set(&format!(
                "private_key={}\nlisten_port=51820\npublic_key={}\nendpoint={}\nallowed_ip=10.77.0.1/32\n",
                secret(end),
                public(0),
                SocketAddr::new(hub.parse()?, 51_820)
            ))?;
            raise(lab, namespace, &interface, inside)?;
            wait_until(PATIENCE, || lab.run("a", "ping", &["-c", "1", "-W", "1", inside]).is_ok())
                .map_err(|error| format!("{} makes no tunnel to {namespace}: {error}", daemon.name()))?;
            started.push(peer);
        }
        let peers = started.try_into().unwrap_or_else(|_| unreachable!("two were pushed"));
        Ok(Self { gateway, peers })
    }
}

/// Makes the link to the slow peer as slow as this, with a queue of 32 MB before it.
pub fn slow_down(lab: &Lab, megabits: u32) -> Outcome<()> {
    let shaper = format!("qdisc replace dev slow root tbf rate {megabits}mbit burst 64k limit 32m");
    lab.run("a", "tc", &shaper.split(' ').collect::<Vec<_>>()).map(drop)
}

fn secret(end: u8) -> String {
    base16ct::lower::encode_string(private_key(51_820, end).secret().expose())
}

fn public(end: u8) -> String {
    base16ct::lower::encode_string(&private_key(51_820, end).public().0)
}

fn raise(lab: &Lab, namespace: &str, interface: &str, address: &str) -> Outcome<()> {
    lab.ip(namespace, &format!("address add {address}/24 dev {interface}"))?;
    lab.ip(namespace, &format!("link set {interface} mtu 1420 up")).map(drop)
}
