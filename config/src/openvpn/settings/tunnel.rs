//! The tunnel interface, its addresses, routes and name servers, and the timers of a session.

use ipnet::{IpNet, Ipv6Net};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the second address of `ifconfig` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// A network: the second address is a netmask.
    Subnet,
    /// A network of four addresses for each client: the second address is the other end.
    #[default]
    Net30,
    /// Two ends: the second address is the other end.
    PointToPoint,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Subnet => "subnet",
            Self::Net30 => "net30",
            Self::PointToPoint => "p2p",
        })
    }
}

/// The addresses of `ifconfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// An address in a network.
    Subnet(ipnet::Ipv4Net),
    /// An address and that of the other end.
    Peer(Ipv4Addr, Ipv4Addr),
}

/// The addresses of `ifconfig-ipv6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Addresses {
    /// The address in its network.
    pub local: Ipv6Net,
    /// The other end.
    pub remote: Ipv6Addr,
}

/// The name of an interface that is not there: packets of peers vanish.
pub const NULL: &str = "null";

/// The tunnel interface.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Device {
    /// Its name; the first free `tunN` if it is `tun`, none if it is [`NULL`].
    pub name: String,
    /// What the second address means.
    pub topology: Topology,
    /// IPv4 addresses.
    pub addresses: Option<Addresses>,
    /// IPv6 addresses.
    pub ipv6: Option<Ipv6Addresses>,
    /// Whether addresses are only handed to scripts: `ifconfig-noexec`.
    pub is_by_script: bool,
    /// The length of the transmit queue; 0 for that of the kernel.
    pub queue: u32,
    /// Whether the interface is kept while the process restarts: `persist-tun`.
    pub persist: bool,
    /// ICMPv6 errors in place of IPv6 through the tunnel: `block-ipv6`.
    pub block_ipv6: bool,
    /// Whether the DS field of inner packets is copied outside: `passtos`.
    pub copy_ds_field: bool,
}

/// The limit of TCP segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MssFix {
    /// So that packets outside have 1492 bytes with all headers.
    #[default]
    Standard,
    /// No limit.
    Off,
    /// So that packets outside have so many bytes with IP and UDP headers: `mssfix N mtu`.
    Mtu(u16),
    /// So that the payload of UDP or TCP outside has so many bytes: `mssfix N`.
    Payload(u16),
    /// So that packets inside have so many bytes: `mssfix N fixed`.
    Fixed(u16),
}

/// What a route leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A network.
    Network(IpNet),
    /// A host name, with one address.
    Host(String),
    /// The outer address of the peer: `remote_host`.
    Remote,
}

/// The gateway of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// The other end of the tunnel: `vpn_gateway`.
    Tunnel,
    /// The default gateway without the tunnel: `net_gateway`.
    Network,
    /// The outer address of the peer: `remote_host`.
    Remote,
    /// An address.
    Address(IpAddr),
    /// A host name.
    Host(String),
}

/// A route of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What it leads to.
    pub destination: Destination,
    /// Its gateway; the one of `route-gateway` if none.
    pub gateway: Option<Gateway>,
    /// Its metric; the one of `route-metric` if none.
    pub metric: Option<u32>,
    /// Its routing table; main if none.
    pub table: Option<u32>,
}

/// The default gateway through the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "flags of the directive, each of its own")]
pub struct Redirect {
    /// Only the routes around the default gateway: `redirect-private`.
    pub is_private: bool,
    /// Two routes of half of the addresses in place of the default route.
    pub def1: bool,
    /// The peer is in a network of this machine.
    pub local: bool,
    /// Found out whether the peer is in a network of this machine.
    pub autolocal: bool,
    /// The DHCP server is reached without the tunnel.
    pub bypass_dhcp: bool,
    /// Name servers are reached without the tunnel.
    pub bypass_dns: bool,
    /// Local networks are not reached while the tunnel is up.
    pub block_local: bool,
    /// IPv6 too.
    pub ipv6: bool,
    /// Not IPv4.
    pub not_ipv4: bool,
}

/// Routes and the default gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// Routes.
    pub routes: Vec<Route>,
    /// The gateway of IPv4 routes without one.
    pub gateway: Option<Gateway>,
    /// The gateway of IPv6 routes without one.
    pub gateway_ipv6: Option<Ipv6Addr>,
    /// The metric of routes without one.
    pub metric: Option<u32>,
    /// The routing table of routes.
    pub table: Option<u32>,
    /// Seconds until routes are added.
    pub delay_seconds: Option<u32>,
    /// Whether routes are only handed to scripts: `route-noexec`.
    pub is_by_script: bool,
    /// The default gateway.
    pub redirect: Option<Redirect>,
}

/// A name server of `dns server`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsServer {
    /// Its number: the lowest comes first.
    pub priority: i8,
    /// Its addresses, each with a port if one is set.
    pub addresses: Vec<(IpAddr, Option<u16>)>,
    /// Domains that it alone resolves.
    pub domains: Vec<Domain>,
    /// `dnssec`: `yes`, `no` or `optional`.
    pub dnssec: Option<String>,
    /// `transport`: `DoH`, `DoT` or `plain`.
    pub transport: Option<String>,
    /// The name of the server in TLS.
    pub server_name: Option<String>,
}

/// A domain name.
pub type Domain = String;

/// Name servers and search domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// Servers of `dns server`, by priority. With one of these, those of `dhcp-option` are ignored.
    pub servers: Vec<DnsServer>,
    /// Servers of `dhcp-option`.
    pub dhcp: Vec<IpAddr>,
    /// Search domains.
    pub search: Vec<Domain>,
    /// The search domains of `dns search-domains` alone.
    pub search_of_dns: Vec<Domain>,
    /// `dhcp-option` as it is written, for scripts.
    pub options: Vec<String>,
    /// Whether the settings are applied; not after `dns-updown disable`.
    pub is_off: bool,
    /// Whether `dhcp-option` is applied beside a script of `up` too: `dns-updown force`.
    pub is_forced: bool,
    /// Whether `dhcp-option` is left to a script of `up`.
    pub is_left: bool,
}

/// Timers and limits of a session; 0 is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Seconds between pings; 0 for none.
    pub ping_seconds: u32,
    /// Seconds without a packet until a restart.
    pub restart_seconds: u32,
    /// Seconds without a packet until the end.
    pub exit_seconds: u32,
    /// Only with a remote address: `ping-timer-rem`.
    pub only_with_remote: bool,
    /// Seconds without traffic until the end, and the bytes that count as traffic.
    pub inactive: Option<(u32, u64)>,
    /// Seconds until the end of a session.
    pub session_seconds: u32,
    /// Seconds until new keys, at most.
    pub renegotiate_seconds: u32,
    /// Seconds until new keys, at least; 90% of the above on a server if none.
    pub renegotiate_least_seconds: Option<u32>,
    /// Bytes until new keys; by the cipher if none.
    pub renegotiate_bytes: Option<u64>,
    /// Packets until new keys.
    pub renegotiate_packets: u64,
    /// Seconds that a key exchange may take.
    pub hand_window_seconds: u32,
    /// Seconds that an old key is accepted.
    pub transition_seconds: u32,
    /// Seconds until a control packet is sent again.
    pub retransmit_seconds: u32,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            ping_seconds: 0,
            restart_seconds: 0,
            exit_seconds: 0,
            only_with_remote: false,
            inactive: None,
            session_seconds: 0,
            renegotiate_seconds: 3600,
            renegotiate_least_seconds: None,
            renegotiate_bytes: None,
            renegotiate_packets: 0,
            hand_window_seconds: 60,
            transition_seconds: 3600,
            retransmit_seconds: 2,
        }
    }
}
