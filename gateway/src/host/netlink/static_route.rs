//! Routes that the user sets, in the kernel.

use super::route::{ip_address, prefix_of, route_address};
use super::{MAIN_TABLE, Netlink, NetlinkError, STATIC, family};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use rustix::io::Errno;
use std::net::IpAddr;

/// A static route as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::host) struct KernelRoute {
    pub(in crate::host) prefix: IpNet,
    pub(in crate::host) gateway: Option<IpAddr>,
    /// The number of its link; the kernel finds that of a gateway. Without both, packets are dropped.
    pub(in crate::host) index: Option<u32>,
    pub(in crate::host) metric: u32,
}

impl KernelRoute {
    /// Whether the kernel's route is this one: it may have found the link.
    pub(in crate::host) fn matches(&self, of_kernel: &Self) -> bool {
        let same = |it: &Self| (it.prefix, it.gateway, it.metric);
        same(self) == same(of_kernel)
            && (self.index == of_kernel.index || self.index.is_none() && self.gateway.is_some())
    }

    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family(self.prefix.addr());
        message.header.destination_prefix_length = self.prefix.prefix_len();
        message.header.table = MAIN_TABLE as u8;
        message.header.protocol = RouteProtocol::Other(STATIC);
        let is_near = self.gateway.is_none() && self.prefix.addr().is_ipv4();
        (message.header.kind, message.header.scope) = match (self.gateway, self.index) {
            (None, None) => (RouteType::BlackHole, RouteScope::Universe),
            _ if is_near => (RouteType::Unicast, RouteScope::Link),
            _ => (RouteType::Unicast, RouteScope::Universe),
        };
        message.attributes.push(RouteAttribute::Destination(route_address(self.prefix.network())));
        message
            .attributes
            .extend(self.gateway.map(|gateway| RouteAttribute::Gateway(route_address(gateway))));
        message.attributes.extend(self.index.map(RouteAttribute::Oif));
        message.attributes.push(RouteAttribute::Priority(self.metric));
        message
    }
}

impl Netlink {
    /// The static routes that we have added.
    pub(in crate::host) fn static_routes(&mut self) -> Result<Vec<KernelRoute>, NetlinkError> {
        let ours = RouteProtocol::Other(STATIC);
        let found = self.dump_routes(Some(MAIN_TABLE), Some(ours))?;
        Ok(found.iter().filter(|it| it.header.protocol == ours).filter_map(read).collect())
    }

    /// Adds a static route.
    pub(in crate::host) fn add_static_route(&mut self, route: KernelRoute) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        let added = self.request(message, flags, || format!("add route {}", route.prefix));
        added.map(|_| ()).map_err(|error| match error.error {
            // There is one route for a prefix and a metric.
            Errno::EXIST => NetlinkError {
                what: format!(
                    "route {} metric {} is there already, of another program",
                    route.prefix, route.metric
                ),
                fix: format!(
                    "\n  fix: set another distance; or: ip route delete {} metric {}",
                    route.prefix, route.metric
                ),
                ..error
            },
            _ => error,
        })
    }

    /// Takes a static route away.
    pub(in crate::host) fn remove_static_route(&mut self, route: KernelRoute) -> Result<(), NetlinkError> {
        let mut message = route.message();
        message.header.scope = RouteScope::NoWhere;
        self.change(RouteNetlinkMessage::DelRoute(message), 0, || format!("remove route {}", route.prefix))
    }
}

fn read(message: &RouteMessage) -> Option<KernelRoute> {
    let (mut gateway, mut index, mut metric) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => gateway = ip_address(address),
            // The kernel shows the loopback for what is dropped.
            RouteAttribute::Oif(oif) if message.header.kind == RouteType::Unicast => index = Some(*oif),
            RouteAttribute::Priority(it) => metric = *it,
            _ => {}
        }
    }
    Some(KernelRoute { prefix: prefix_of(message)?, gateway, index, metric })
}
