//! Sockets and peers.

use super::material::Material;
use super::tunnel::MssFix;

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    #[default]
    Udp,
    /// TCP, connecting.
    TcpClient,
    /// TCP, listening.
    TcpServer,
}

/// The version of IP outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// As the name of the peer resolves; a server listens on both.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// A protocol outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// UDP or TCP.
    pub transport: Transport,
    /// The version of IP.
    pub family: Family,
}

/// A socket of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Its address or host name; any address if none.
    pub host: Option<String>,
    /// Its port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

/// Wrapping of control packets with a shared key.
#[derive(Clone, Debug)]
pub enum Wrapping {
    /// `tls-auth`: authenticated. The direction of the key, 0 or 1; both halves for both directions if none.
    Auth(Material, Option<u8>),
    /// `tls-crypt`: encrypted.
    Crypt(Material),
    /// `tls-crypt-v2`: encrypted with a key of each client.
    CryptV2 {
        /// The key of the server, or of this client.
        key: Material,
        /// Whether clients must do the cookie handshake.
        force_cookie: bool,
        /// What a server accepts of clients without such a key.
        others: Option<Box<Wrapping>>,
    },
}

/// A peer, and how it is reached.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its address or host name.
    pub remote: Option<String>,
    /// Its port.
    pub remote_port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// The local address or host name.
    pub local: Option<String>,
    /// The local port; any if none.
    pub local_port: Option<u16>,
    /// Whether a local address or port is bound: not with `nobind`.
    pub bind: bool,
    /// Whether an IPv6 socket takes no IPv4: `bind ipv6only`.
    pub ipv6_only: bool,
    /// Whether the peer may change its address.
    pub float: bool,
    /// The MTU inside.
    pub tun_mtu: u16,
    /// The largest MTU that a server may push.
    pub tun_mtu_max: u16,
    /// The limit of TCP segments.
    pub mssfix: MssFix,
    /// Seconds between attempts: the first, and the limit to which they grow.
    pub retry_seconds: (u32, u32),
    /// Seconds that an attempt may take.
    pub timeout_seconds: u32,
    /// How often the exit is announced; not if 0. Of a server: 1 to reconnect, 2 to try the next server.
    pub exit_notify: u8,
    /// Wrapping of control packets.
    pub wrapping: Option<Wrapping>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            remote: None,
            remote_port: PORT,
            protocol: Protocol::default(),
            local: None,
            local_port: Some(PORT),
            bind: true,
            ipv6_only: false,
            float: false,
            tun_mtu: 1500,
            tun_mtu_max: 1600,
            mssfix: MssFix::default(),
            retry_seconds: (1, 300),
            timeout_seconds: 120,
            exit_notify: 0,
            wrapping: None,
        }
    }
}

/// The port of OpenVPN (IANA).
pub(crate) const PORT: u16 = 1194;

/// How often something is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Without end.
    Infinite,
    /// For so many seconds, or so many times.
    Limited(u32),
}

/// How peers are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connecting {
    /// In random order.
    pub random: bool,
    /// With a random label before host names, past caches of DNS.
    pub random_hostname: bool,
    /// How many seconds a host name is resolved again.
    pub resolve: Retry,
    /// How often all peers are tried.
    pub attempts: Retry,
    /// Host names are resolved before the first attempt.
    pub preresolve: bool,
    /// Only peers of this transport are tried.
    pub only: Option<Transport>,
}

impl Default for Connecting {
    fn default() -> Self {
        Self {
            random: false,
            random_hostname: false,
            resolve: Retry::Infinite,
            attempts: Retry::Infinite,
            preresolve: false,
            only: None,
        }
    }
}
