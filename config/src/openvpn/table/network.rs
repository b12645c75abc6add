//! The tunnel interface, its addresses, routes and name servers.

use crate::openvpn::draft::Draft;
use crate::openvpn::given::Given;
use crate::openvpn::row::{Row, harmless, served};
use crate::openvpn::settings::{Destination, DnsServer, Gateway, Ipv6Addresses, Redirect, Route, Topology};
use crate::openvpn::verdict::Wrong;
use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, SocketAddr};

const TAP: &str = "TAP devices are not served: packets are IP packets";
const TAP_FIX: &str = "use dev tun, and routes in place of a bridge";

/// Rows of the tunnel interface.
pub(super) const ROWS: &[Row] = &[
    served("dev", "NAME", "device.name", |draft, given| {
        let name = given.at(0)?;
        match name {
            _ if name.starts_with("tap") => Err(Wrong::new(TAP, TAP_FIX)),
            // The limit of Linux: 15 characters and a zero.
            _ if name.len() > 15 || name.contains(['/', ' ']) => {
                Err(given.wrong(format!("{name} is not the name of an interface")))
            }
            _ => {
                name.clone_into(&mut draft.device.name);
                Ok(())
            }
        }
    }),
    served("dev-type", "tun", "device", |draft, given| {
        if given.at(0)? == "tap" {
            return Err(Wrong::new(TAP, TAP_FIX));
        }
        given.choice(0, &[("tun", ())])?;
        draft.device_type = Some("tun".to_owned());
        Ok(())
    }),
    harmless("dev-node", "NODE", "TUN devices are opened through /dev/net/tun"),
    harmless("tun-ipv6", "", "IPv6 always passes"),
    harmless("disable-dco", "", "the data path is that of Postern"),
    served("topology", "subnet|net30|p2p", "device.topology", |draft, given| {
        let known =
            [("subnet", Topology::Subnet), ("net30", Topology::Net30), ("p2p", Topology::PointToPoint)];
        draft.device.topology = given.choice(0, &known)?;
        draft.has_topology = true;
        Ok(())
    }),
    served("ifconfig", "LOCAL REMOTE|NETMASK", "device.addresses", |draft, given| {
        draft.ifconfig = Some((given.ipv4(0)?, given.ipv4(1)?));
        Ok(())
    }),
    served("ifconfig-ipv6", "LOCAL[/LENGTH] REMOTE", "device.ipv6", |draft, given| {
        draft.device.ipv6 = Some(Ipv6Addresses { local: given.prefix6(0, 64)?, remote: given.ipv6(1)? });
        Ok(())
    }),
    served("ifconfig-noexec", "", "device.is_by_script", |draft, _| {
        draft.device.is_by_script = true;
        Ok(())
    }),
    harmless("ifconfig-nowarn", "", "addresses of the two ends are not compared"),
    served("txqueuelen", "PACKETS", "device.queue", |draft, given| {
        draft.device.queue = given.count(0)?;
        Ok(())
    }),
    served("persist-tun", "", "device.persist", |draft, _| {
        draft.device.persist = true;
        Ok(())
    }),
    served("block-ipv6", "", "device.block_ipv6", |draft, _| {
        draft.device.block_ipv6 = true;
        Ok(())
    }),
    served("passtos", "", "device.copy_ds_field", |draft, _| {
        draft.device.copy_ds_field = true;
        Ok(())
    }),
    served("route", "NETWORK [NETMASK] [GATEWAY] [METRIC]", "routing.routes", route),
    served("route-ipv6", "NETWORK/LENGTH [GATEWAY] [METRIC]", "routing.routes", route6),
    served("route-gateway", "ADDRESS", "routing.gateway", |draft, given| {
        let text = given.at(0)?;
        if text == "dhcp" {
            draft.warn("dhcp has no effect: it is for TAP devices");
            return Ok(());
        }
        draft.routing.gateway = Some(gateway(text));
        Ok(())
    }),
    served("route-ipv6-gateway", "ADDRESS", "routing.gateway_ipv6", |draft, given| {
        draft.routing.gateway_ipv6 = Some(given.ipv6(0)?);
        Ok(())
    }),
    served("route-metric", "METRIC", "routing.metric", |draft, given| {
        draft.routing.metric = Some(given.count(0)?);
        Ok(())
    }),
    served("route-table", "TABLE", "routing.table", |draft, given| {
        draft.routing.table = Some(given.count(0)?).filter(|table| *table != 0);
        Ok(())
    }),
    served("route-delay", "[SECONDS] [WAIT]", "routing.delay_seconds", |draft, given| {
        draft.routing.delay_seconds = Some(given.count_or(0, 0)?);
        Ok(())
    }),
    served("route-noexec", "", "routing.is_by_script", |draft, _| {
        draft.routing.is_by_script = true;
        Ok(())
    }),
    harmless("route-method", "METHOD", "routes are set through netlink"),
    harmless("max-routes", "NUMBER", "the number of routes has no limit, as since OpenVPN 2.4"),
    served("redirect-gateway", "[FLAG...]", "routing.redirect", |draft, given| {
        draft.routing.redirect = Some(redirect(given, false, draft.routing.redirect)?);
        Ok(())
    }),
    served("redirect-private", "[FLAG...]", "routing.redirect", |draft, given| {
        draft.routing.redirect = Some(redirect(given, true, draft.routing.redirect)?);
        Ok(())
    }),
    served("dhcp-option", "TYPE [VALUE]", "dns", dhcp_option),
    served("dns", "search-domains|server ARGUMENT...", "dns", dns),
    harmless("register-dns", "", "it is for Windows"),
    harmless("block-outside-dns", "", "it is for Windows: on Linux, name servers are set per interface"),
];

/// The gateway of a route: an address, or one of three words.
fn gateway(text: &str) -> Gateway {
    match text {
        "vpn_gateway" => Gateway::Tunnel,
        "net_gateway" | "net_gateway_ipv6" => Gateway::Network,
        "remote_host" => Gateway::Remote,
        _ => text.parse().map_or_else(|_| Gateway::Host(text.to_owned()), Gateway::Address),
    }
}

/// An argument of a route, of which `default` is none.
fn set<'a>(given: &'a Given<'_>, index: usize) -> Option<&'a str> {
    given.get(index).filter(|text| *text != "default" && !text.is_empty())
}

fn metric(given: &Given<'_>, index: usize) -> Result<Option<u32>, Wrong> {
    set(given, index).map(|_| given.count(index)).transpose()
}

fn route(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let mask = match set(given, 1) {
        Some(_) => given.ipv4(1)?,
        None => [255; 4].into(),
    };
    let text = given.at(0)?;
    let destination = match text {
        "remote_host" => Destination::Remote,
        "vpn_gateway" | "net_gateway" => {
            let reason = format!("{text} is a gateway, and no network");
            return Err(given.wrong(reason));
        }
        _ => match text.parse() {
            Ok(address) => {
                let net = Ipv4Net::with_netmask(address, mask)
                    .map_err(|_| given.wrong(format!("{mask} is not a netmask")))?;
                if net.addr() != net.network() {
                    draft.warn(format!("the network is {}", net.trunc()));
                }
                Destination::Network(IpNet::V4(net.trunc()))
            }
            Err(_) if is_host(text) => Destination::Host(text.to_owned()),
            Err(_) => return Err(given.wrong(format!("{text} is not an IPv4 network"))),
        },
    };
    let route =
        Route { destination, gateway: set(given, 2).map(gateway), metric: metric(given, 3)?, table: None };
    draft.routing.routes.push(route);
    Ok(())
}

/// Whether a text can be a host name: it has a letter.
fn is_host(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.bytes().all(is_part) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn route6(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let net = given.prefix6(0, 128)?;
    if net.addr() != net.network() {
        draft.warn(format!("the network is {}", net.trunc()));
    }
    draft.routing.routes.push(Route {
        destination: Destination::Network(IpNet::V6(net.trunc())),
        gateway: set(given, 1).map(gateway),
        metric: metric(given, 2)?,
        table: None,
    });
    Ok(())
}

fn redirect(given: &Given<'_>, is_private: bool, before: Option<Redirect>) -> Result<Redirect, Wrong> {
    // A second directive adds flags.
    let mut redirect = before.unwrap_or(Redirect { is_private: true, ..Redirect::default() });
    redirect.is_private &= is_private;
    for flag in given.from(0) {
        match flag {
            "def1" => redirect.def1 = true,
            "local" => redirect.local = true,
            "autolocal" => redirect.autolocal = true,
            "bypass-dhcp" => redirect.bypass_dhcp = true,
            "bypass-dns" => redirect.bypass_dns = true,
            "block-local" => redirect.block_local = true,
            "ipv6" => redirect.ipv6 = true,
            "!ipv4" => redirect.not_ipv4 = true,
            _ => {
                let fix =
                    "flags are def1, local, autolocal, bypass-dhcp, bypass-dns, block-local, ipv6, !ipv4";
                return Err(Wrong::new(format!("{flag} is not a flag of it"), fix));
            }
        }
    }
    Ok(redirect)
}

fn dhcp_option(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let words = given.from(0).collect::<Vec<_>>().join(" ");
    draft.dns.options.push(format!("dhcp-option {words}"));
    match given.at(0)?.to_ascii_uppercase().as_str() {
        "DNS" | "DNS6" => {
            let address: IpAddr = given.parse(1, "an IP address")?;
            draft.dns.dhcp.push(address);
        }
        "DOMAIN" | "DOMAIN-SEARCH" | "ADAPTER_DOMAIN_SUFFIX" => draft.dns.search.push(given.owned(1)?),
        other => {
            let text = format!("{other} has no effect on Linux, except in the environment of scripts");
            draft.warn(text);
        }
    }
    Ok(())
}

fn dns(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let rest = |index: usize| given.from(index).map(str::to_owned).collect::<Vec<_>>();
    if given.at(0)? == "search-domains" {
        draft.dns.search.extend(rest(1));
        draft.dns.search_of_dns.extend(rest(1));
        return Ok(());
    }
    given.choice(0, &[("server", ()), ("search-domains", ())])?;
    let priority = given.number(1, i8::MIN..=i8::MAX)?;
    let option = given.owned(2)?;
    let mut server = DnsServer { priority, ..DnsServer::default() };
    let servers = &mut draft.dns.servers;
    if let Some(index) = servers.iter().position(|known| known.priority == priority) {
        server = servers.remove(index);
    }
    match option.as_str() {
        "address" => {
            server.addresses.clear();
            for text in given.from(3) {
                server
                    .addresses
                    .push(dns_address(text).ok_or_else(|| given.wrong(format!("{text} is not an address")))?);
            }
        }
        "resolve-domains" => server.domains.extend(rest(3)),
        "dnssec" => {
            given.choice(3, &[("yes", ()), ("no", ()), ("optional", ())])?;
            server.dnssec = Some(given.owned(3)?);
        }
        "transport" => {
            given.choice(3, &[("DoH", ()), ("DoT", ()), ("plain", ())])?;
            server.transport = Some(given.owned(3)?);
        }
        "sni" => server.server_name = Some(given.owned(3)?),
        other => return Err(given.wrong(format!("{other} is not an option of a name server"))),
    }
    servers.push(server);
    servers.sort_by_key(|server| server.priority);
    Ok(())
}

/// An address, or one with a port: `192.0.2.1:53`, `[2001:db8::1]:53`.
fn dns_address(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Some((socket.ip(), Some(socket.port())));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    Some((bare.parse().ok()?, None))
}
