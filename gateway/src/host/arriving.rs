//! Drops unprotected inbound packets from networks behind peers (RFC 4301 section 5.2). The kernel forwards and delivers
//! packets, so that nf_tables rules do it.
//!
//! A packet is from behind a peer if the route to its source leads to the tunnel interface. The rules therefore need no
//! list of peers. The kernel removes their table when the socket that made it is closed, however the daemon ends.

use super::matching::{bytes, of_family};
use super::netlink::NetlinkError;
use super::networks::MARK;
use super::nft;
use super::nft::{
    APPEND, AT_LEAST, AT_MOST, Batch, CREATE, DELETE_TABLE, EQUAL, ICMP_V6, IIFNAME, NETWORK_HEADER,
    NEW_CHAIN, NEW_RULE, NEW_TABLE, NOT_EQUAL, TRANSPORT_HEADER, accept, compare, fib, interface, meta,
    number, protocol, refuse, socket_mark, text,
};
use super::sharing::Sharing;
use ipnet::IpNet;
use netlink_sys::Socket;
use std::io;

/// The name of table and chain, as `nft list ruleset` shows it.
const TABLE: &str = "postern";
/// Before connection tracking: a dropped packet creates no state.
const PRIORITY: i32 = -300;
const PREROUTING: u32 = 0;
const OWNED: u32 = 2;

/// The tunnels that packets must have come through.
#[derive(Clone, Copy)]
pub(super) struct Tunnels<'a> {
    /// Their place in the configuration.
    pub(super) place: &'a str,
    /// Their interface.
    pub(super) interface: &'a str,
    /// The UDP ports of their outer packets.
    pub(super) ports: &'a [u16],
    /// Networks that other tunnels lead to as well.
    pub(super) sharing: &'a Sharing,
}

/// The rules, as long as it lives.
pub(super) struct Arriving(Socket);

impl Arriving {
    /// Has the kernel drop unprotected packets. The error is the reason why this kernel cannot.
    pub(super) fn refuse_or_say(tunnels: Tunnels<'_>) -> Option<Self> {
        let refused = Self::install(tunnels).map_err(|error| NetlinkError::new("rules of nf_tables", &error));
        if let Err(error) = &refused {
            tracing::warn!(
                "{}: packets that arrive in clear from networks behind peers are not refused: {error}\n  \
                 fix: modprobe nft_fib_inet, with Linux 5.12 or later, and restart; or, if no tunnel has 0.0.0.0/0 or no prefix, sysctl -w net.ipv4.conf.all.rp_filter=1",
                tunnels.place
            );
        }
        refused.ok()
    }

    /// How many were dropped.
    pub(super) fn refused(&self) -> Option<u64> {
        nft::counted(&self.0, TABLE).ok()
    }

    fn install(tunnels: Tunnels<'_>) -> io::Result<Self> {
        Self::install_with(tunnels, true).or_else(|error| {
            let installed = Self::install_with(tunnels, false)?;
            tracing::warn!(
                "{}: beside a tunnel for everything no answers of servers of revocation lists are let in: nft_socket: \
                 {error}\n  fix: modprobe nft_socket and restart, or set pki ca NAME crl-file PATH",
                tunnels.place
            );
            Ok(installed)
        })
    }

    fn install_with(tunnels: Tunnels<'_>, knows_sockets: bool) -> io::Result<Self> {
        let (socket, _) = nft::open()?;
        let arriving = Self(socket);
        arriving.send(tunnels, knows_sockets, false)?;
        Ok(arriving)
    }

    /// Has the kernel look at other tunnels from now on, in one step. If it refuses, all stays as it was.
    pub(super) fn replace(&self, tunnels: Tunnels<'_>) -> io::Result<()> {
        self.send(tunnels, true, true).or_else(|_| self.send(tunnels, false, true))
    }

    fn send(&self, tunnels: Tunnels<'_>, knows_sockets: bool, is_there: bool) -> io::Result<()> {
        let mut batch = Batch::new();
        if is_there {
            batch.add(DELETE_TABLE, 0, &text(1, TABLE));
        }
        batch.add(NEW_TABLE, CREATE, &[text(1, TABLE), number(2, OWNED)].concat());
        batch.add(NEW_CHAIN, CREATE, &nft::base_chain(TABLE, TABLE, PREROUTING, PRIORITY));
        for rule in rules(tunnels, knows_sockets) {
            batch.add(NEW_RULE, CREATE | APPEND, &rule);
        }
        Ok(batch.send(&self.0)?)
    }
}

/// The first rule that matches decides.
fn rules(
    Tunnels { interface: inside, ports, sharing, .. }: Tunnels<'_>,
    knows_sockets: bool,
) -> Vec<Vec<u8>> {
    let of_ours = [protocol(TCP), socket_mark(), compare(EQUAL, &MARK.to_ne_bytes()), accept()];
    let other_ports = ports.iter().map(|port| compare(NOT_EQUAL, &port.to_be_bytes()));
    let mut other_udp = vec![protocol(UDP), payload(2, 2)];
    other_udp.extend(other_ports.chain([refuse()]));
    let answers = if knows_sockets { of_ours.to_vec() } else { Vec::new() };
    let shared = sharing.iter().filter(|(_, shared)| shared.members.contains(inside));
    // By which tunnel of a group they come is left to the other side; by a link they do not come.
    let of_groups = shared.flat_map(|(prefix, shared)| {
        let from = from(*prefix);
        let by = shared
            .members
            .iter()
            .map(|name| [&[meta(IIFNAME), interface(EQUAL, name)], &from[..], &[accept()]].concat());
        by.chain([[&from[..], &[refuse()]].concat()]).collect::<Vec<_>>()
    });
    [
        // Packets of the inside interface were protected.
        vec![meta(IIFNAME), interface(EQUAL, inside), accept()],
    ]
    .into_iter()
    .chain(of_groups)
    .chain([
        // Packets that are not from behind a peer.
        vec![fib(SOURCE, OUTPUT_NAME), interface(NOT_EQUAL, inside), accept()],
        // Neighbours on a link (RFC 2710, RFC 4861): the peer may be one.
        vec![protocol(ICMP_V6), payload(0, 1), compare(AT_LEAST, &[130]), compare(AT_MOST, &[143]), accept()],
        // Packets that are not for this machine itself.
        vec![fib(DESTINATION, KIND), compare(NOT_EQUAL, &LOCAL.to_ne_bytes()), refuse()],
        // Outer packets, of a peer to which the tunnel leads. Later fragments have no ports, and are useless without the
        // first: the rule that looks for ports does not match them.
        vec![protocol(ESP), accept()],
        other_udp,
        vec![protocol(UDP), accept()],
        // Answers to connections of ours that go around the tunnels.
        answers,
        // ICMP errors about them, from any router on the path.
        vec![protocol(ICMP), payload(0, 1), compare(EQUAL, &[3]), accept()],
        vec![protocol(ICMP), payload(0, 1), compare(AT_LEAST, &[11]), compare(AT_MOST, &[12]), accept()],
        vec![protocol(ICMP_V6), payload(0, 1), compare(AT_MOST, &[4]), accept()],
        vec![refuse()],
    ])
    .filter(|expressions| !expressions.is_empty())
    .map(|expressions| nft::rule(TABLE, TABLE, &expressions))
    .collect()
}

/// Packets whose source is in a network.
fn from(prefix: IpNet) -> Vec<Vec<u8>> {
    let v6 = matches!(prefix, IpNet::V6(_));
    let (offset, length) = if v6 { (8, 16) } else { (12, 4) };
    let [first, last] = [prefix.network(), prefix.broadcast()].map(bytes);
    let source = nft::payload(NETWORK_HEADER, offset, length);
    vec![of_family(v6), source, compare(AT_LEAST, &first), compare(AT_MOST, &last)]
}

/// Protocols, as an IP header has them.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;

/// What `fib` looks up, and its results.
const SOURCE: u32 = 1;
const DESTINATION: u32 = 2;
const OUTPUT_NAME: u32 = 2;
const KIND: u32 = 3;
/// linux/rtnetlink.h: addresses of this machine.
const LOCAL: u32 = 2;

fn payload(offset: u32, length: u32) -> Vec<u8> {
    nft::payload(TRANSPORT_HEADER, offset, length)
}
