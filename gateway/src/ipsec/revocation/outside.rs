//! Connects to servers outside of tunnels for all addresses, as IKE does: these tunnels may depend on the response.
//!
//! A server behind a tunnel for fewer addresses is reached through that tunnel only.

use crate::host::networks::MARK;
use crate::ipsec::network::behind;
use arc_swap::ArcSwap;
use config::settings::IpSec;
use config::settings::ipsec::Peer;
use ipnet::IpNet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// The number of queued requests for sockets.
const MOST: usize = 16;

/// A request for a marked socket, of IPv6 or of IPv4, with the channel for the reply.
struct SocketRequest {
    v6: bool,
    reply: oneshot::Sender<io::Result<OwnedFd>>,
}

/// Connects to servers of revocation status.
#[derive(Clone)]
pub(super) struct OutsideConnector {
    tunnels: Arc<ArcSwap<Tunnels>>,
    requests: mpsc::Sender<SocketRequest>,
}

/// The networks behind tunnels, and the exceptions.
#[derive(Default)]
struct Tunnels {
    behind: Vec<IpNet>,
    excepted: Vec<IpNet>,
}

impl Tunnels {
    fn of(settings: &IpSec) -> Self {
        let of_peer = |peer: &Peer| -> Vec<IpNet> {
            peer.tunnels.values().flat_map(|tunnel| behind(peer, tunnel)).collect()
        };
        let behind = settings.peers.values().flat_map(|peer| of_peer(peer)).collect();
        Self { behind, excepted: settings.passthrough.iter().copied().collect() }
    }

    /// Whether a tunnel leads to an address, other than one for everything. The longest prefix decides.
    fn lead_to(&self, address: IpAddr) -> bool {
        let closest = |networks: &[IpNet]| {
            networks.iter().filter(|it| it.contains(&address)).map(IpNet::prefix_len).max().unwrap_or(0)
        };
        let behind = closest(&self.behind);
        behind > 0 && behind > closest(&self.excepted)
    }
}

impl OutsideConnector {
    /// Starts the task that makes marked sockets, in the calling runtime: the thread that reads responses lacks the
    /// capability for it.
    pub(super) fn start() -> Self {
        let (requests, mut requested) = mpsc::channel::<SocketRequest>(MOST);
        tokio::spawn(async move {
            while let Some(SocketRequest { v6, reply }) = requested.recv().await {
                // The requester may have timed out.
                let _ = reply.send(port::tcp::marked(v6, MARK));
            }
        });
        Self { tunnels: Arc::default(), requests }
    }

    /// For tests without marks: all addresses are reached as through a tunnel.
    #[cfg(test)]
    pub(super) fn unmarked() -> Self {
        let all = ["0.0.0.0/1", "128.0.0.0/1"].map(|it| it.parse().expect("literal"));
        let tunnels = Tunnels { behind: all.to_vec(), excepted: Vec::new() };
        Self { tunnels: Arc::new(ArcSwap::from_pointee(tunnels)), requests: mpsc::channel(1).0 }
    }

    /// Replaces the networks behind tunnels.
    pub(super) fn set_tunnels(&self, settings: &IpSec) {
        self.tunnels.store(Arc::new(Tunnels::of(settings)));
    }

    /// Connects to an address.
    pub(super) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        if self.tunnels.load().lead_to(address.ip()) {
            return TcpStream::connect(address).await;
        }
        let (reply, socket) = oneshot::channel();
        let ended = || io::Error::other("the daemon ends");
        self.requests.send(SocketRequest { v6: address.is_ipv6(), reply }).await.map_err(|_| ended())?;
        let socket = socket.await.map_err(|_| ended())??;
        TcpSocket::from_std_stream(socket.into()).connect(address).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_network_decides() {
        let nets = |texts: &[&str]| texts.iter().map(|it| it.parse().expect("literal")).collect();
        let tunnels = Tunnels {
            behind: nets(&["0.0.0.0/0", "10.0.0.0/8", "10.1.2.0/24", "fd00::/8"]),
            excepted: nets(&["10.1.0.0/16", "192.0.2.0/24"]),
        };
        for (address, through) in [
            ("10.2.0.1", true),
            ("10.1.0.1", false),
            ("10.1.2.1", true),
            ("192.0.2.1", false),
            ("198.51.100.1", false),
            ("fd00::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(tunnels.lead_to(address.parse().expect("literal")), through, "{address}");
        }
    }
    /// The peer itself may run the server, and be reachable through the tunnel only.
    #[test]
    fn a_server_on_a_peer_is_reached_through_the_tunnel_between_the_hosts() {
        let settings = crate::ipsec::network::tests::settings(
            "PEER tunnel 1 protocol gre\nPEER tunnel 2 remote prefix 0.0.0.0/0\nPEER tunnel 2 local prefix 10.1.0.0/24",
        );
        let tunnels = Tunnels::of(&settings);
        let leads_to = |address: &str| tunnels.lead_to(address.parse().expect("literal"));
        assert!(leads_to("192.0.2.2"), "the address of the peer");
        assert!(!leads_to("192.0.2.3"), "only behind the tunnel for everything");
    }
}
