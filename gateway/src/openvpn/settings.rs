//! What an OpenVPN interface is to do.

use super::certificates::Tracked;
use super::lifecycle::InterfacePrograms;
use super::limits::Limits;
use super::login::LoginSettings;
use super::names::Name;
use super::options::Own;
use super::passwords::HashFile;
use super::scripts::{Environment, Scripts};
use super::tokens::Tokens;
use crate::dns::NameServers;
use crypto::pki::Certificate;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use port::SocketOptions;
use port::udp::UdpBinding;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::name_fields::NameFields;
use tunnel::openvpn::verify::{ClientTls, PeerCheck, ServerTls};
use tunnel::openvpn::{ClientConfiguration, ServerConfiguration};

/// The MTU of the tunnel interface that OpenVPN has by default (`tun-mtu`).
pub const DEFAULT_MTU: u32 = 1500;
/// OpenVPN's default of `mssfix`: the outer packets that TCP segments fit in, with their IP header.
pub const DEFAULT_MSSFIX: u16 = 1492;

/// An interface.
pub struct Settings {
    /// Server or client.
    pub role: Role,
    /// The UDP port that is bound (`port`, `lport`); 0 for any.
    pub port: u16,
    /// Where it is bound, and how (`local`, `proto`, `mark`, `bind-dev`, `mtu-disc`, `sndbuf`, `rcvbuf`).
    pub udp: UdpBinding,
    /// `tun-mtu`.
    pub mtu: u32,
    /// `mssfix`; `None` leaves segments as they are.
    pub mssfix: Option<u16>,
    /// `dev null`: there is no interface, and packets of peers vanish.
    pub is_null: bool,
    /// `txqueuelen`: the queue of the interface; `None` leaves the usual one.
    pub queue: Option<u32>,
    /// Programs that are run at events.
    pub scripts: Scripts,
    /// Those about the interface.
    pub programs: InterfacePrograms,
    /// How long sessions last.
    pub limits: Limits,
    /// `passtos`.
    pub copies_dscp: bool,
    /// The most bytes that are sent outside in a second (`shaper`).
    pub shaper: Option<NonZeroU32>,
    /// TCP, if it is used.
    pub tcp: Option<TcpSettings>,
}

/// TCP connections.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    /// Where a server listens (`port`, `proto`, `local`).
    pub listen: Vec<SocketAddr>,
    /// The addresses and ports that a client connects from, if it binds any (`local`, `bind`, `lport`).
    pub local: Vec<SocketAddr>,
    /// Whether UDP is used beside it.
    pub has_udp: bool,
    /// Packets that wait for a slow peer (`tcp-queue-limit`).
    pub queue_limit: usize,
    /// How long a connection may take to authenticate (`hand-window`).
    pub hand_window: Duration,
    /// The settings of sockets.
    pub options: SocketOptions,
    /// The server that gets connections which are not OpenVPN (`port-share`).
    pub share: Option<PortShare>,
}

/// A server that shares the TCP ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortShare {
    /// Its address.
    pub server: SocketAddr,
    /// Where each of its connections has a file with the address of the client.
    pub folder: Option<PathBuf>,
}

/// Server or client.
pub enum Role {
    /// A server.
    Server(Box<ServerSettings>),
    /// A client.
    Client(Box<ClientSettings>),
}

/// A server.
pub struct ServerSettings {
    /// What the protocol needs.
    pub core: ServerConfiguration,
    /// What clients are given.
    pub network: ServerNetwork,
    /// What is asked about clients, beside their certificates.
    pub access: Access,
    /// The network with the only peer, site to site; there are no clients then.
    pub site: Option<Site>,
}

/// One of two sites.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its addresses and routes.
    pub own: Own,
    /// Whether the peer may be at another address than before (`float`, or no `remote`).
    pub follows: bool,
    /// The names of the peer (`remote`), without `float`.
    pub names: Vec<Name>,
}

/// How `auth-user-pass-verify` gets the password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PasswordWay {
    /// In a file (`via-file`).
    #[default]
    File,
    /// In its environment (`via-env`).
    Environment,
}

/// What is asked about clients, beside their certificates.
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Access {
    /// A verdict must be complete after this time (`hand-window`).
    pub longest: Duration,
    /// The same, if a program has asked for more time for the user.
    pub longest_pending: Duration,
    /// How `auth-user-pass-verify` gets the password.
    pub password_way: PasswordWay,
    /// The hashes that passwords are compared with (`auth-user-pass-hashes`).
    pub hashes: Option<HashFile>,
    /// Whether clients without a password are asked about too (`auth-user-pass-optional`).
    pub is_password_optional: bool,
    /// Whether the user name stands for the common name (`username-as-common-name`).
    pub uses_user_name: bool,
    /// Whether the management interface is asked (`management-client-auth`).
    pub asks_management: bool,
    /// The networks behind a client that are used (`max-routes-per-client`).
    pub max_routes: usize,
    /// Clients have addresses in this network only (`ifconfig-push-constraint`).
    pub constraint: Option<Ipv4Net>,
    /// The authorities, whose certificates programs are told about.
    pub authorities: Vec<Certificate>,
    /// The fields that make the name of a peer (`x509-username-field`).
    pub name_fields: NameFields,
    /// The fields of certificates that programs are told about (`x509-track`).
    pub tracked: Tracked,
    /// Tokens in place of passwords (`auth-gen-token`).
    pub tokens: Option<Tokens>,
    /// Makes the verifier of certificates again, from another revocation list (`crl-verify`).
    pub renew: Option<Renew>,
    /// Whether `tls-verify` gets certificates in files (`tls-export-cert`).
    pub exports_certificates: bool,
    /// Whether clients that cannot export keys of TLS are refused (`force-tls-key-material-export`).
    pub requires_exporter: bool,
    /// Variables of all programs.
    pub environment: Environment,
}

/// The configuration of TLS with a revocation list, and the check of certificates that are in use.
pub type Renewed = (ServerTls, Arc<PeerCheck>);

/// Takes a file with revocation lists. An error is for the log.
pub type Renew = Box<dyn Fn(&[u8]) -> Result<Renewed, String> + Send>;

impl Default for Access {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(60),
            longest_pending: Duration::from_secs(1800),
            password_way: PasswordWay::default(),
            hashes: None,
            is_password_optional: false,
            uses_user_name: false,
            asks_management: false,
            max_routes: 256,
            constraint: None,
            authorities: Vec::new(),
            name_fields: NameFields::default(),
            tracked: Tracked::default(),
            tokens: None,
            renew: None,
            exports_certificates: false,
            requires_exporter: false,
            environment: Environment::default(),
        }
    }
}

/// What a server can take over without an end of sessions.
#[derive(Clone, Debug, Default)]
pub struct ForClients {
    /// See [`ServerNetwork::push`].
    pub push: Vec<String>,
    /// See [`ServerNetwork::clients`].
    pub clients: BTreeMap<String, ClientOverride>,
}

/// The addresses of a client that sees a line to one other end, and not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointToPoint {
    /// Four addresses for each: the second is the other end, the third is the client's (`topology net30`).
    Net30,
    /// One address for each; the other end is the server (`topology p2p`).
    Single,
}

/// What clients are given.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct ServerNetwork {
    /// The network of clients (`server`).
    pub v4: Option<Ipv4Net>,
    /// The address of the server, if it is not the first of that network (`ifconfig`).
    pub local: Option<Ipv4Addr>,
    /// How clients see that network; as one with the netmask, if none (`topology`).
    pub line: Option<PointToPoint>,
    /// The same for IPv6 (`server-ipv6`).
    pub v6: Option<Ipv6Net>,
    /// Networks behind clients, which the kernel routes here (`route`).
    pub routes: Vec<IpNet>,
    /// What all clients are told beside their addresses (`push`, and `ping` and `ping-restart` of `keepalive`).
    pub push: Vec<String>,
    /// Settings by common name (`client-config-dir`).
    pub clients: BTreeMap<String, ClientOverride>,
    /// The addresses that clients without settings get (`ifconfig-pool`); all of `v4`, if none.
    pub pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Addresses that clients had, by name (`ifconfig-pool-persist`).
    pub leases: Vec<(String, Option<Ipv4Addr>, Option<Ipv6Addr>)>,
    /// Whether clients without settings are refused (`ccd-exclusive`).
    pub requires_override: bool,
    /// Whether several clients may have one common name (`duplicate-cn`).
    pub duplicate_names: bool,
    /// Whether packets between clients stay in the data path (`client-to-client`).
    pub relays: bool,
    /// Whether clients go on to their next server when this one ends (`explicit-exit-notify 2`).
    pub sends_away: bool,
}

/// The settings of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOverride {
    /// Its address (`ifconfig-push`).
    pub v4: Option<Ipv4Addr>,
    /// What it is told beside its address: the netmask, or the other end. That of the server's network, if none.
    pub second: Option<Ipv4Addr>,
    /// Its address (`ifconfig-ipv6-push`).
    pub v6: Option<Ipv6Addr>,
    /// Networks behind it (`iroute`, `iroute-ipv6`).
    pub behind: Vec<IpNet>,
    /// What it is told beside what all are told.
    pub push: Vec<String>,
    /// Whether it is told nothing of what all are told (`push-reset`).
    pub reset: bool,
    /// What all are told and it is not, by how the options begin (`push-remove`).
    pub remove: Vec<String>,
    /// Whether it is refused.
    pub is_disabled: bool,
    /// Its session ends after this time (`session-timeout`).
    pub session_seconds: Option<u32>,
}

/// A client.
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct ClientSettings {
    /// What the protocol needs.
    pub core: ClientConfiguration,
    /// Servers, which are tried in turn (`remote`).
    pub remotes: Vec<Remote>,
    /// Their names.
    pub names: Vec<Name>,
    /// What differs between the connections of the file (`<connection>`).
    pub links: Vec<ClientLink>,
    /// What the file says about addresses, routes and name servers.
    pub own: Own,
    /// Sets name servers.
    pub name_servers: Option<NameServers>,
    /// Whether the servers are tried in random order (`remote-random`).
    pub is_random: bool,
    /// The time to the next attempt, and how long it may grow (`connect-retry`).
    pub retry: (Duration, Duration),
    /// How often each server is tried (`connect-retry-max`).
    pub max_rounds: Option<u32>,
    /// Whether the program ends when a handshake fails (`tls-exit`).
    pub ends_on_failure: bool,
    /// User name and password.
    pub login: LoginSettings,
    /// Makes the verifier of the server again, from another revocation list (`crl-verify`).
    pub renew: Option<RenewClient>,
    /// The authorities, whose certificates programs are told about.
    pub authorities: Vec<Certificate>,
    /// The fields that make the name of a peer (`x509-username-field`).
    pub name_fields: NameFields,
    /// The fields of certificates that programs are told about (`x509-track`).
    pub tracked: Tracked,
    /// Whether there is a management interface.
    pub is_managed: bool,
    /// Whether it is asked where to connect to (`management-query-remote`).
    pub asks_remote: bool,
}

/// What a connection of a client has of its own.
#[derive(Clone)]
pub struct ClientLink {
    /// The wrap of control packets.
    pub wrap: ClientWrap,
    /// Whether the server may answer from another address (`float`).
    pub float: bool,
}

impl Settings {
    /// Marks the packets that carry the tunnel.
    pub fn set_mark(&mut self, mark: u32) {
        self.udp.options.fwmark = mark;
        if let Some(tcp) = &mut self.tcp {
            tcp.options.fwmark = mark;
        }
    }

    /// The addresses of a server whose clients reach each other in the data path.
    pub fn relayed_beside(&self) -> Option<Vec<IpAddr>> {
        match &self.role {
            Role::Server(server) if server.network.relays => {
                Some(server.network.own().map(|own| own.addr()).collect())
            }
            Role::Server(_) | Role::Client(_) => None,
        }
    }

    /// The network of one of two sites, which no server gives.
    pub fn site(&self) -> Option<&Own> {
        match &self.role {
            Role::Server(server) => server.site.as_ref().map(|site| &site.own),
            Role::Client(client) => Some(&client.own).filter(|_| !client.core.pulls),
        }
    }
}

/// Takes a file with revocation lists. An error is for the log.
pub type RenewClient = Box<dyn Fn(&[u8]) -> Result<(ClientTls, PeerCheck), String> + Send>;

/// Where to connect to, in the order of the names.
pub fn remotes(names: &[Name]) -> Vec<Remote> {
    let of = |name: &Name| {
        let Name { is_tcp, timeout, connection, .. } = *name;
        name.addresses()
            .map(move |address| Remote { address, is_tcp, timeout, connection })
            .collect::<Vec<_>>()
    };
    names.iter().flat_map(of).collect()
}

/// Where a peer may be that connects with us: over TCP it connects from any port.
pub fn sources(remotes: &[Remote]) -> Vec<SocketAddr> {
    let of = |remote: &Remote| {
        let Remote { address, is_tcp, .. } = *remote;
        if is_tcp { SocketAddr::new(address.ip(), 0) } else { address }
    };
    remotes.iter().map(of).collect()
}

/// A server, as a client connects to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its address and port.
    pub address: SocketAddr,
    /// Whether over TCP.
    pub is_tcp: bool,
    /// How long it may take to answer (`connect-timeout`, `server-poll-timeout`).
    pub timeout: Duration,
    /// The number of its connection in the file.
    pub connection: usize,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.address, if self.is_tcp { " over TCP" } else { "" })
    }
}

impl ServerNetwork {
    /// What a client is told beside its address: the netmask, or the other end. `own`: as its settings say.
    pub fn second(&self, address: Ipv4Addr, own: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let network = self.v4?;
        let is_mask = |second: &Ipv4Addr| Ipv4Net::with_netmask(address, *second).is_ok();
        let own = own.filter(|second| is_mask(second) == self.line.is_none());
        own.or_else(|| match self.line {
            None => Some(network.netmask()),
            Some(PointToPoint::Net30) => Some(Ipv4Addr::from_bits(address.to_bits() & !3 | 1)),
            Some(PointToPoint::Single) => self.local.or_else(|| network.hosts().next()),
        })
    }

    /// The addresses of the server, with the networks of clients.
    pub fn own(&self) -> impl Iterator<Item = IpNet> {
        let v4 = self.v4.and_then(|network| {
            let local = self.local.or_else(|| network.hosts().next())?;
            Ipv4Net::new(local, network.prefix_len()).ok().map(IpNet::V4)
        });
        let v6 = self.v6.and_then(|network| {
            let first = Ipv6Addr::from_bits(network.network().to_bits() | 1);
            Ipv6Net::new(first, network.prefix_len()).ok().map(IpNet::V6)
        });
        v4.into_iter().chain(v6)
    }
}
