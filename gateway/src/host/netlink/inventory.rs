//! All interfaces of this machine with their addresses and counters, for an operator.

use super::{Netlink, NetlinkError};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop, Stats64};
use std::net::IpAddr;

/// An interface with everything that is shown of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it is, as `bridge` or `tun`; `None` for one of hardware.
    pub kind: Option<String>,
    /// Its flags, as `ip` writes them.
    pub flags: Vec<&'static str>,
    /// Its MTU.
    pub mtu: u32,
    /// Its queueing discipline.
    pub qdisc: Option<String>,
    /// The state of its link, as `up`.
    pub link_state: String,
    /// How many packets may wait.
    pub queue_length: u32,
    /// Its link-layer address.
    pub hardware_address: Option<String>,
    /// The link-layer address of all.
    pub hardware_broadcast: Option<String>,
    /// Its description in the kernel.
    pub alias: Option<String>,
    /// Its other names.
    pub other_names: Vec<String>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// What it has carried.
    pub counters: Counters,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// Where it is valid, as `global`.
    pub scope: String,
    /// The other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// The address of all.
    pub broadcast: Option<IpAddr>,
}

/// What an interface has carried and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received.
    pub received: Direction,
    /// Sent.
    pub sent: Direction,
    /// Packets received that a queue had no room for.
    pub overrun: u64,
    /// Packets received for groups.
    pub multicast: u64,
    /// Packets not sent as the carrier was lost.
    pub carrier: u64,
    /// Collisions.
    pub collisions: u64,
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets with errors.
    pub errors: u64,
    /// Packets dropped.
    pub dropped: u64,
}

impl Interface {
    /// Whether it was set up.
    pub fn is_up(&self) -> bool {
        self.flags.contains(&"UP")
    }

    /// Whether its link carries packets.
    pub fn has_link(&self) -> bool {
        self.flags.contains(&"LOWER_UP")
    }
}

impl Netlink {
    /// All interfaces, by their numbers.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, NetlinkError> {
        let dump = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let links = self.request(dump, NLM_F_DUMP, || "interfaces".to_owned())?;
        let mut found: Vec<Interface> = links
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(message) => Some(interface_of(message)),
                _ => None,
            })
            .collect();
        let dump = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for answer in self.request(dump, NLM_F_DUMP, || "addresses".to_owned())? {
            if let RouteNetlinkMessage::NewAddress(message) = answer
                && let Some(address) = address_of(&message)
                && let Some(owner) = found.iter_mut().find(|it| it.index == message.header.index)
            {
                owner.addresses.push(address);
            }
        }
        found.sort_by_key(|interface| interface.index);
        Ok(found)
    }
}

fn interface_of(message: &LinkMessage) -> Interface {
    let mut interface =
        Interface { index: message.header.index, flags: flags(message.header.flags), ..Interface::default() };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Qdisc(name) => interface.qdisc = Some(name.clone()),
            LinkAttribute::TxQueueLen(length) => interface.queue_length = *length,
            LinkAttribute::OperState(state) => interface.link_state = format!("{state:?}").to_lowercase(),
            LinkAttribute::Address(address) => interface.hardware_address = hardware(address),
            LinkAttribute::Broadcast(address) => interface.hardware_broadcast = hardware(address),
            LinkAttribute::IfAlias(alias) => interface.alias = Some(alias.clone()),
            LinkAttribute::PropList(list) => {
                interface.other_names.extend(list.iter().filter_map(|property| match property {
                    Prop::AltIfName(name) => Some(name.clone()),
                    _ => None,
                }));
            }
            LinkAttribute::LinkInfo(info) => {
                interface.kind = info.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            LinkAttribute::Stats64(stats) => interface.counters = counters(stats),
            _ => {}
        }
    }
    interface
}

/// The flags in the order and the words of `ip`.
fn flags(set: LinkFlags) -> Vec<&'static str> {
    let no_carrier = set.contains(LinkFlags::Up) && !set.contains(LinkFlags::Running);
    let known = [
        (LinkFlags::Loopback, "LOOPBACK"),
        (LinkFlags::Broadcast, "BROADCAST"),
        (LinkFlags::Pointopoint, "POINTOPOINT"),
        (LinkFlags::Multicast, "MULTICAST"),
        (LinkFlags::Noarp, "NOARP"),
        (LinkFlags::Allmulti, "ALLMULTI"),
        (LinkFlags::Promisc, "PROMISC"),
        (LinkFlags::Controller, "MASTER"),
        (LinkFlags::Port, "SLAVE"),
        (LinkFlags::Dynamic, "DYNAMIC"),
        (LinkFlags::Up, "UP"),
        (LinkFlags::LowerUp, "LOWER_UP"),
        (LinkFlags::Dormant, "DORMANT"),
    ];
    let known = known.into_iter().filter(|(flag, _)| set.contains(*flag)).map(|(_, name)| name);
    no_carrier.then_some("NO-CARRIER").into_iter().chain(known).collect()
}

/// A link-layer address; none of an interface without.
fn hardware(bytes: &[u8]) -> Option<String> {
    let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    (!text.is_empty()).then(|| text.join(":"))
}

fn counters(stats: &Stats64) -> Counters {
    Counters {
        received: Direction {
            bytes: stats.rx_bytes,
            packets: stats.rx_packets,
            errors: stats.rx_errors,
            dropped: stats.rx_dropped,
        },
        sent: Direction {
            bytes: stats.tx_bytes,
            packets: stats.tx_packets,
            errors: stats.tx_errors,
            dropped: stats.tx_dropped,
        },
        overrun: stats.rx_over_errors,
        multicast: stats.multicast,
        carrier: stats.tx_carrier_errors,
        collisions: stats.collisions,
    }
}

fn address_of(message: &AddressMessage) -> Option<Address> {
    let (mut address, mut local, mut broadcast) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(it) => address = Some(*it),
            AddressAttribute::Local(it) => local = Some(*it),
            AddressAttribute::Broadcast(it) => broadcast = Some(IpAddr::from(*it)),
            _ => {}
        }
    }
    // Of a point-to-point link, `Address` is the other end (if_addr.h).
    let own = local.or(address)?;
    let scope = match u8::from(message.header.scope) {
        0 => "global".to_owned(),
        200 => "site".to_owned(),
        253 => "link".to_owned(),
        254 => "host".to_owned(),
        other => other.to_string(),
    };
    let peer = address.filter(|address| *address != own);
    Some(Address { address: own, prefix: message.header.prefix_len, scope, peer, broadcast })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_there_with_its_address() {
        let mut netlink = Netlink::open().expect("a socket");
        let found = netlink.interfaces().expect("a dump");
        let loopback = found.iter().find(|it| it.name == "lo").expect("every namespace has one");
        assert!(loopback.flags.contains(&"LOOPBACK") && loopback.kind.is_none(), "{loopback:?}");
        let expected = Address {
            address: "127.0.0.1".parse().expect("an address"),
            prefix: 8,
            scope: "host".to_owned(),
            peer: None,
            broadcast: None,
        };
        assert!(loopback.addresses.is_empty() || loopback.addresses.contains(&expected), "{loopback:?}");
    }

    #[test]
    fn flags_are_written_as_ip_writes_them() {
        let set = LinkFlags::Up | LinkFlags::Broadcast | LinkFlags::Multicast;
        assert_eq!(flags(set), ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"]);
        let set = LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp | LinkFlags::Loopback;
        assert_eq!(flags(set), ["LOOPBACK", "UP", "LOWER_UP"]);
    }

    #[test]
    fn an_interface_without_a_hardware_address_has_none() {
        assert_eq!((hardware(&[]), hardware(&[0, 0x53, 255])), (None, Some("00:53:ff".to_owned())));
    }
}
