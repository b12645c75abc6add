//! Routes: our own, and the kernel's look-ups.

use super::{MAIN_TABLE, Netlink, NetlinkError, family, protocol};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use std::net::IpAddr;

/// The metric of routes that are taken when there is no other.
const LAST: u32 = 0xff00_0000;

/// The metric that the kernel gives a route of IPv6 that was told none.
const V6_METRIC: u32 = 1024;

/// How packets leave the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// The address that they come from.
    pub source: Option<IpAddr>,
    /// The MTU of the route, if it has one; otherwise that of the link applies.
    pub mtu: Option<u32>,
    /// The number of the link.
    pub index: Option<u32>,
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
        /// Of several routes for a prefix the one with the lowest metric is used; 0 for the kernel's.
        metric: u32,
    },
    /// Nowhere, if the table has no other route for the same prefix.
    Nowhere,
}

/// The origin of a route, and where it leads.
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
    pub(in crate::host) fn metric(self) -> Option<u32> {
        match self {
            Self::Onward => Some(1),
            Self::Link { metric, .. } => Some(metric).filter(|metric| *metric != 0),
            Self::Nowhere => Some(LAST),
        }
    }
}

impl Netlink {
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

    /// Adds a route, in place of one of ours of the same kind for the same prefix. One of another program is left alone,
    /// and refuses ours.
    pub(in crate::host) fn add_route(&mut self, route: Route) -> Result<(), NetlinkError> {
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
                && message.header.protocol != protocol()
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

    /// Takes a route away, and none of another metric.
    pub(in crate::host) fn remove_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let mut message = route_message(route);
        if route.way.metric().is_none() && !route.prefix.addr().is_ipv4() {
            // Without a metric, the kernel removes the route with the lowest one. Of IPv4, that is this route.
            message.attributes.push(RouteAttribute::Priority(V6_METRIC));
        }
        message.header.scope = RouteScope::NoWhere;
        let message = RouteNetlinkMessage::DelRoute(message);
        self.change(message, 0, || format!("remove route {}", route.prefix))
    }

    /// The routes of all tables that we, or a daemon like us, have added.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let found = self.dump_routes(None, Some(protocol()))?;
        let ours = found.iter().filter(|message| message.header.protocol == protocol());
        Ok(ours.filter_map(route_of).collect())
    }

    /// The routes of a table or of all, of a protocol or of all. A kernel that can is asked for these only, as others may be
    /// very many; an older kernel returns all.
    pub(super) fn dump_routes(
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
}

fn route_message(route: Route) -> RouteMessage {
    let Route { prefix, table, way } = route;
    let mut message = RouteMessage::default();
    message.header.address_family = family(prefix.addr());
    message.header.destination_prefix_length = prefix.prefix_len();
    message.header.table = u8::try_from(table).unwrap_or(0);
    message.header.protocol = protocol();
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
pub(super) fn route_of(message: &RouteMessage) -> Option<Route> {
    let (mut index, mut source, mut metric) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(oif) => index = Some(*oif),
            RouteAttribute::Priority(it) if *it != V6_METRIC => metric = *it,
            RouteAttribute::PrefSource(address) => source = ip_address(address),
            _ => {}
        }
    }
    let way = match message.header.kind {
        RouteType::Throw => Way::Onward,
        RouteType::Unreachable => Way::Nowhere,
        RouteType::Unicast => Way::Link { index: index?, source, metric },
        _ => return None,
    };
    Some(Route { prefix: prefix_of(message)?, table: table_of(message), way })
}

pub(super) fn prefix_of(message: &RouteMessage) -> Option<IpNet> {
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
    let default = (message.header.address_family == AddressFamily::Inet6).then_some(V6_METRIC);
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

pub(crate) fn table_of(message: &RouteMessage) -> u32 {
    let table = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or(message.header.table.into())
}

pub(super) fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

pub(super) fn ip_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn mtu_of(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    }
}
