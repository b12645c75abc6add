//! Whether the resolver of the peers' names can be reached.
//!
//! Protected networks are closed before the addresses of peers are known. With a tunnel for everything, that may close the
//! path to the resolver.

use crate::resolver;
use config::Settings;
use config::settings::ipsec::{Authentication, Peer, Remote, Revocation};
use std::net::IpAddr;

/// The warning if names cannot be resolved while a tunnel for everything is down.
pub fn cut_off(settings: &Settings) -> Option<String> {
    cut_off_from(settings, &resolver::of_this_machine())
}

fn cut_off_from(settings: &Settings, resolvers: &[IpAddr]) -> Option<String> {
    let peers = &settings.ipsec.peers;
    let prefixes = || {
        let tunnels = peers.values().flat_map(|peer| peer.tunnels.values());
        tunnels.flat_map(|tunnel| tunnel.remote.prefixes.iter())
    };
    let is_excepted = |resolver: &&IpAddr| settings.ipsec.passthrough.iter().any(|it| it.contains(*resolver));
    let is_protected =
        |resolver: &&IpAddr| prefixes().any(|it| it.prefix_len() == 0 && it.contains(*resolver));
    let (name, why) = peers.iter().find_map(|(name, peer)| Some((name, asks(peer)?)))?;
    let missing: Vec<String> = { resolvers.iter() }
        .filter(|resolver| !resolver.is_loopback() && is_protected(resolver) && !is_excepted(resolver))
        .map(|resolver| {
            format!("set vpn ipsec passthrough {resolver}/{}", if resolver.is_ipv6() { 128 } else { 32 })
        })
        .collect();
    let fix = missing.join("\n       ");
    (!missing.is_empty()).then(|| {
        format!(
            "vpn ipsec site-to-site peer {name}: {why} cannot be resolved while the tunnel for everything is down, unless the \
             resolver is on a link of this machine\n  fix: {fix}"
        )
    })
}

/// Which name of a peer must be resolved for it to be served.
fn asks(peer: &Peer) -> Option<&'static str> {
    let is_named = peer.remote_addresses.iter().any(|remote| matches!(remote, Remote::Name(_)));
    let fetches =
        matches!(&peer.authentication, Authentication::X509(x509) if x509.revocation != Revocation::Relaxed);
    if is_named {
        return Some("its name");
    }
    fetches.then_some("the name of a server of revocation lists")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolver::nameservers;

    const RESOLVERS: &str = "# of DHCP\nsearch example\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\n\
         nameserver 2001:db8::53 # the second\nnameserver\nnameserver 127.0.0.53\n";

    fn said(lines: &[&str]) -> Option<String> {
        let always = [
            "ike-group I proposal 1 encryption aes256gcm128",
            "ike-group I proposal 1 prf prfsha256",
            "ike-group I proposal 1 dh-group 19",
            "esp-group E proposal 1 encryption aes256gcm128",
            "authentication psk p id a.example",
            "authentication psk p id b.example",
            "authentication psk p secret 'a secret of both sites'",
            "site-to-site peer b authentication mode pre-shared-secret",
            "site-to-site peer b authentication local-id a.example",
            "site-to-site peer b authentication remote-id b.example",
            "site-to-site peer b ike-group I",
            "site-to-site peer b default-esp-group E",
            "site-to-site peer b local-address any",
            "site-to-site peer b tunnel 1 local prefix 10.1.0.0/24",
        ];
        let line = |line: &&str| format!("set vpn ipsec {line}\n");
        let text: String = always.iter().chain(lines).map(line).collect();
        let tree = config::parse(&text).expect("the grammar knows it");
        let (settings, _) = Settings::new(&tree).expect("it is right");
        cut_off_from(&settings, &nameservers(RESOLVERS))
    }

    #[test]
    fn the_lines_to_type_are_said_where_the_resolver_is_behind_the_tunnel() {
        let named = "site-to-site peer b remote-address b.example";
        let all = "site-to-site peer b tunnel 1 remote prefix 0.0.0.0/0";
        let text = said(&[named, all]).expect("it cannot be resolved");
        assert!(text.contains("peer b: its name cannot be resolved"), "{text}");
        assert!(text.ends_with("\n  fix: set vpn ipsec passthrough 192.0.2.53/32"), "{text}");
        assert_eq!(said(&[named, all, "passthrough 192.0.2.0/24"]), None);
        let other = "passthrough 198.51.100.0/24";
        assert!(said(&[named, all, other]).is_some(), "the resolver is not what is excepted");
        assert_eq!(said(&[named, "site-to-site peer b tunnel 1 remote prefix 10.2.0.0/24"]), None);
        assert_eq!(said(&["site-to-site peer b remote-address 192.0.2.2", all]), None);
    }
}
