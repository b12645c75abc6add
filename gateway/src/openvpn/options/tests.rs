//! Options of a server, as the network of a client.

use super::*;
use crate::openvpn::scripts::Environment;

fn own() -> Own {
    Own { mtu_max: 1600, ..Own::default() }
}

fn network(own: &Own, options: &[&str]) -> Network {
    own.network(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
}

fn nets<'a>(prefixes: impl IntoIterator<Item = &'a IpNet>) -> Vec<String> {
    prefixes.into_iter().map(ToString::to_string).collect()
}

fn inside(network: &Network) -> Vec<String> {
    nets(network.tunnel.keys().map(|(prefix, _)| prefix))
}

#[test]
fn the_network_of_a_server_is_read() {
    let network = network(
        &own(),
        &[
            "route 10.20.0.0 255.255.0.0",
            "route 192.0.2.7 255.255.255.255 net_gateway",
            "route-ipv6 2001:db8:1::/48",
            "topology subnet",
            "ifconfig 10.8.0.2 255.255.255.0",
            "ifconfig-ipv6 fd00:8::1000/64 fd00:8::1",
            "tun-mtu 1400",
            "peer-id 3",
        ],
    );
    assert_eq!(nets(&network.addresses), ["10.8.0.2/24", "fd00:8::1000/64"]);
    assert_eq!(inside(&network), ["10.20.0.0/16", "2001:db8:1::/48"]);
    assert_eq!(nets(&network.outside), ["192.0.2.7/32"]);
    assert_eq!((network.mtu, network.warnings.len()), (Some(1400), 0));
}

#[test]
fn without_the_subnet_topology_the_second_address_is_the_other_end() {
    let network = network(&own(), &["ifconfig 10.8.0.6 10.8.0.5", "topology net30"]);
    assert_eq!(
        (nets(&network.addresses), inside(&network)),
        (vec!["10.8.0.6/32".to_owned()], vec!["10.8.0.5/32".to_owned()])
    );
}

#[test]
fn options_that_are_malformed_are_named_and_those_that_protect_end_the_client() {
    let found = network(&own(), &["route 10.0.0.0 255.0.255.0", "dhcp-option DNS x"]);
    assert_eq!(found.unprotected.as_deref(), Some("route 10.0.0.0 255.0.255.0"));
    assert_eq!(found.warnings.len(), 2);
    assert_eq!(network(&own(), &["dhcp-option DNS x"]).unprotected, None);
    assert!(network(&own(), &["tun-mtu 9000"]).warnings[0].contains("tun-mtu-max 9000"));
}

#[test]
fn addresses_that_no_interface_can_have_are_left_out() {
    for option in ["ifconfig 127.0.0.1 255.0.0.0", "ifconfig 10.8.0.2 0.0.0.0", "ifconfig 0.0.0.0 255.0.0.0"]
    {
        let found = network(&own(), &["topology subnet", option]);
        assert!(found.addresses.is_empty() && found.warnings.len() == 1, "{option}: {found:?}");
    }
}

#[test]
fn filters_take_the_first_that_fits() {
    let filter = |action, prefix: &str| Filter { action, prefix: prefix.to_owned() };
    let filters = vec![
        filter(FilterAction::Accept, "route 10."),
        filter(FilterAction::Ignore, "route"),
        filter(FilterAction::Reject, "block-"),
    ];
    let own = Own { filters, ..own() };
    assert_eq!(own.takes("route 10.1.0.0 255.255.0.0"), Some(true));
    assert_eq!(own.takes("route 192.0.2.0 255.255.255.0"), Some(false));
    assert_eq!((own.takes("block-ipv6"), own.takes("ping 10")), (None, Some(true)));
    let own = Own { no_routes: true, ..Own::default() };
    assert_eq!(
        (own.takes("route 10.1.0.0"), own.takes("dhcp-option DNS 1.1.1.1")),
        (Some(false), Some(false))
    );
    assert_eq!(
        (own.takes("route-gateway 10.8.0.1"), own.takes("ifconfig 10.8.0.2 255.0.0.0")),
        (Some(true), Some(true))
    );
}

#[test]
fn flags_of_the_file_and_of_the_server_are_joined() {
    let redirect = Redirect { is_private: true, ipv6: true, ..Redirect::default() };
    let own = Own { routing: Routing { redirect: Some(redirect), ..Routing::default() }, ..own() };
    let found = network(&own, &["redirect-gateway def1"]).redirect.expect("both have it");
    assert!(found.ipv6 && found.def1 && !found.is_private);
    let own = Own { routing: Routing { is_by_script: true, ..own.routing }, ..own };
    assert_eq!(network(&own, &["redirect-gateway def1"]).redirect, None);
}

fn told(own: &[&str], pushed: &[&str]) -> Vec<String> {
    let options = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let of_file = config::openvpn::pushed(own.iter().copied());
    let own = Own { routing: of_file.routing, dns: of_file.dns, ..self::own() };
    let network = own.network(&options(pushed));
    let mut environment = Environment::default();
    let server = "192.168.77.2".parse().expect("literal");
    network.told.tell(&mut environment, [192, 168, 77, 254].into(), Some(server));
    environment.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Printed by a script of OpenVPN 2.6.14.
#[test]
fn a_script_is_told_what_openvpn_tells_it() {
    let found = told(
        &["route 10.88.0.0 255.255.0.0", "route 10.89.0.1 255.255.255.255 net_gateway 5"],
        &[
            "route 10.99.1.1 255.255.255.255",
            "route-ipv6 fd55::/64",
            "dhcp-option DOMAIN example.org",
            "dns server 1 address 10.9.0.1",
            "dns search-domains example.com",
            "route-gateway 10.9.0.1",
            "topology subnet",
            "ifconfig-ipv6 fd09::1000/64 fd09::1",
            "ifconfig 10.9.0.2 255.255.255.0",
        ],
    );
    let expected = "dns_search_domain_1=example.com dns_server_1_address_1=10.9.0.1 \
        foreign_option_1=dhcp-option|DOMAIN|example.org foreign_option_2=dhcp-option|DNS|10.9.0.1 \
        foreign_option_3=dhcp-option|DOMAIN-SEARCH|example.com ifconfig_ipv6_local=fd09::1000 \
        ifconfig_ipv6_netbits=64 ifconfig_ipv6_remote=fd09::1 ifconfig_local=10.9.0.2 \
        ifconfig_netmask=255.255.255.0 route_gateway_1=10.9.0.1 route_gateway_2=192.168.77.254 \
        route_gateway_3=10.9.0.1 route_ipv6_gateway_1=fd09::1 route_ipv6_network_1=fd55::/64 route_metric_2=5 \
        route_net_gateway=192.168.77.254 route_netmask_1=255.255.0.0 route_netmask_2=255.255.255.255 \
        route_netmask_3=255.255.255.255 route_network_1=10.88.0.0 route_network_2=10.89.0.1 \
        route_network_3=10.99.1.1 route_vpn_gateway=10.9.0.1";
    let expected: Vec<String> =
        expected.split_whitespace().map(|variable| variable.replace('|', " ")).collect();
    assert_eq!(found, expected);
}

/// The same, with `topology net30` and options that have no effect on Linux.
#[test]
fn options_of_dhcp_are_told_in_the_order_of_the_file_and_of_the_server() {
    let found = told(
        &["dhcp-option DOMAIN own.example", "dhcp-option NTP 1.2.3.4"],
        &["dhcp-option DNS 10.9.0.1", "dhcp-option WINS 10.9.0.9", "ifconfig 10.9.0.6 10.9.0.5"],
    );
    let expected = [
        "foreign_option_1=dhcp-option DOMAIN own.example",
        "foreign_option_2=dhcp-option NTP 1.2.3.4",
        "foreign_option_3=dhcp-option DNS 10.9.0.1",
        "foreign_option_4=dhcp-option WINS 10.9.0.9",
        "ifconfig_local=10.9.0.6",
        "ifconfig_remote=10.9.0.5",
        "route_net_gateway=192.168.77.254",
        "route_vpn_gateway=10.9.0.5",
    ];
    assert_eq!(found, expected);
}
