//! What the WireGuard interfaces of a configuration need of the machine.

use crate::daemon::needs::Needs;
use crate::service::Requirements;
use config::Settings;
use config::settings::WireGuard;
use crypto::Cipher;
use ipnet::IpNet;

/// Of all interfaces.
pub fn requirements(settings: &Settings) -> Requirements {
    let interfaces = &settings.wireguard;
    let mut needs = Needs::default();
    for (name, interface) in interfaces {
        needs.forwarded.extend(beyond(interface).map(|prefix| (name.clone(), prefix)));
    }
    if let Some(enrollment) = &settings.enrollment
        && interfaces.get(&enrollment.interface).is_some_and(|it| !it.disable)
    {
        // Head office hears of it before the first branch has joined.
        let behind = enrollment.branches.values().flat_map(|branch| &branch.networks);
        let networks = enrollment.networks.iter().chain(behind);
        needs.forwarded.extend(networks.map(|prefix| (enrollment.interface.clone(), *prefix)));
    }
    Requirements {
        served: vec![(interfaces.len(), "WireGuard interface")],
        ports: interfaces.values().filter(|it| !it.disable).filter_map(|interface| interface.port).collect(),
        ciphers: (!interfaces.is_empty()).then(|| Cipher::ChaCha20Poly1305.into()).into_iter().collect(),
        needs,
    }
}

/// What is not in the interface's own network and yet is not everything: a site behind a peer. Peers that call us, when there
/// are several, have something to say to each other or to what is behind us.
fn beyond(interface: &WireGuard) -> impl Iterator<Item = IpNet> + '_ {
    let own = |prefix: &IpNet| interface.addresses.iter().any(|address| address.trunc().contains(prefix));
    let is_hub = interface.peers.len() > 1
        && interface.peers.values().any(|peer| peer.endpoint.is_none() && peer.host.is_none());
    let prefixes = interface.peers.values().flat_map(|peer| peer.allowed_ips.iter().copied());
    let is_host = |prefix: &IpNet| prefix.prefix_len() == prefix.max_prefix_len();
    let sought = prefixes
        .filter(move |prefix| prefix.prefix_len() != 0 && (is_hub || (!own(prefix) && !is_host(prefix))));
    sought.filter(|_| !interface.disable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::sample::{C, wireguard};

    fn forwarded(lines: &[&str]) -> Vec<String> {
        let needs = requirements(&wireguard(lines)).needs;
        needs.forwarded.into_iter().map(|(name, prefix)| format!("{name} {prefix}")).collect()
    }

    #[test]
    fn a_site_needs_forwarding_and_a_client_does_not() {
        let called = ["peer b address 192.0.2.2", "peer b port 5"];
        let with = |more: &str| forwarded(&[&called[..], &[more]].concat());
        assert!(with("peer b allowed-ips 0.0.0.0/0").is_empty());
        assert!(with("peer b allowed-ips 10.1.0.2/32").is_empty());
        assert!(with("peer b allowed-ips 10.1.0.0/24").is_empty());
        assert_eq!(with("peer b allowed-ips 10.2.0.0/24"), ["wg0 10.2.0.0/24"]);
        assert_eq!(with("peer b allowed-ips 2001:db8::/48"), ["wg0 2001:db8::/48"]);
    }

    #[test]
    fn peers_that_call_are_there_for_each_other() {
        let one = ["peer b allowed-ips 10.1.0.2/32"];
        assert!(forwarded(&one).is_empty());
        let key = format!("peer c public-key {C}");
        let two = [one[0], &key, "peer c allowed-ips 10.1.0.3/32"];
        assert_eq!(forwarded(&two).len(), 2);
        assert!(forwarded(&[&two[..], &["disable"]].concat()).is_empty());
    }

    #[test]
    fn head_office_needs_forwarding_before_a_branch_has_joined() {
        let text = |more: &str| {
            format!(
                "set interfaces wireguard wg0 address 10.255.0.1/24\nset interfaces wireguard wg0 port 51820\n\
                 set interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n\
                 set service enrollment address 198.51.100.1\nset service enrollment interface wg0\n{more}"
            )
        };
        let needed = |more: &str| {
            let tree = config::parse(&text(more)).expect("right");
            let found = requirements(&Settings::new(&tree).expect("right").0).needs.forwarded;
            found.into_iter().map(|(_, prefix)| prefix.to_string()).collect::<Vec<_>>()
        };
        assert!(needed("").is_empty());
        let branch = "set service enrollment network 10.1.0.0/24\n\
                      set service enrollment branch berlin address 10.255.0.2\n\
                      set service enrollment branch berlin network 10.2.0.0/24\n";
        assert_eq!(needed(branch), ["10.1.0.0/24", "10.2.0.0/24"]);
    }

    #[test]
    fn an_interface_has_one_port_and_one_cipher() {
        let found = requirements(&wireguard(&["port 7", "peer b allowed-ips 10.1.0.2/32"]));
        assert_eq!((found.ports, found.ciphers.len()), (vec![7], 1));
        let disabled = ["port 7", "disable", "peer b allowed-ips 10.1.0.2/32"];
        assert!(requirements(&wireguard(&disabled)).ports.is_empty());
        assert_eq!(
            requirements(&Settings::default()),
            Requirements { served: vec![(0, "WireGuard interface")], ..Requirements::default() }
        );
    }
}
