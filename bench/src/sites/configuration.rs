//! Who the sites are: their addresses, identities and proposals, and the configurations by which a gateway serves them.

use super::LIFETIME;
use crypto::SecretBytes;
use crypto::cipher::{self, Cipher, Integrity};
use crypto::exchange::Group;
use crypto::prf::Prf;
use serde::Serialize;
use std::net::Ipv4Addr;
use tunnel::esp::{Mode, TrafficSelector};
use tunnel::ikev2::proposal::{Encryption, EspOffer, IkeOffer};
use tunnel::ikev2::{Authentication, Child, Connection, Identity, Start, WhenLost};

/// Where the gateway has the crowd's side.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 78, 1);
/// Who the gateway says it is.
pub const GATEWAY_IDENTITY: &str = "gateway.example";
/// The network behind it.
pub const GATEWAY_NETWORK: &str = "10.200.0.0/16";
/// What all sites prove themselves by.
pub const SECRET: &str = "of a benchmark, and of nothing else";
/// What an IKE SA is made of; its Child SA always has AES-128-GCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// AES-128-CBC, HMAC-SHA-256, Curve25519.
    CbcX25519,
    /// AES-128-GCM, HMAC-SHA-256, Curve25519.
    GcmX25519,
    /// AES-128-CBC, HMAC-SHA-256, P-256.
    CbcEcp256,
    /// AES-128-CBC, HMAC-SHA-256, the group of 2048 bits.
    CbcModp2048,
}

impl Suite {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::CbcX25519, Self::GcmX25519, Self::CbcEcp256, Self::CbcModp2048];

    /// As strongSwan writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::CbcX25519 => "aes128-sha256-x25519",
            Self::GcmX25519 => "aes128gcm16-prfsha256-x25519",
            Self::CbcEcp256 => "aes128-sha256-ecp256",
            Self::CbcModp2048 => "aes128-sha256-modp2048",
        }
    }

    fn group(self) -> Group {
        match self {
            Self::CbcX25519 | Self::GcmX25519 => Group::X25519,
            Self::CbcEcp256 => Group::Ecp256,
            Self::CbcModp2048 => Group::Modp2048,
        }
    }

    fn is_gcm(self) -> bool {
        self == Self::GcmX25519
    }

    fn offer(self) -> IkeOffer {
        let encryption = if self.is_gcm() {
            Encryption::Aead(Cipher::Aes128Gcm, 16)
        } else {
            Encryption::Plain(cipher::Encryption::AesCbc(16))
        };
        let integrity = if self.is_gcm() { vec![] } else { vec![Integrity::HmacSha256] };
        IkeOffer {
            encryption: vec![encryption],
            integrity,
            prf: vec![Prf::HmacSha256],
            groups: vec![self.group()],
        }
    }

    /// The groups of a configuration file, named E and I.
    pub fn groups(self) -> String {
        let ike = "set vpn ipsec ike-group I proposal 1";
        let protection = if self.is_gcm() {
            format!("{ike} encryption aes128gcm128\n{ike} prf prfsha256\n")
        } else {
            format!("{ike} encryption aes128\n{ike} hash sha256\n")
        };
        let group = self.group().id();
        let esp = "set vpn ipsec esp-group E";
        format!(
            "{esp} proposal 1 encryption aes128gcm128\n{esp} pfs dh-group{group}\n{protection}{ike} dh-group {group}\n"
        )
    }
}

/// The address of a site outside, in 10.64.0.0/10.
pub(super) fn outside(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a40_0000 + number as u32 + 1)
}

/// The address of a site inside, in 10.128.0.0/9.
fn inside(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a80_0000 + number as u32 + 1)
}

fn identity(number: usize) -> String {
    format!("site{number}.example")
}

/// A configuration file by which our gateway serves the first `count` sites.
pub fn configuration(suite: Suite, count: usize) -> String {
    let mut text = suite.groups();
    text.extend((0..count).map(|number| site(number).lines(&format!("site{number}"), "none")));
    text
}

/// A site, as the gateway knows it.
pub fn site(number: usize) -> Peer {
    Peer {
        local: End::gateway(GATEWAY),
        remote: End {
            identity: identity(number),
            address: outside(number).to_string(),
            network: format!("{}/32", inside(number)),
        },
    }
}

/// One side of a connection.
#[derive(Clone)]
pub struct End {
    /// Who it says it is.
    pub identity: String,
    /// Where it is.
    pub address: String,
    /// What is behind it.
    pub network: String,
}

impl End {
    /// The gateway, at one of its addresses.
    pub fn gateway(address: Ipv4Addr) -> Self {
        let (identity, network) = (GATEWAY_IDENTITY.to_owned(), GATEWAY_NETWORK.to_owned());
        Self { identity, address: address.to_string(), network }
    }
}

/// A peer with a secret of its own, and one tunnel.
pub struct Peer {
    /// Our side.
    pub local: End,
    /// The other side.
    pub remote: End,
}

impl Peer {
    /// Its lines in a configuration file.
    pub fn lines(&self, name: &str, connection_type: &str) -> String {
        let psk = format!("set vpn ipsec authentication psk {name}");
        let set = format!("set vpn ipsec site-to-site peer {name}");
        let Self { local, remote } = self;
        let lines = [
            format!("{psk} id {}", remote.identity),
            format!("{psk} secret '{SECRET}'"),
            format!("{set} authentication mode pre-shared-secret"),
            format!("{set} authentication local-id {}", local.identity),
            format!("{set} authentication remote-id {}", remote.identity),
            format!("{set} connection-type {connection_type}"),
            format!("{set} ike-group I"),
            format!("{set} local-address {}", local.address),
            format!("{set} remote-address {}", remote.address),
            format!("{set} tunnel 1 esp-group E"),
            format!("{set} tunnel 1 local prefix {}", local.network),
            format!("{set} tunnel 1 remote prefix {}", remote.network),
        ];
        lines.map(|line| line + "\n").concat()
    }
}

/// A configuration by which charon serves all sites: one connection for every peer that has the secret, which costs it least.
pub fn swanctl(suite: Suite) -> String {
    let proposal = suite.name().replace("x25519", "curve25519");
    let group = proposal.rsplit('-').next().unwrap_or_default();
    let esp = format!("aes128gcm16-{group}");
    format!(
        "connections {{ sites {{\n version = 2\n local_addrs = {GATEWAY}\n remote_addrs = %any\n encap = yes\n unique = never\n\
         proposals = {proposal}\n local {{ auth = psk\n id = {GATEWAY_IDENTITY}\n }}\n remote {{ auth = psk\n id = %any\n }}\n\
         children {{ net {{ local_ts = {GATEWAY_NETWORK}\n remote_ts = 10.128.0.0/9\n esp_proposals = {esp}\n }} }}\n }} }}\n\
         secrets {{ ike-sites {{ secret = \"{SECRET}\"\n }} }}\n"
    )
}

/// The same connection, as a site knows it.
pub(super) fn connection(number: usize, suite: Suite) -> Connection {
    let all = |first: Ipv4Addr, last: Ipv4Addr| {
        vec![TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses: first.into()..=last.into() }]
    };
    let encryption = vec![Encryption::Aead(Cipher::Aes128Gcm, 16)];
    let esp = EspOffer { encryption, groups: vec![suite.group()], ..EspOffer::default() };
    let child = Child {
        name: "net".to_owned(),
        esp: vec![esp],
        local: all(inside(number), inside(number)),
        remote: all(Ipv4Addr::new(10, 200, 0, 0), Ipv4Addr::new(10, 200, 255, 255)),
        mode: Mode::Tunnel,
        lifetime: LIFETIME,
        rekey: true,
        priority: None,
    };
    Connection {
        name: format!("site{number}"),
        local: Some(outside(number).into()),
        remote: Some(GATEWAY.into()),
        local_identity: Identity::Fqdn(identity(number)),
        remote_identity: Some(Identity::Fqdn(GATEWAY_IDENTITY.to_owned())),
        authentication: Authentication::SharedKey(SecretBytes::new(SECRET.as_bytes().to_vec())),
        further: Vec::new(),
        ike: vec![suite.offer()],
        children: vec![child],
        lifetime: 4 * LIFETIME,
        reauthenticate: false,
        dead_peer_detection: None,
        start: Start::Respond,
        when_lost: WhenLost::Clear,
        force_encapsulation: true,
    }
}
