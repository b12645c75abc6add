//! Warnings about valid settings that are seldom intended.

use super::{Reader, Settings};
use ipnet::IpNet;

/// The MTU that fits into 1500 bytes outside over IPv4: 60 bytes are added, and 80 over IPv6.
const FITS: u32 = 1440;

impl Reader {
    /// Warns of settings that do not work on most networks.
    pub(super) fn hints(&mut self, settings: &Settings) {
        for (name, interface) in settings.wireguard.iter().filter(|(_, interface)| interface.mtu > FITS) {
            let outside = interface.mtu + 80;
            self.warn(format!(
                "interfaces wireguard {name} mtu {}: packets of this size need {outside} bytes outside, and most networks carry \
                 1500: they are fragmented or lost; unless all links carry more: set interfaces wireguard {name} mtu 1420",
                interface.mtu
            ));
        }
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
