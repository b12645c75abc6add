//! Warnings about valid settings that are seldom intended.

use super::{Reader, Settings, WireGuard};
use ipnet::IpNet;
use std::collections::HashMap;

/// The MTU that fits into 1500 bytes outside over IPv4: 60 bytes are added, and 80 over IPv6.
const FITS: u32 = 1440;

impl Reader {
    /// Warns of settings that do not work on most networks.
    pub(super) fn hints(&mut self, settings: &Settings) {
        // Branches that join become peers.
        let enrolls = |name: &String| settings.enrollment.as_ref().is_some_and(|it| it.interface == *name);
        let lonely = settings.wireguard.iter().filter(|(_, interface)| interface.peers.is_empty());
        for (name, _) in lonely.filter(|(name, _)| !enrolls(name)) {
            self.warn(format!("interfaces wireguard {name} has no peer"));
        }
        for (name, interface) in settings.wireguard.iter().filter(|(_, interface)| interface.mtu > FITS) {
            let outside = interface.mtu + 80;
            self.warn(format!(
                "interfaces wireguard {name} mtu {}: packets of this size need {outside} bytes outside, and most networks carry \
                 1500: they are fragmented or lost; unless all links carry more: set interfaces wireguard {name} mtu 1420",
                interface.mtu
            ));
        }
        self.shared_prefixes(settings);
        for (name, peer) in &settings.ipsec.peers {
            for (number, tunnel) in &peer.tunnels {
                let same = |prefix: &&IpNet| tunnel.remote.prefixes.contains(*prefix);
                let Some(prefix) = tunnel.local.prefixes.iter().find(same) else { continue };
                self.warn(format!(
                    "vpn ipsec site-to-site peer {name} tunnel {number}: {prefix} is both local and remote, so packets to it \
                     do not enter the tunnel; use different networks on the two sides: set vpn ipsec site-to-site peer {name} tunnel \
                     {number} remote prefix PREFIX"
                ));
            }
        }
    }

    /// Warns of prefixes that lead to two interfaces: the kernel has one route, to the first by name.
    fn shared_prefixes(&mut self, settings: &Settings) {
        let mut owners = HashMap::new();
        for (name, interface) in settings.wireguard.iter().filter(|(_, interface)| !interface.disable) {
            let (mut found, mut more) = (None, 0);
            let is_shared =
                |prefix: &IpNet| settings.failover.values().any(|group| group.prefixes.contains(prefix));
            for (peer, prefix) in routed(interface).filter(|(_, prefix)| !is_shared(prefix)) {
                // Prefixes of length 0 have a routing table for each mark.
                let mark = if prefix.prefix_len() == 0 { interface.fwmark } else { 0 };
                let owner = *owners.entry((prefix, mark)).or_insert(name);
                if owner != name && found.replace((peer, prefix, owner)).is_some() {
                    more += 1;
                }
            }
            let Some((peer, prefix, owner)) = found else { continue };
            let more = if more == 0 { String::new() } else { format!(", and {more} more like it") };
            self.warn(format!(
                "interfaces wireguard {name} peer {peer} allowed-ips {prefix}{more}: interfaces wireguard {owner} has it too, and \
                 gets the packets to it, as the first by name; to send them to one peer only: delete interfaces wireguard {name} \
                 peer {peer} allowed-ips {prefix}"
            ));
        }
    }
}

/// The prefixes that get a route of their own, with the names of their peers. What lies in the network of an address of the
/// interface is routed by the kernel.
fn routed(interface: &WireGuard) -> impl Iterator<Item = (&String, IpNet)> {
    let is_near = |prefix: &IpNet| interface.addresses.iter().any(|it| it.trunc().contains(prefix));
    let all =
        interface.peers.iter().flat_map(|(name, peer)| peer.allowed_ips.iter().map(move |it| (name, *it)));
    all.filter(move |(_, prefix)| !is_near(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> Vec<String> {
        let tree = crate::parse(&lines.join("\n")).unwrap_or_else(|errors| panic!("{errors:?}"));
        let (_, warnings) = Settings::new(&tree).unwrap_or_else(|errors| panic!("{errors:?}"));
        warnings
    }

    #[test]
    fn an_mtu_that_fits_no_ethernet_is_warned_of() {
        let with = |mtu: &str| {
            said(&[
                "set interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
                "set interfaces wireguard wg0 peer b public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
                "set interfaces wireguard wg0 peer b allowed-ips 10.2.0.0/24",
                &format!("set interfaces wireguard wg0 mtu {mtu}"),
            ])
        };
        assert!(with("1440").is_empty());
        let warnings = with("1500");
        assert!(warnings.len() == 1 && warnings[0].contains("need 1580 bytes outside"), "{warnings:?}");
        assert!(warnings[0].ends_with("set interfaces wireguard wg0 mtu 1420"), "{warnings:?}");
    }

    #[test]
    fn a_prefix_of_two_interfaces_is_warned_of() {
        let interface = |name: &str, more: &[&str]| {
            let set = format!("set interfaces wireguard {name}");
            let fixed = [
                "private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
                "peer b public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
                "peer b allowed-ips 10.2.0.0/24",
            ];
            let words = fixed.iter().chain(more).map(|words| format!("{set} {words}\n"));
            words.collect::<String>()
        };
        let with = |more: &[&str]| {
            let others = ["peer b allowed-ips 10.3.0.0/24", "peer b allowed-ips 0.0.0.0/0", "fwmark 5"];
            said(&[&interface("wg0", &others), &interface("wg1", more)])
        };
        let warnings = with(&[]);
        let told =
            "wg1 peer b allowed-ips 10.2.0.0/24: interfaces wireguard wg0 has it too, and gets the packets";
        assert!(warnings.len() == 1 && warnings[0].contains(told), "{warnings:?}");
        assert!(warnings[0].ends_with("delete interfaces wireguard wg1 peer b allowed-ips 10.2.0.0/24"));
        let warnings = with(&["peer b allowed-ips 10.3.0.0/24", "peer b allowed-ips 10.4.0.0/24"]);
        assert!(warnings.len() == 1 && warnings[0].contains(", and 1 more like it: "), "{warnings:?}");
        assert!(with(&["disable"]).is_empty());
        assert!(with(&["address 10.2.0.9/16"]).is_empty(), "the kernel routes it");
        // A tunnel for everything has a table for its mark.
        let near = ["address 10.2.0.9/16", "peer b allowed-ips 0.0.0.0/0", "fwmark 6"];
        assert!(with(&near).is_empty());
        assert_eq!(with(&["address 10.2.0.9/16", "peer b allowed-ips 0.0.0.0/0", "fwmark 5"]).len(), 1);
    }

    #[test]
    fn a_network_on_both_sides_is_warned_of() {
        let with = |remote: &str| {
            said(&[
                "set vpn ipsec esp-group E proposal 1 encryption aes256gcm128",
                "set vpn ipsec ike-group I proposal 1 encryption aes256gcm128",
                "set vpn ipsec ike-group I proposal 1 prf prfsha256",
                "set vpn ipsec ike-group I proposal 1 dh-group 31",
                "set vpn ipsec ike-group I key-exchange ikev2",
                "set vpn ipsec authentication psk a id 192.0.2.1",
                "set vpn ipsec authentication psk a id 192.0.2.2",
                "set vpn ipsec authentication psk a secret abc",
                "set vpn ipsec site-to-site peer b authentication mode pre-shared-secret",
                "set vpn ipsec site-to-site peer b remote-address 192.0.2.2",
                "set vpn ipsec site-to-site peer b local-address 192.0.2.1",
                "set vpn ipsec site-to-site peer b ike-group I",
                "set vpn ipsec site-to-site peer b default-esp-group E",
                "set vpn ipsec site-to-site peer b tunnel 7 local prefix 10.1.0.0/16",
                &format!("set vpn ipsec site-to-site peer b tunnel 7 remote prefix {remote}"),
            ])
        };
        let both = |warnings: &[String]| {
            warnings.iter().filter(|it| it.contains("is both local and remote")).count()
        };
        assert_eq!(both(&with("10.2.0.0/16")), 0);
        let warnings = with("10.1.0.0/16");
        assert_eq!(both(&warnings), 1, "{warnings:?}");
        assert!(warnings.iter().any(|it| it.contains("tunnel 7: 10.1.0.0/16 is ")), "{warnings:?}");
    }
}
