//! The kernel's notifications, as changes of the state that the host keeps.

use super::route::{Route, route_of, table_of};
use super::rule::is_our_rule;
use super::{STATIC, messages, protocol, subscribe};
use netlink_packet_core::{NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteProtocol;
use netlink_sys::Socket;
use std::io;

/// The multicast groups of changes of links, addresses, routes and rules (linux/rtnetlink.h).
const GROUPS: [u32; 7] = [1, 5, 9, 7, 11, 8, 19];

/// A socket for these notifications, which does not wait for one.
pub(crate) fn watch() -> io::Result<Socket> {
    let socket = subscribe(&GROUPS)?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concern {
    /// A route or rule of ours, or a table that outer packets pass by.
    Inside,
    /// A link or an address, or a route of ours that outer packets may take.
    Outside,
}

/// What the notifications in a datagram of the kernel concern most; nothing if they concern only others.
pub(crate) fn concern(bytes: &[u8], tables: &[u32]) -> Option<Concern> {
    let of = |message: NetlinkMessage<RouteNetlinkMessage>| match message.payload {
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route),
        ) => {
            let is_static = route.header.protocol == RouteProtocol::Other(STATIC);
            let is_inside = is_static || tables.contains(&table_of(&route));
            let outside = (route.header.protocol == protocol()).then_some(Concern::Outside);
            if is_inside { Some(Concern::Inside) } else { outside }
        }
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule),
        ) => is_our_rule(&rule).then_some(Concern::Inside),
        _ => Some(Concern::Outside),
    };
    messages(bytes).filter_map(of).max()
}

/// What a notification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// We have added this route.
    Added(Route),
    /// We have removed this route.
    Removed(Route),
    /// Addresses, routes or rules of ours may be others than before.
    Disturbed,
    /// Nothing that concerns us.
    Other,
}

/// The notifications in a datagram of the kernel. `own` is the number of the conversation in which we make changes.
pub(crate) fn notices<'a>(bytes: &'a [u8], tables: &'a [u32], own: u32) -> impl Iterator<Item = Notice> + 'a {
    messages(bytes).map(move |message| notice(message, tables, own))
}

fn notice(message: NetlinkMessage<RouteNetlinkMessage>, tables: &[u32], own: u32) -> Notice {
    use RouteNetlinkMessage::{DelRoute, DelRule, NewRoute, NewRule};
    let is_own = message.header.port_number == own && own != 0;
    // The kernel does not say which route the new one replaces.
    let replaces = message.header.flags & NLM_F_REPLACE != 0;
    let NetlinkPayload::InnerMessage(inner) = message.payload else { return Notice::Disturbed };
    match inner {
        NewRoute(route) if is_own && !replaces => route_of(&route).map_or(Notice::Disturbed, Notice::Added),
        DelRoute(route) if is_own => route_of(&route).map_or(Notice::Disturbed, Notice::Removed),
        NewRoute(route) | DelRoute(route) => {
            let is_static = route.header.protocol == RouteProtocol::Other(STATIC);
            let is_ours =
                is_static || route.header.protocol == protocol() || tables.contains(&table_of(&route));
            if is_ours || replaces { Notice::Disturbed } else { Notice::Other }
        }
        NewRule(_) | DelRule(_) if is_own => Notice::Other,
        NewRule(rule) | DelRule(rule) if !is_our_rule(&rule) => Notice::Other,
        // With a link or an address the kernel removes routes, and does not say so.
        _ => Notice::Disturbed,
    }
}
