//! Links, addresses, routes and rules, set through rtnetlink (`rtnetlink(7)`).
//!
//! Everything here is idempotent: what is there already is not added again, what is gone already is not missed.

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

/// The main routing table.
pub const MAIN_TABLE: u32 = 254;
/// Marks our routes and rules in `ip route show` and `ip rule show`: an unassigned number of linux/rtnetlink.h, above
/// those of routing daemons.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(219);
/// The metric of routes that are taken when there is no other.
const LAST: u32 = 0xff00_0000;

/// A request that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub struct NetlinkError {
    /// What was asked for.
    pub what: String,
    /// What the kernel says.
    pub error: Errno,
}

/// A link as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it was set up.
    pub up: bool,
}

/// How packets leave the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// The address that they come from.
    pub source: Option<IpAddr>,
    /// The largest that the route lets go, if it says so; otherwise it is what the link does.
    pub mtu: Option<u32>,
    /// The number of the link.
    pub index: Option<u32>,
}

/// What to change of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkChange {
    /// Up or down.
    pub up: Option<bool>,
    /// Its MTU.
    pub mtu: Option<u32>,
    /// How many segments a super-packet may have.
    pub gso_max_segments: Option<u32>,
    /// How many packets wait for us.
    pub queue_length: Option<u32>,
    /// Whether the kernel gives it a link-local IPv6 address by itself.
    pub link_local: Option<bool>,
}

/// A routing rule for traffic that is not our own: `not fwmark MARK lookup TABLE`, or the exception before it,
/// `lookup main suppress_prefixlength 0`. [`rules`](super::rules) has the order of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Packets without the mark use the table.
    NotMarked {
        /// For IPv6.
        v6: bool,
        /// The mark.
        mark: u32,
        /// The table.
        table: u32,
    },
    /// More specific routes of the main table come first.
    MainFirst {
        /// For IPv6.
        v6: bool,
    },
    /// Packets without the mark use the table before the main one: policies decide, not routes.
    BeforeMain {
        /// For IPv6.
        v6: bool,
        /// The mark, which is also the table's number.
        mark: u32,
    },
}

/// A route of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The addresses.
    pub prefix: IpNet,
    /// The table that it is in.
    pub table: u32,
    /// Where it leads.
    pub way: Way,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// On to the tables of the next rules.
    Onward,
    /// To a link.
    Link {
        /// Its number.
        index: u32,
        /// The address from which this machine itself sends there; the kernel chooses if there is none.
        source: Option<IpAddr>,
    },
    /// Nowhere, if the table has no other route for the same prefix.
    Nowhere,
}

impl Way {
    /// Makes a route one of several for its prefix: what is without one has the kernel's, which is lower than the last.
    fn metric(self) -> Option<u32> {
        match self {
            Self::Onward => Some(1),
            Self::Link { .. } => None,
            Self::Nowhere => Some(LAST),
        }
    }
}

impl Rule {
    /// Which rules come first: without a number, the kernel places each new rule before all others.
    pub fn priority(self) -> u32 {
        match self {
            Self::MainFirst { .. } => 32_500,
            Self::NotMarked { .. } => 32_501,
            // Where strongSwan has its own.
            Self::BeforeMain { .. } => 220,
        }
    }
}

/// A conversation with the kernel of one network namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A socket on which the kernel tells of the changes of these multicast groups (linux/rtnetlink.h).
pub fn subscribe(groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    groups.iter().try_for_each(|group| socket.add_membership(*group))?;
    Ok(socket)
}

impl Netlink {
    /// Opens a conversation in the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let socket = subscribe(&[])?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The link called `name`.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.ask_link(message, || format!("interface {name}"))
    }

    fn ask_link(&mut self, message: LinkMessage, what: impl Fn() -> String) -> Result<Link, NetlinkError> {
        let answers = self.request(RouteNetlinkMessage::GetLink(message), 0, &what)?;
        let found = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => Some(link_of(&message)),
            _ => None,
        });
        found.ok_or_else(|| NetlinkError { what: what(), error: Errno::NODEV })
    }

    /// What a link is, as `wireguard` or `tun`; `None` for one of hardware.
    pub fn link_kind(&mut self, name: &str) -> Result<Option<String>, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let what = || format!("interface {name}");
        let answers = self.request(RouteNetlinkMessage::GetLink(message), 0, what)?;
        let kind = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => Some(message.attributes),
            _ => None,
        });
        let attributes = kind.ok_or_else(|| NetlinkError { what: what(), error: Errno::NODEV })?;
        Ok(attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(info) => info.into_iter().find_map(|info| match info {
                LinkInfo::Kind(kind) => Some(kind.to_string()),
                _ => None,
            }),
            _ => None,
        }))
    }

    /// How many packets the kernel has dropped at the link called `name`: on their way into it, and out of it.
    pub fn link_drops(&mut self, name: &str) -> Result<(u64, u64), NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let what = || format!("interface {name}");
        let found = self.request(RouteNetlinkMessage::GetLink(message), 0, what)?.into_iter();
        let mut attributes = found.flat_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => message.attributes,
            _ => Vec::new(),
        });
        let drops = attributes.find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some((stats.tx_dropped, stats.rx_dropped)),
            _ => None,
        });
        drops.ok_or_else(|| NetlinkError { what: what(), error: Errno::NODEV })
    }

    /// How packets with this mark leave for an address.
    pub fn outside(&mut self, to: IpAddr, mark: u32) -> Result<Outside, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(route_address(to)), RouteAttribute::Mark(mark)];
        let what = || format!("route to {to}");
        let answers = self.request(RouteNetlinkMessage::GetRoute(message), 0, what)?;
        let mut outside = Outside::default();
        let attributes = answers.iter().flat_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => &message.attributes[..],
            _ => &[],
        });
        for attribute in attributes {
            match attribute {
                RouteAttribute::PrefSource(address) => outside.source = ip_address(address),
                RouteAttribute::Oif(index) => outside.index = Some(*index),
                RouteAttribute::Metrics(metrics) => outside.mtu = metrics.iter().find_map(mtu_of),
                _ => {}
            }
        }
        Ok(outside)
    }

    /// The MTU of a link, by its number.
    pub fn link_mtu(&mut self, index: u32) -> Result<u32, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        Ok(self.ask_link(message, || format!("interface {index}"))?.mtu)
    }

    /// Changes a link.
    pub fn set_link(&mut self, index: u32, change: LinkChange) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        if let Some(up) = change.up {
            message.header.change_mask = LinkFlags::Up;
            message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        }
        message.attributes.extend(change.mtu.map(LinkAttribute::Mtu));
        message.attributes.extend(change.gso_max_segments.map(LinkAttribute::GsoMaxSegs));
        message.attributes.extend(change.queue_length.map(LinkAttribute::TxQueueLen));
        message.attributes.extend(change.link_local.map(|wanted| {
            let mode = if wanted { In6AddrGenMode::Eui64 } else { In6AddrGenMode::None };
            let inet6 = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(mode)]);
            LinkAttribute::AfSpecUnspec(vec![inet6])
        }));
        self.change(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("set {change:?} on interface {index}")
        })
    }

    /// Gives a link an address.
    pub fn add_address(&mut self, index: u32, address: IpNet) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewAddress(address_message(index, address));
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE, || format!("add address {address}"))
    }

    /// Takes an address away.
    pub fn remove_address(&mut self, index: u32, address: IpNet) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelAddress(address_message(index, address));
        self.change(message, 0, || format!("remove address {address}"))
    }

    /// Adds a route, in place of one of the same kind for the same prefix.
    pub fn add_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let mut message = route_message(route);
        if let Way::Link { source: Some(source), .. } = route.way {
            message.attributes.push(RouteAttribute::PrefSource(route_address(source)));
        }
        let message = RouteNetlinkMessage::NewRoute(message);
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE, || format!("add route {}", route.prefix))
    }

    /// Takes a route away.
    pub fn remove_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelRoute(route_message(route));
        self.change(message, 0, || format!("remove route {}", route.prefix))
    }

    /// The routes of a table that we, or a daemon like us, have added.
    pub fn routes(&mut self, table: u32) -> Result<Vec<Route>, NetlinkError> {
        // A kernel that can is asked for this table only: others may be very large.
        let _ = self.socket.set_netlink_get_strict_chk(true);
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            message.attributes.push(RouteAttribute::Table(table));
            let dump = RouteNetlinkMessage::GetRoute(message);
            match self.request(dump, NLM_F_DUMP, || format!("routes of table {table}")) {
                Ok(answers) => found.extend(answers),
                // There has never been such a table.
                Err(NetlinkError { error: Errno::NOENT, .. }) => {}
                Err(error) => {
                    let _ = self.socket.set_netlink_get_strict_chk(false);
                    return Err(error);
                }
            }
        }
        let _ = self.socket.set_netlink_get_strict_chk(false);
        let ours = found.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) if message.header.protocol == PROTOCOL => {
                route_of(message)
            }
            _ => None,
        });
        Ok(ours.filter(|route| route.table == table).collect())
    }

    /// Adds a rule.
    pub fn add_rule(&mut self, rule: Rule) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRule(rule_message(rule));
        self.change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add rule {rule:?}"))
    }

    /// Takes a rule away.
    pub fn remove_rule(&mut self, rule: Rule) -> Result<(), NetlinkError> {
        self.change(RouteNetlinkMessage::DelRule(rule_message(rule)), 0, || format!("remove rule {rule:?}"))
    }

    /// The rules that we, or a daemon like us, have added.
    pub fn rules(&mut self) -> Result<Vec<Rule>, NetlinkError> {
        let dump = RouteNetlinkMessage::GetRule(RuleMessage::default());
        let answers = self.request(dump, NLM_F_DUMP, || "rules".to_owned())?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRule(message) => rule_of(message),
                _ => None,
            })
            .collect())
    }

    /// The tables in which we, or a daemon like us, have routes; those for IPv6 are told from the others.
    pub fn tables(&mut self) -> Result<BTreeSet<(bool, u32)>, NetlinkError> {
        let dump = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.request(dump, NLM_F_DUMP, || "routes".to_owned())?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(message) if message.header.protocol == PROTOCOL => {
                    let v6 = message.header.address_family == AddressFamily::Inet6;
                    Some((v6, table_of(message)))
                }
                _ => None,
            })
            .collect())
    }

    /// The addresses of a link, or of all.
    pub fn addresses(&mut self, index: Option<u32>) -> Result<Vec<IpNet>, NetlinkError> {
        let dump = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.request(dump, NLM_F_DUMP, || "addresses".to_owned())?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message)
                    if index.is_none_or(|index| message.header.index == index) =>
                {
                    address_of(message)
                }
                _ => None,
            })
            .collect())
    }

    /// Asks for a change that may have been made already.
    fn change(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<(), NetlinkError> {
        match self.request(message, flags | NLM_F_ACK, what) {
            Err(NetlinkError {
                error: Errno::EXIST | Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::NOENT,
                ..
            }) => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Sends a request and reads all answers to it.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let failed = |error: io::Error| NetlinkError {
            what: what(),
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(failed)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full().map_err(failed)?;
            for answer in messages(&bytes) {
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        answers.push(answer);
                        if flags & (NLM_F_DUMP | NLM_F_ACK) == 0 {
                            return Ok(answers);
                        }
                    }
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(answers),
                        Some(code) => return Err(failed(io::Error::from_raw_os_error(-code.get()))),
                    },
                    NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// The messages in one datagram of the kernel; one that we cannot read is passed over.
pub(super) fn messages(bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while let Some(&length) = rest.first_chunk::<4>() {
            let length = u32::from_ne_bytes(length) as usize;
            let message = rest.get(..length).filter(|_| length >= 16)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Ok(message) = NetlinkMessage::deserialize(message) {
                return Some(message);
            }
        }
        None
    })
}

pub(super) fn link_of(message: &LinkMessage) -> Link {
    let mtu = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let up = message.header.flags.contains(LinkFlags::Up);
    Link { index: message.header.index, mtu: mtu.unwrap_or(0), up }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(address.addr()));
    message.attributes.push(AddressAttribute::Address(address.addr()));
    message
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

fn route_message(route: Route) -> RouteMessage {
    let Route { prefix, table, way } = route;
    let mut message = RouteMessage::default();
    message.header.address_family = family(prefix.addr());
    message.header.destination_prefix_length = prefix.prefix_len();
    message.header.table = u8::try_from(table).unwrap_or(0);
    message.header.protocol = PROTOCOL;
    (message.header.kind, message.header.scope) = match way {
        Way::Onward => (RouteType::Throw, RouteScope::Universe),
        Way::Nowhere => (RouteType::Unreachable, RouteScope::Universe),
        Way::Link { .. } if prefix.addr().is_ipv4() => (RouteType::Unicast, RouteScope::Link),
        Way::Link { .. } => (RouteType::Unicast, RouteScope::Universe),
    };
    message.attributes.push(RouteAttribute::Destination(route_address(prefix.network())));
    if let Way::Link { index, .. } = way {
        message.attributes.push(RouteAttribute::Oif(index));
    }
    message.attributes.extend(way.metric().map(RouteAttribute::Priority));
    message.attributes.push(RouteAttribute::Table(table));
    message
}

/// The route that a message describes, if it is of a kind that we add.
fn route_of(message: &RouteMessage) -> Option<Route> {
    let (mut destination, mut index, mut source) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip_address(address),
            RouteAttribute::Oif(oif) => index = Some(*oif),
            RouteAttribute::PrefSource(address) => source = ip_address(address),
            _ => {}
        }
    }
    let unspecified: IpAddr = match message.header.address_family {
        AddressFamily::Inet => [0; 4].into(),
        _ => [0; 16].into(),
    };
    let way = match message.header.kind {
        RouteType::Throw => Way::Onward,
        RouteType::Unreachable => Way::Nowhere,
        RouteType::Unicast => Way::Link { index: index?, source },
        _ => return None,
    };
    let length = message.header.destination_prefix_length;
    let prefix = IpNet::new(destination.unwrap_or(unspecified), length).ok()?;
    Some(Route { prefix, table: table_of(message), way })
}

fn mtu_of(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    }
}

fn ip_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn address_of(message: &AddressMessage) -> Option<IpNet> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    IpNet::new(address?, message.header.prefix_len).ok()
}

fn rule_message(rule: Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.action = RuleAction::ToTable;
    let (v6, attributes) = match rule {
        Rule::NotMarked { v6, mark, table } => not_marked(&mut message, v6, mark, table),
        Rule::BeforeMain { v6, mark } => not_marked(&mut message, v6, mark, mark),
        Rule::MainFirst { v6 } => {
            (v6, vec![RuleAttribute::Table(MAIN_TABLE), RuleAttribute::SuppressPrefixLen(0)])
        }
    };
    message.header.family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.attributes = attributes;
    message.attributes.push(RuleAttribute::Priority(rule.priority()));
    message.attributes.push(RuleAttribute::Protocol(PROTOCOL));
    message
}

fn not_marked(message: &mut RuleMessage, v6: bool, mark: u32, table: u32) -> (bool, Vec<RuleAttribute>) {
    message.header.flags = RuleFlags::Invert;
    (v6, vec![RuleAttribute::FwMark(mark), RuleAttribute::Table(table)])
}

/// The rule that a message describes, if it is one of ours in everything: priority, table, mark and protocol.
fn rule_of(message: &RuleMessage) -> Option<Rule> {
    let v6 = message.header.family == AddressFamily::Inet6;
    let mark = message.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::FwMark(mark) => Some(*mark),
        _ => None,
    });
    let table = message.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Table(table) => Some(*table),
        _ => None,
    });
    let possible = match (mark, table) {
        (Some(mark), Some(table)) => {
            vec![Rule::NotMarked { v6, mark, table }, Rule::BeforeMain { v6, mark }]
        }
        _ => vec![Rule::MainFirst { v6 }],
    };
    possible.into_iter().find(|&rule| {
        let ours = rule_message(rule);
        message.header.flags.contains(RuleFlags::Invert) == ours.header.flags.contains(RuleFlags::Invert)
            && ours.attributes.iter().all(|attribute| message.attributes.contains(attribute))
    })
}

fn table_of(message: &RouteMessage) -> u32 {
    let table = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or(message.header.table.into())
}
