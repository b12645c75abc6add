//! What a file says, typed, in the order of its lines.

use super::algorithm::Protection;
use crypto::SecretBytes;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// All lines of a file that ipsec-secgw would take.
#[derive(Debug, Default)]
pub struct Settings {
    /// SP: the policies of both families and directions.
    pub policies: Vec<Policy>,
    /// SA: the security associations of both directions.
    pub sas: Vec<Sa>,
    /// RT: the routes of both families.
    pub routes: Vec<Route>,
    /// NEIGH: the Ethernet address behind each port; the last line of a port counts.
    pub neighbours: BTreeMap<u16, Neighbour>,
    /// FLOW: rules for the flow director of a NIC.
    pub flows: Vec<Flow>,
    /// The peers of IKE that policies name, each once.
    pub ike_peers: Vec<String>,
}

impl Settings {
    /// The SAs of a direction with an SPI; more than one is a mistake of the file.
    pub fn sas_with(&self, direction: Direction, spi: u32) -> impl Iterator<Item = &Sa> {
        self.sas.iter().filter(move |sa| sa.direction == direction && sa.spi == spi)
    }

    /// The policies of a family and direction.
    pub fn policies_of(&self, family: Family, direction: Direction) -> impl Iterator<Item = &Policy> {
        self.policies.iter().filter(move |policy| policy.family == family && policy.direction == direction)
    }
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The word of the format.
    pub fn word(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// The name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The bits of an address.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A direction: inbound packets come from an unprotected port, outbound ones from a protected port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From an unprotected port.
    Inbound,
    /// From a protected port.
    Outbound,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Inbound, Self::Outbound];

    /// The word of the format.
    pub fn word(self) -> &'static str {
        match self {
            Self::Inbound => "in",
            Self::Outbound => "out",
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inbound => "Inbound",
            Self::Outbound => "Outbound",
        }
    }
}

/// A policy: the action for packets that match it. The matching policy with the highest priority counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its line.
    pub line: u32,
    /// The version of IP.
    pub family: Family,
    /// The direction.
    pub direction: Direction,
    /// What happens to its packets.
    pub action: Action,
    /// The priority: 1 to 536870911, the larger one wins.
    pub priority: i32,
    /// The source addresses.
    pub source: IpNet,
    /// The destination addresses.
    pub destination: IpNet,
    /// The protocols.
    pub protocol: Protocol,
    /// The source ports; the first 2 bytes behind the IP header, whatever the protocol is.
    pub source_ports: Ports,
    /// The destination ports; the next 2 bytes.
    pub destination_ports: Ports,
}

/// What happens to the packets of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They take the SA with this SPI; inbound, they must have come by it.
    Protect(u32),
    /// They take an SA that IKE has agreed on with this peer, by its place among [`Settings::ike_peers`]; inbound, they must have come
    /// by one. Not of ipsec-secgw.
    Ike(u16),
    /// They pass in clear.
    Bypass,
    /// They are dropped.
    Discard,
}

/// Protocols as value and mask: those whose bits in the mask equal those of the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// The value.
    pub value: u8,
    /// The mask.
    pub mask: u8,
}

impl Protocol {
    /// Whether the number is one of them.
    pub fn contains(self, number: u8) -> bool {
        number & self.mask == self.value & self.mask
    }

    /// Whether each protocol of the other is one of them.
    pub fn covers(self, other: Self) -> bool {
        self.mask & !other.mask == 0 && other.value & self.mask == self.value & self.mask
    }
}

/// A range of ports with both ends. No port is in a range that ends before it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The first.
    pub low: u16,
    /// The last.
    pub high: u16,
}

impl Ports {
    /// All ports.
    pub const ALL: Self = Self { low: 0, high: u16::MAX };

    /// Whether the port is one of them.
    pub fn contains(self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }

    /// Whether each port of the other is one of them.
    pub fn covers(self, other: Self) -> bool {
        other.low > other.high || self.low <= other.low && other.high <= self.high
    }
}

/// After what an SA with a key of the file is used no more; 0 for no such limit. Not of ipsec-secgw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Seconds since the key was used first.
    pub seconds: u64,
    /// Bytes of ESP packets.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

impl Limits {
    /// Whether there is any.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}

/// A security association: ESP under one key in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sa {
    /// Its line.
    pub line: u32,
    /// The direction.
    pub direction: Direction,
    /// The SPI, which is not 0.
    pub spi: u32,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// The algorithms.
    pub protection: Protection,
    /// The key of the cipher and then that of the MAC, each with the salt that belongs to it behind it.
    pub keys: SecretBytes,
    /// The hardware that it is for.
    pub offload: Offload,
    /// The port of `port_id` or `flow-direction`.
    pub port: Option<u16>,
    /// The queue of `flow-direction`.
    pub queue: Option<u8>,
    /// What takes the packets that the hardware left.
    pub fallback: Option<Fallback>,
    /// Whether ESP is carried in UDP.
    pub udp_encapsulation: bool,
    /// The segment size for TCP segmentation; 0 for none.
    pub mss: u16,
    /// The first extended sequence number; 0 leaves it to the command line whether numbers have 64 bits.
    pub extended_sequence: u64,
    /// Whether it has counters of its own.
    pub telemetry: bool,
    /// Whether the NIC reassembles its fragments.
    pub reassembly: bool,
    /// After what it is used no more.
    pub limits: Limits,
}

/// The mode of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whole packets in an outer header with these addresses, both of one family.
    Tunnel {
        /// The outer source.
        source: IpAddr,
        /// The outer destination.
        destination: IpAddr,
    },
    /// The part behind the IP header.
    Transport,
}

/// The hardware that encrypts, with the numbers that ipsec-secgw prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// A cryptodev, which is software here.
    #[default]
    None = 0,
    /// The NIC encrypts.
    InlineCrypto = 1,
    /// The NIC does all of ESP.
    InlineProtocol = 2,
    /// A cryptodev does all of ESP.
    LookasideProtocol = 3,
    /// The worker encrypts.
    CpuCrypto = 4,
}

impl Offload {
    /// All, with their words.
    pub(super) const WORDS: [(&'static str, Self); 5] = [
        ("no-offload", Self::None),
        ("inline-crypto-offload", Self::InlineCrypto),
        ("inline-protocol-offload", Self::InlineProtocol),
        ("lookaside-protocol-offload", Self::LookasideProtocol),
        ("cpu-crypto", Self::CpuCrypto),
    ];

    /// The word of the format.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, offload)| *offload == self).expect("each one is listed").0
    }

    /// Whether software does it.
    pub fn is_software(self) -> bool {
        matches!(self, Self::None | Self::CpuCrypto)
    }
}

/// What takes the packets of an inline-crypto SA that the NIC left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// A cryptodev.
    Lookaside,
    /// The worker.
    CpuCrypto,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its line.
    pub line: u32,
    /// The version of IP.
    pub family: Family,
    /// The destination.
    pub address: IpAddr,
    /// The prefix length as written, cut to 8 bits; nothing if none is written.
    pub length: Option<u8>,
    /// The port.
    pub port: u8,
}

impl Route {
    /// The destination, if a prefix length is written and fits its family.
    pub fn network(&self) -> Option<IpNet> {
        IpNet::new(self.address, self.length?).ok().map(|network| network.trunc())
    }

    /// Whether the line is a default route. ipsec-secgw refuses it.
    pub fn is_default(&self) -> bool {
        self.address.is_unspecified() && self.length == Some(0)
    }
}

/// The Ethernet address behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its line.
    pub line: u32,
    /// The address.
    pub address: [u8; 6],
}

/// A rule for the flow director of a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Its line.
    pub line: u32,
    /// The port.
    pub port: u16,
    /// The queue that its packets go to.
    pub queue: Option<u16>,
    /// Whether any Ethernet frame matches.
    pub ethernet: bool,
    /// The IPv4 packets that match.
    pub v4: Option<FlowAddress>,
    /// The IPv6 packets that match, if IPv4 is not given.
    pub v6: Option<FlowAddress>,
    /// The mark that packets must have.
    pub mark: Option<u32>,
    /// The mark that packets get.
    pub set_mark: Option<u32>,
    /// Whether packets are counted.
    pub count: bool,
    /// Whether ESP packets are given to the NIC's own IPsec.
    pub security: bool,
}

/// The address of a flow rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowAddress {
    /// The source and its prefix length as written; 0 if there is none.
    pub source: Option<(IpAddr, u32)>,
    /// The destination.
    pub destination: Option<(IpAddr, u32)>,
}
