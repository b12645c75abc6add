//! Links, addresses, routes and rules, set through rtnetlink (`rtnetlink(7)`).
//!
//! Everything here is idempotent: what is there already is not added again, what is gone already is not missed.

mod rule;

pub use rule::Rule;

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
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rule::{rule_message, rule_of};
use rustix::io::Errno;
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
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}: {error}{fix}")]
pub struct NetlinkError {
    /// What was asked for.
    pub what: String,
    /// What the kernel says.
    pub error: Errno,
    /// What to type, as it is printed behind the error; empty if that is not known.
    pub fix: String,
}

impl NetlinkError {
    /// Without a fix.
    pub fn new(what: impl Into<String>, error: &io::Error) -> Self {
        let error = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Self { what: what.into(), error, fix: String::new() }
    }
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

/// Whose a route is, and where it leads.
struct Owner {
    metric: Option<u32>,
    protocol: String,
    index: Option<u32>,
    via: Option<IpAddr>,
}

impl Way {
    /// The number of its link.
    fn index(self) -> Option<u32> {
        match self {
            Self::Link { index, .. } => Some(index),
            _ => None,
        }
    }

    /// Makes a route one of several for its prefix: what is without one has the kernel's, which is lower than the last.
    fn metric(self) -> Option<u32> {
        match self {
            Self::Onward => Some(1),
            Self::Link { .. } => None,
            Self::Nowhere => Some(LAST),
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
        found.ok_or_else(|| NetlinkError::new(what(), &Errno::NODEV.into()))
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
        let attributes = kind.ok_or_else(|| NetlinkError::new(what(), &Errno::NODEV.into()))?;
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
        drops.ok_or_else(|| NetlinkError::new(what(), &Errno::NODEV.into()))
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

    /// Adds a route, in place of one of ours of the same kind for the same prefix. One of another program is left alone,
    /// and refuses ours.
    pub fn add_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let mut message = route_message(route);
        if let Way::Link { source: Some(source), .. } = route.way {
            message.attributes.push(RouteAttribute::PrefSource(route_address(source)));
        }
        let what = || format!("add route {}", route.prefix);
        let add = RouteNetlinkMessage::NewRoute(message);
        let added = self.request(add.clone(), NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, what);
        match added {
            Err(NetlinkError { error: Errno::EXIST, .. }) => {}
            outcome => return outcome.map(|_| ()),
        }
        match self.other_owner(route)? {
            Some(owner) if owner.index.is_some() && owner.index == route.way.index() => Ok(()),
            Some(owner) => Err(self.refusal(route, &owner)),
            None => self.request(add, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK, what).map(|_| ()),
        }
    }

    /// The route of another program that has the place of one of ours.
    fn other_owner(&mut self, route: Route) -> Result<Option<Owner>, NetlinkError> {
        let ours = owner_of(&route_message(route));
        let found = self.dump_routes(Some(route.table), None)?;
        let same = found.iter().filter(|message| {
            let family =
                if route.prefix.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
            message.header.address_family == family
                && table_of(message) == route.table
                && prefix_of(message) == Some(route.prefix)
                && message.header.protocol != PROTOCOL
        });
        Ok(same.map(owner_of).find(|owner| owner.metric == ours.metric))
    }

    fn refusal(&mut self, route: Route, owner: &Owner) -> NetlinkError {
        let table = if route.table == MAIN_TABLE { String::new() } else { format!(" table {}", route.table) };
        let device = owner.index.and_then(|index| self.link_name(index)).map(|name| format!(" dev {name}"));
        let via = owner.via.map(|via| format!(" via {via}"));
        let way = [via, device].into_iter().flatten().collect::<String>();
        let (prefix, protocol) = (route.prefix, &owner.protocol);
        NetlinkError {
            what: format!("route {prefix}{way} proto {protocol}{table} is there already, of another program"),
            error: Errno::EXIST,
            fix: format!(
                "\n  fix: ip route delete {prefix}{way} proto {protocol}{table} and reload, or take {prefix} out of the configuration"
            ),
        }
    }

    fn link_name(&mut self, index: u32) -> Option<String> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let answers = self.request(RouteNetlinkMessage::GetLink(message), 0, String::new).ok()?;
        answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => message.attributes.into_iter().find_map(|it| match it {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            }),
            _ => None,
        })
    }

    /// Takes a route away.
    pub fn remove_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let mut message = route_message(route);
        message.header.scope = RouteScope::NoWhere;
        let message = RouteNetlinkMessage::DelRoute(message);
        self.change(message, 0, || format!("remove route {}", route.prefix))
    }

    /// The routes of all tables that we, or a daemon like us, have added.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let found = self.dump_routes(None, Some(PROTOCOL))?;
        let ours = found.iter().filter(|message| message.header.protocol == PROTOCOL);
        Ok(ours.filter_map(route_of).collect())
    }

    /// The routes of a table or of all, of a protocol or of all. A kernel that can is asked for these only, as others may be
    /// very many; one that cannot says all.
    fn dump_routes(
        &mut self,
        table: Option<u32>,
        protocol: Option<RouteProtocol>,
    ) -> Result<Vec<RouteMessage>, NetlinkError> {
        let _ = self.socket.set_netlink_get_strict_chk(true);
        let found = [AddressFamily::Inet, AddressFamily::Inet6].map(|family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            message.header.protocol = protocol.unwrap_or_default();
            message.attributes.extend(table.map(RouteAttribute::Table));
            match self.request(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP, || "routes".to_owned()) {
                // There has never been such a table.
                Err(NetlinkError { error: Errno::NOENT, .. }) => Ok(Vec::new()),
                outcome => outcome,
            }
        });
        let _ = self.socket.set_netlink_get_strict_chk(false);
        let [v4, v6] = found;
        let messages = v4?.into_iter().chain(v6?).filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => Some(message),
            _ => None,
        });
        Ok(messages.collect())
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
        let failed = |error: io::Error| NetlinkError::new(what(), &error);
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
        // It must also be found when the kernel looks for the link of another route's gateway, which has to be near.
        Way::Onward => (RouteType::Throw, RouteScope::Host),
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
    let (mut index, mut source) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(oif) => index = Some(*oif),
            RouteAttribute::PrefSource(address) => source = ip_address(address),
            _ => {}
        }
    }
    let way = match message.header.kind {
        RouteType::Throw => Way::Onward,
        RouteType::Unreachable => Way::Nowhere,
        RouteType::Unicast => Way::Link { index: index?, source },
        _ => return None,
    };
    Some(Route { prefix: prefix_of(message)?, table: table_of(message), way })
}

fn prefix_of(message: &RouteMessage) -> Option<IpNet> {
    let unspecified: IpAddr = match message.header.address_family {
        AddressFamily::Inet => [0; 4].into(),
        _ => [0; 16].into(),
    };
    let destination = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => ip_address(address),
        _ => None,
    });
    IpNet::new(destination.unwrap_or(unspecified), message.header.destination_prefix_length).ok()
}

fn owner_of(message: &RouteMessage) -> Owner {
    // The kernel gives a route of IPv6 a metric if it was told none, and one of IPv4 not.
    let default = (message.header.address_family == AddressFamily::Inet6).then_some(1024);
    let protocol = match message.header.protocol {
        RouteProtocol::Other(number) => number.to_string(),
        known => format!("{known:?}").to_lowercase(),
    };
    let mut owner = Owner { metric: default, protocol, index: None, via: None };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Priority(metric) if *metric > 0 => owner.metric = Some(*metric),
            RouteAttribute::Oif(index) => owner.index = Some(*index),
            RouteAttribute::Gateway(address) => owner.via = ip_address(address),
            _ => {}
        }
    }
    owner
}

/// Whether something that the kernel tells of is a change of links or addresses, of a route or a rule of ours, or in one of
/// these tables.
pub(super) fn is_ours(bytes: &[u8], tables: &[u32]) -> bool {
    messages(bytes).any(|message| match message.payload {
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewRoute(message) | RouteNetlinkMessage::DelRoute(message),
        ) => message.header.protocol == PROTOCOL || tables.contains(&table_of(&message)),
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewRule(message) | RouteNetlinkMessage::DelRule(message),
        ) => rule::is_our_rule(&message),
        _ => true,
    })
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

fn table_of(message: &RouteMessage) -> u32 {
    let table = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or(message.header.table.into())
}
