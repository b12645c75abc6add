//! What stays closed of `interfaces openvpn` while an interface is not there, or its server has said nothing yet.

use super::client_network::Closed;
use super::options::Own;
use super::routing::{self, Servers};
use super::tree::disk;
use crate::host::Own as Number;
use crate::host::netlink::MAIN_TABLE;
use crate::host::wants::Wants;
use config::Settings;
use config::import::Files;
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Addresses, Destination};
use config::settings::openvpn::{Mode, OpenVpn as Wanted};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What is closed for an interface that is made; `before`: what the host had for it.
pub(super) fn of(name: &str, wanted: &Wanted, before: Option<Wants>) -> Closed {
    let configured = configured(name, wanted);
    // An interface that is no client has no server that says what is closed.
    let left = before.filter(|_| wanted.mode == Mode::Client).map(|wants| wants.without_interface());
    Closed { configured, left: left.unwrap_or_default() }
}

/// What is closed for the interfaces of a configuration, by their names.
pub(crate) fn all(settings: &Settings) -> BTreeMap<String, Wants> {
    settings.openvpn.iter().map(|(name, wanted)| (name.clone(), configured(name, wanted))).collect()
}

/// What the configuration says: the network of the tunnel, what is routed into it, and its default route. It says so also while the interface
/// cannot be made, for example because a file that it names is missing.
pub(super) fn configured(name: &str, wanted: &Wanted) -> Wants {
    let files: &dyn Files = &disk();
    let settings = &wanted.profile.read(files).settings;
    if wanted.mode == Mode::Server {
        let closed = networks(settings).map(|network| (network, MAIN_TABLE)).collect();
        return Wants { closed, ..Wants::default() };
    }
    let number = routing::number(name);
    let mut wants = routed(settings, number);
    wants.left_in = (wanted.mode == Mode::Client).then(|| routing::left_in(number));
    wants
}

/// The warning if the name of a server cannot be resolved while the default route is closed.
pub(super) fn cut_off(name: &str, wanted: &Wanted, resolvers: &[IpAddr]) -> Option<String> {
    let files: &dyn Files = &disk();
    let loaded = wanted.profile.load(files).ok()?;
    let mut remotes = loaded.settings.connections.iter().filter_map(|it| it.remote.as_ref());
    let host = remotes.find(|remote| remote.parse::<IpAddr>().is_err())?;
    let Wants { closed, onward, .. } = configured(name, wanted);
    let is_closed = |resolver: &IpAddr| {
        let holds = |(prefix, _): &(IpNet, u32)| prefix.contains(resolver);
        closed.iter().any(|it| it.0.prefix_len() == 0 && holds(it)) && !onward.iter().any(holds)
    };
    let resolver = resolvers.iter().find(|it| !it.is_loopback() && is_closed(it))?;
    let route = match resolver {
        IpAddr::V4(address) => format!("route {address} 255.255.255.255 net_gateway"),
        IpAddr::V6(address) => format!("route-ipv6 {address}/128 net_gateway_ipv6"),
    };
    Some(format!(
        "interfaces openvpn {name}: the address of {host} cannot be resolved while the tunnel is down, unless the resolver \
         {resolver} is on a link of this machine\n  fix: set interfaces openvpn {name} openvpn-option '{route}'"
    ))
}

/// What the settings of a client or a site lead into its tunnel.
fn routed(settings: &OpenVpn, number: u32) -> Wants {
    let addresses: BTreeSet<_> = { settings.connections.iter() }
        .filter_map(|connection| connection.remote.as_ref()?.parse().ok())
        .collect();
    let servers = Servers { addresses: &addresses, passed: false, links: &[] };
    let own = Own {
        addresses: settings.device.addresses,
        ipv6: settings.device.ipv6,
        routing: settings.routing.clone(),
        block_ipv6: settings.device.block_ipv6,
        no_addresses: settings.device.is_by_script,
        ..Own::default()
    };
    let number =
        Number { table: number, mark: settings.process.mark.filter(|mark| *mark != 0).unwrap_or(number) };
    // More routes than the kernel is given are refused when the interface is made.
    let Ok(mut wants) = routing::wants(&own.network(&[]), &servers, number) else { return Wants::default() };
    let routes = std::mem::take(&mut wants.routes);
    wants.closed.extend(routes.into_iter().filter(|(route, _)| route.prefix_len() != 0));
    let networks = std::mem::take(&mut wants.addresses).into_iter().map(|address| address.trunc());
    wants.closed.extend(networks.map(|network| (network, MAIN_TABLE)));
    wants.metrics.clear();
    wants
}

/// The network of a server, and what is routed into it.
fn networks(settings: &OpenVpn) -> impl Iterator<Item = IpNet> + '_ {
    let own = match settings.device.addresses {
        Some(Addresses::Subnet(address)) => Some(IpNet::V4(address.trunc())),
        Some(Addresses::Peer(_, remote)) => Ipv4Net::new(remote, 32).ok().map(IpNet::V4),
        None => None,
    };
    let own6 = settings.device.ipv6.map(|ipv6| IpNet::V6(ipv6.local.trunc()));
    let routes = settings.routing.routes.iter().filter_map(|route| match &route.destination {
        Destination::Network(network) => Some(network.trunc()),
        _ => None,
    });
    own.into_iter().chain(own6).chain(routes).filter(|network| network.prefix_len() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::Rule;
    use config::{Settings, parse};

    fn wanted(lines: &[&str]) -> Wanted {
        let base = "set pki ca ca certificate AAAA\nset pki certificate it certificate AAAA\n\
             set pki certificate it private key AAAA\nset interfaces openvpn vtun0 tls ca-certificate ca\n\
             set interfaces openvpn vtun0 tls certificate it\n";
        let lines: String =
            lines.iter().map(|line| format!("set interfaces openvpn vtun0 {line}\n")).collect();
        let (mut all, _) = Settings::new(&parse(&(base.to_owned() + &lines)).expect("right")).expect("right");
        all.openvpn.remove("vtun0").expect("it is there")
    }

    fn prefixes(wants: &Wants, table: u32) -> Vec<String> {
        let closed = wants.closed.iter().filter(|(_, of)| *of == table);
        closed.map(|(network, _)| network.to_string()).collect()
    }

    const CLIENT: [&str; 3] = ["mode client", "remote-host 192.0.2.1", "replace-default-route"];

    #[test]
    fn the_networks_of_a_server_are_closed_while_it_is_not_there() {
        let wanted = wanted(&[
            "mode server",
            "server subnet 10.8.0.0/24",
            "server client anna subnet 10.4.0.0/24",
            "server push-route 10.2.0.0/24",
        ]);
        assert_eq!(prefixes(&configured("vtun0", &wanted), MAIN_TABLE), ["10.4.0.0/24", "10.8.0.0/24"]);
    }

    #[test]
    fn the_default_route_of_a_client_is_closed_before_it_is_there() {
        let lines = [
            "openvpn-option 'mark 9'",
            "openvpn-option 'route 192.0.2.0 255.255.255.252'",
            "openvpn-option 'route 192.0.2.53 255.255.255.255 net_gateway'",
        ];
        let wants = configured("vtun0", &wanted(&[&CLIENT[..], &lines].concat()));
        let table = routing::number("vtun0");
        assert_eq!(prefixes(&wants, table), ["0.0.0.0/0"]);
        let leads = Rule::NotMarked { v6: false, mark: 9, table };
        assert_eq!(wants.rules, [leads, Rule::MainBefore { v6: false, mark: 9 }].into());
        assert_eq!(wants.onward, [("192.0.2.53/32".parse().expect("literal"), table)].into());
        // The server is reached without the tunnel.
        assert_eq!(prefixes(&wants, MAIN_TABLE), ["192.0.2.0/32", "192.0.2.2/31"]);
        assert!(wants.routes.is_empty() && wants.addresses.is_empty(), "{wants:?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_opens_nothing() {
        for line in ["openvpn-option 'tls-crypt /nowhere/key'", "openvpn-option 'crl-verify /nowhere/crl'"] {
            let lines = [&CLIENT[..], &[line]].concat();
            let wanted = wanted(&lines);
            assert!(wanted.profile.load(&disk()).is_err(), "{line}");
            assert_eq!(configured("vtun0", &wanted), configured("vtun0", &self::wanted(&CLIENT)), "{line}");
        }
        let server = ["mode server", "server subnet 10.8.0.0/24", "openvpn-option 'tls-crypt /nowhere/key'"];
        assert_eq!(prefixes(&configured("vtun0", &wanted(&server)), MAIN_TABLE), ["10.8.0.0/24"]);
    }

    #[test]
    fn a_resolver_behind_the_default_route_is_named_with_its_fix() {
        let named = ["mode client", "remote-host vpn.example.org", "replace-default-route"];
        let resolvers = ["192.0.2.53".parse().expect("literal")];
        let text = cut_off("vtun0", &wanted(&named), &resolvers).expect("it cannot be resolved");
        let route = "openvpn-option 'route 192.0.2.53 255.255.255.255 net_gateway'";
        assert!(text.ends_with(&format!("\n  fix: set interfaces openvpn vtun0 {route}")), "{text}");
        assert_eq!(cut_off("vtun0", &wanted(&[&named[..], &[route]].concat()), &resolvers), None);
        assert_eq!(cut_off("vtun0", &wanted(&CLIENT), &resolvers), None, "an address");
        assert_eq!(cut_off("vtun0", &wanted(&named[..2]), &resolvers), None, "no default route");
    }

    #[test]
    fn what_a_server_has_pushed_stays_closed_for_a_client_only() {
        let before = configured("vtun0", &wanted(&CLIENT));
        let client = wanted(&CLIENT[..2]);
        let table = routing::number("vtun0");
        let left = of("vtun0", &client, Some(before.clone())).left;
        assert_eq!(
            (prefixes(&left, table), left.rules),
            (vec!["0.0.0.0/0".to_owned()], before.rules.clone())
        );
        let server = wanted(&["mode server", "server subnet 10.8.0.0/24"]);
        assert_eq!(of("vtun0", &server, Some(before)).left, Wants::default());
    }
}
