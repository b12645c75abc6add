//! Links and their addresses.

use super::{Netlink, NetlinkError, family};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rustix::io::Errno;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it was set up.
    pub up: bool,
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

impl Netlink {
    /// The link called `name`.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        Ok(link_of(&self.ask_named(name)?))
    }

    /// What a link is, as `wireguard` or `tun`; `None` for one of hardware.
    pub fn link_kind(&mut self, name: &str) -> Result<Option<String>, NetlinkError> {
        Ok(self.ask_named(name)?.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(info) => info.into_iter().find_map(|info| match info {
                LinkInfo::Kind(kind) => Some(kind.to_string()),
                _ => None,
            }),
            _ => None,
        }))
    }

    /// How many packets the kernel has dropped at the link called `name`: on their way into it, and out of it.
    pub fn link_drops(&mut self, name: &str) -> Result<(u64, u64), NetlinkError> {
        let drops = self.ask_named(name)?.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some((stats.tx_dropped, stats.rx_dropped)),
            _ => None,
        });
        drops.ok_or_else(|| NetlinkError::new(format!("interface {name}"), &Errno::NODEV.into()))
    }

    /// The MTU of a link, by its number.
    pub fn link_mtu(&mut self, index: u32) -> Result<u32, NetlinkError> {
        Ok(link_of(&self.ask_numbered(index)?).mtu)
    }

    pub(crate) fn link_name(&mut self, index: u32) -> Option<String> {
        self.ask_numbered(index).ok()?.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        })
    }

    fn ask_named(&mut self, name: &str) -> Result<LinkMessage, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.ask(message, || format!("interface {name}"))
    }

    fn ask_numbered(&mut self, index: u32) -> Result<LinkMessage, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.ask(message, || format!("interface {index}"))
    }

    fn ask(&mut self, message: LinkMessage, what: impl Fn() -> String) -> Result<LinkMessage, NetlinkError> {
        let answers = self.request(RouteNetlinkMessage::GetLink(message), 0, &what)?;
        let found = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => Some(message),
            _ => None,
        });
        found.ok_or_else(|| NetlinkError::new(what(), &Errno::NODEV.into()))
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

    /// Gives a link an address.
    pub(in crate::host) fn add_address(&mut self, index: u32, address: IpNet) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewAddress(address_message(index, address));
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE, || format!("add address {address}"))
    }

    /// Takes an address away.
    pub(in crate::host) fn remove_address(&mut self, index: u32, address: IpNet) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelAddress(address_message(index, address));
        self.change(message, 0, || format!("remove address {address}"))
    }
}

pub(crate) fn link_of(message: &LinkMessage) -> Link {
    let mtu = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let up = message.header.flags.contains(LinkFlags::Up);
    Link { index: message.header.index, mtu: mtu.unwrap_or(0), up }
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

fn address_of(message: &AddressMessage) -> Option<IpNet> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    IpNet::new(address?, message.header.prefix_len).ok()
}
