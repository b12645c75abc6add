//! Links and their addresses.

use super::{Netlink, NetlinkError, family};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressProtocol};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVlan, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};
use rustix::io::Errno;

/// Tells our addresses of a router from those of others, as `ip address show` shows it: the number of static routes.
const OURS: AddressProtocol = AddressProtocol::Other(super::STATIC);

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
    /// The number of the bridge that it belongs to; 0 for none.
    pub bridge: Option<u32>,
}

/// A link that the router of a site has beside its tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::host) struct RouterLink {
    pub(in crate::host) link: Link,
    pub(in crate::host) name: String,
    /// The number of the bridge that it belongs to, or 0.
    pub(in crate::host) bridge: u32,
    /// What is written to it as its description in the kernel.
    pub(in crate::host) alias: Option<String>,
}

/// A link to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::host) enum NewLink {
    Dummy,
    Bridge,
    /// Of the frames with this number, of the link with this index.
    Vlan(u32, u16),
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
        message.attributes.extend(change.bridge.map(LinkAttribute::Controller));
        message.attributes.extend(change.link_local.map(|wanted| {
            let mode = if wanted { In6AddrGenMode::Eui64 } else { In6AddrGenMode::None };
            let inet6 = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(mode)]);
            LinkAttribute::AfSpecUnspec(vec![inet6])
        }));
        self.change(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("set {change:?} on interface {index}")
        })
    }

    /// All links.
    pub(in crate::host) fn router_links(&mut self) -> Result<Vec<RouterLink>, NetlinkError> {
        let dump = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.request(dump, NLM_F_DUMP, || "interfaces".to_owned())?;
        Ok(answers.iter().filter_map(router_link).collect())
    }

    /// Makes a link, which this description tells from those of others.
    pub(in crate::host) fn add_link(
        &mut self,
        name: &str,
        new: &NewLink,
        alias: &str,
    ) -> Result<Link, NetlinkError> {
        let (kind, data) = match new {
            NewLink::Dummy => (InfoKind::Dummy, None),
            NewLink::Bridge => (InfoKind::Bridge, None),
            NewLink::Vlan(_, id) => {
                (InfoKind::Vlan, Some(LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(*id)]))))
            }
        };
        let info = [LinkInfo::Kind(kind)].into_iter().chain(data).collect();
        let mut message = LinkMessage::default();
        message.attributes.extend([LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)]);
        if let NewLink::Vlan(parent, _) = new {
            message.attributes.push(LinkAttribute::Link(*parent));
        }
        let what = || format!("make interface {name}");
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewLink(message), flags, what)?;
        // NLM_F_EXCL: this request has made the link.
        let link = self.link(name)?;
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
        let described = self.request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK, what);
        if described.is_err() {
            // Without its description it would be another program's from now on.
            self.delete_link(link.index)?;
        }
        described.map(|_| link)
    }

    /// Deletes a link.
    pub(in crate::host) fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.change(RouteNetlinkMessage::DelLink(message), 0, || format!("delete interface {index}"))
    }

    /// Addresses with the numbers of their links, and whether this gateway has set them as those of a router.
    pub(in crate::host) fn router_addresses(&mut self) -> Result<Vec<(u32, IpNet, bool)>, NetlinkError> {
        let dump = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.request(dump, NLM_F_DUMP, || "addresses".to_owned())?;
        let found = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => {
                let is_ours = message.attributes.contains(&AddressAttribute::Protocol(OURS));
                Some((message.header.index, address_of(message)?, is_ours))
            }
            _ => None,
        });
        Ok(found.collect())
    }

    /// Gives a link an address of a router. A kernel before Linux 5.18 does not keep whose it is.
    pub(in crate::host) fn add_router_address(
        &mut self,
        index: u32,
        address: IpNet,
    ) -> Result<(), NetlinkError> {
        let mut message = address_message(index, address);
        message.attributes.push(AddressAttribute::Protocol(OURS));
        let message = RouteNetlinkMessage::NewAddress(message);
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE, || format!("add address {address}"))
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

fn router_link(answer: &RouteNetlinkMessage) -> Option<RouterLink> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    let (mut name, mut bridge, mut alias) = (None, 0, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::IfAlias(text) => alias = Some(text.clone()),
            LinkAttribute::Controller(index) => bridge = *index,
            _ => {}
        }
    }
    Some(RouterLink { link: link_of(message), name: name?, bridge, alias })
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
