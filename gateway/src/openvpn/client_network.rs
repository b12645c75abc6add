//! What a client has in the kernel: each push reply replaces what differs, and the rest stays. It stays too while no server answers, so
//! that what leads into the tunnel never leaves in clear.

use super::named_routes::Known;
use super::options::Network;
use super::routing::{self, Servers};
use crate::dns::{NameServers, Request};
use crate::host::netlink::{LinkChange, MAIN_TABLE, Netlink, NetlinkError};
use crate::host::wants::Wants;
use crate::host::{self, HostHandle, Own};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

/// The settings of each interface about packets by whose source another interface leads (`rp_filter`).
const INTERFACES: &str = "/proc/sys/net/ipv4/conf";

/// Why a client ends.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kernel does not say what this machine has.
    #[error(transparent)]
    Kernel(#[from] NetlinkError),
    /// Traffic that the server wants in the tunnel would leave in clear.
    #[error(
        "interface {0}: the server's option \"{1}\" is not served, and its traffic would leave in clear\n  fix: do not push it to this client"
    )]
    Unprotected(String, String),
    /// The kernel has refused a rule or a route, and redirected traffic would leave in clear.
    #[error(
        "interface {0}: {1}\n  traffic that is redirected into the tunnel would leave in clear\n  fix: see the reason of the kernel, or delete redirect-gateway on both ends"
    )]
    Clear(String, NetlinkError),
    /// The server pushes too much.
    #[error(
        "interface {0}: the server pushes too many routes\n  fix: push fewer, or write pull-filter ignore route"
    )]
    TooManyRoutes(String),
}

/// What a daemon closes for an interface.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// What the configuration says.
    pub configured: Wants,
    /// What a server has said before: it stays closed until the next push reply.
    pub left: Wants,
}

/// The network of a client, and what of it is in the kernel.
pub(super) struct ClientNetwork {
    interface: String,
    own: Own,
    /// The addresses of all servers.
    servers: BTreeSet<IpAddr>,
    /// The last push reply.
    network: Option<Network>,
    wants: Wants,
    /// The addresses of names in its routes.
    known: Known,
    name_servers: Option<NameServers>,
    /// What stays closed without the interface; `None` of a program that leaves nothing behind.
    closed: Option<Closed>,
    /// Whether there is no interface, and nothing in the kernel.
    is_null: bool,
}

impl ClientNetwork {
    pub(super) fn new(
        interface: &str,
        own: Own,
        name_servers: Option<NameServers>,
        closed: Option<Closed>,
    ) -> Self {
        let (servers, wants) = (BTreeSet::new(), Wants::default());
        let (interface, is_null) = (interface.to_owned(), false);
        Self {
            interface,
            own,
            servers,
            network: None,
            wants,
            known: Known::new(),
            name_servers,
            closed,
            is_null,
        }
    }

    /// Whether there is no interface.
    pub(super) fn set_null(&mut self, is_null: bool) {
        self.is_null = is_null;
    }

    /// Has the former name servers put back.
    pub(super) async fn end(self) {
        if let Some(name_servers) = self.name_servers {
            name_servers.put_back(&self.interface).await;
        }
    }

    /// Servers have these addresses too.
    pub(super) fn add_servers(
        &mut self,
        host: &HostHandle,
        servers: impl IntoIterator<Item = IpAddr>,
    ) -> Result<(), ClientError> {
        let before = self.servers.len();
        self.servers.extend(servers.into_iter().map(|address| address.to_canonical()));
        if self.servers.len() == before {
            return Ok(());
        }
        match self.network.take() {
            Some(network) => self.configure(host, network),
            None if self.closed.is_some() => self.begin(host, Wants::default()),
            None => Ok(()),
        }
    }

    /// Names of pushed routes have these addresses.
    pub(super) fn learn(&mut self, host: &HostHandle, known: Known) -> Result<(), ClientError> {
        self.known = known;
        self.network.take().map_or(Ok(()), |network| self.configure(host, network))
    }

    /// Sets what is `wanted` before a server has said what it wants, and closes what a daemon closes.
    pub(super) fn begin(&mut self, host: &HostHandle, mut wanted: Wants) -> Result<(), ClientError> {
        if let Some(Closed { configured, left }) = &self.closed {
            let links = self.links()?;
            let closed = routing::closed_around(&configured.and(left), &self.servers(&links), self.own);
            wanted = guarded(wanted, Some(&closed)).and(&closed);
        }
        self.wants = wanted;
        Ok(host.set(&self.interface, Some(self.wants.clone()))?)
    }

    /// The networks of this machine, but for our own.
    fn links(&self) -> Result<Vec<IpNet>, NetlinkError> {
        let mut links =
            Netlink::open().map_err(|error| NetlinkError::new("rtnetlink", &error))?.addresses(None)?;
        links.retain(|link| !self.wants.addresses.contains(link));
        Ok(links)
    }

    fn servers<'a>(&'a self, links: &'a [IpNet]) -> Servers<'a> {
        Servers { addresses: &self.servers, passed: is_filtered_strictly(&self.interface), links }
    }

    /// Takes the network that a server has given us.
    pub(super) fn configure(&mut self, host: &HostHandle, network: Network) -> Result<(), ClientError> {
        if self.is_null {
            return Ok(());
        }
        let name = &self.interface;
        if let Some(option) = &network.unprotected {
            return Err(ClientError::Unprotected(name.clone(), option.clone()));
        }
        let links = self.links()?;
        let servers = self.servers(&links);
        let wants = routing::wants(&resolved(&network, &self.known), &servers, self.own);
        let wants = wants.map_err(|routing::TooMany| ClientError::TooManyRoutes(name.clone()))?;
        let configured = self.closed.as_ref().map(|closed| &closed.configured);
        let configured = configured.map(|closed| routing::closed_around(closed, &servers, self.own));
        let wants = guarded(wants, configured.as_ref());
        let mtu = network.mtu.map_or(Ok(()), |mtu| set_mtu(name, mtu));
        let changed = host.change(name, &self.wants, &wants);
        self.wants = wants;
        let is_pushed = !network.dns.dhcp.is_empty() || !network.dns.servers.is_empty();
        if self.name_servers.is_none() && is_pushed && !network.dns.is_off {
            tracing::warn!(
                "interface {name}: name servers are not set: a daemon does that if root starts it, without --no-machine"
            );
        }
        if let Some(name_servers) = &self.name_servers {
            let (request, wrong) = Request::of(name, &network.dns);
            for name in wrong {
                tracing::warn!("{name:?} is no name of a domain, and is left out");
            }
            if let Err(error) = name_servers.set(request) {
                tracing::warn!("interface {name}: name servers are not set: {error}");
            }
        }
        self.network = Some(network);
        if let Err(error) = changed {
            let mut netlink = Netlink::open().map_err(|error| NetlinkError::new("rtnetlink", &error))?;
            let has_ipv6 = links.iter().any(is_global_ipv6);
            if routing::leaves_in_clear(&self.wants, &netlink.rules()?, &netlink.routes()?, has_ipv6) {
                return Err(ClientError::Clear(name.clone(), error));
            }
            tracing::error!("interface {name}: {error}");
        }
        if let Err(error) = mtu {
            tracing::error!("interface {name}: {error}");
        }
        Ok(())
    }
}

/// The network with the routes to names whose addresses are known.
pub(super) fn resolved(network: &Network, known: &Known) -> Network {
    let is_near = |gateway| network.is_near(gateway, network.told.gateway.as_ref());
    let (mut tunnel, mut outside) = (network.tunnel.clone(), network.outside.clone());
    network.named.resolve(known, is_near, &mut tunnel, &mut outside);
    outside.retain(|prefix| tunnel.keys().all(|(inside, _)| inside != prefix));
    Network { tunnel, outside, ..network.clone() }
}

/// Whether a packet with this address leaves the local link.
fn is_global_ipv6(address: &IpNet) -> bool {
    matches!(address.addr(), IpAddr::V6(it) if !it.is_loopback() && !it.is_unicast_link_local())
}

/// The same, with what stays closed without the interface: what a daemon has closed, and its routes. The rules are those of `wants`, which
/// a server may have changed.
pub(super) fn guarded(mut wants: Wants, closed: Option<&Wants>) -> Wants {
    let Some(closed) = closed else { return wants };
    wants.closed.extend(closed.closed.iter().copied());
    wants.closed.extend(wants.routes.iter().copied().filter(|(route, _)| route.prefix_len() != 0));
    wants.left_in = closed.left_in;
    if let Some(tables) = wants.left_in {
        let networks = wants.addresses.iter().map(IpNet::trunc);
        let networks = networks.filter(|net| net.prefix_len() != net.max_prefix_len());
        let routes =
            wants.routes.iter().filter(|(route, table)| *table == MAIN_TABLE && route.prefix_len() != 0);
        let inside: BTreeSet<IpNet> = routes.map(|(route, _)| *route).chain(networks).collect();
        // The next daemon finds these in the note.
        wants.closed.extend(inside.iter().flat_map(|net| [(*net, MAIN_TABLE), (*net, tables.note)]));
    }
    wants
}

pub(super) fn set_mtu(name: &str, mtu: u32) -> Result<(), NetlinkError> {
    host::change_link(name, &[LinkChange { mtu: Some(mtu), ..LinkChange::default() }])
}

/// Whether an interface drops what comes from addresses that another one leads to. What a server sends has no mark, so the kernel would
/// look into the tunnel for its address: then that address must lead outside for all packets.
fn is_filtered_strictly(own: &str) -> bool {
    let value = |name: &str| -> u8 {
        let text = std::fs::read_to_string(Path::new(INTERFACES).join(name).join("rp_filter"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let all = value("all");
    let names = std::fs::read_dir(INTERFACES).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| !["all", "default", "lo", own].contains(&name.as_str()))
        .any(|name| value(&name).max(all) == 1)
}
