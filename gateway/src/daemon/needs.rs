//! Whether the machine has what the configuration needs: the kernel forwards nothing by default, and an address of ours may be
//! another machine's. Nothing else would say so.

use crate::api::model::Advice;
use crate::ipsec;
use config::Settings;
use config::settings::WireGuard;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};

/// Prefixes named in a warning; more are only counted.
const NAMED: usize = 3;

/// What a configuration needs of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// What must be forwarded: from which interface of ours, for which prefix beyond this machine.
    forwarded: BTreeSet<(String, IpNet)>,
    /// Addresses that must be ours, by the peers that are called from them.
    local: BTreeMap<IpAddr, String>,
}

impl Needs {
    /// What a configuration needs.
    pub fn new(settings: &Settings) -> Self {
        let mut needs = BTreeSet::new();
        for (name, interface) in &settings.wireguard {
            needs.extend(beyond(interface).map(|prefix| (name.clone(), prefix)));
        }
        let tunnels = settings.ipsec.peers.values().flat_map(|peer| peer.tunnels.values());
        let local = tunnels.flat_map(|tunnel| &tunnel.local.prefixes).filter(|prefix| !is_host(prefix));
        needs.extend(local.map(|prefix| (ipsec::NAME.to_owned(), *prefix)));
        let local =
            settings.ipsec.peers.iter().filter_map(|(name, peer)| Some((peer.local_address?, name.clone())));
        Self { forwarded: needs, local: local.collect() }
    }

    /// What the machine has not.
    pub fn warnings(&self) -> Vec<Advice> {
        let foreign = self.local.iter().filter(|(address, _)| !is_ours(**address));
        let foreign = foreign.map(|(address, peer)| Advice {
            what: format!(
                "vpn ipsec site-to-site peer {peer} local-address {address}: this machine does not have that address, so that \
                 nothing is sent to the peer"
            ),
            fix: format!(
                "set vpn ipsec site-to-site peer {peer} local-address to one of: ip -brief address; or any; or give the \
                 machine the address"
            ),
        });
        self.not_forwarded(forwards).into_iter().chain(foreign).collect()
    }

    /// What the kernel does not forward, a warning for each version of IP.
    fn not_forwarded(&self, forwards: impl Fn(&str, bool) -> bool) -> Vec<Advice> {
        let kept = |v6: bool| {
            let of = self.forwarded.iter().filter(|(_, prefix)| matches!(prefix, IpNet::V6(_)) == v6);
            let kept: BTreeSet<IpNet> =
                of.filter(|(name, _)| !forwards(name, v6)).map(|(_, prefix)| *prefix).collect();
            (!kept.is_empty()).then(|| advice(v6, &kept))
        };
        [false, true].into_iter().filter_map(kept).collect()
    }
}

/// Whether the machine has an address: only then can a socket have it.
fn is_ours(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

/// What is not in the interface's own network and yet is not everything: a site behind a peer. Peers that call us, when there
/// are several, have something to say to each other or to what is behind us.
fn beyond(interface: &WireGuard) -> impl Iterator<Item = IpNet> + '_ {
    let own = |prefix: &IpNet| interface.addresses.iter().any(|address| address.trunc().contains(prefix));
    let is_hub = interface.peers.len() > 1 && interface.peers.values().any(|peer| peer.endpoint.is_none());
    let prefixes = interface.peers.values().flat_map(|peer| peer.allowed_ips.iter().copied());
    let sought = prefixes
        .filter(move |prefix| prefix.prefix_len() != 0 && (is_hub || (!own(prefix) && !is_host(prefix))));
    sought.filter(|_| !interface.disable)
}

fn is_host(prefix: &IpNet) -> bool {
    prefix.prefix_len() == prefix.max_prefix_len()
}

fn advice(v6: bool, prefixes: &BTreeSet<IpNet>) -> Advice {
    let setting = if v6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
    let mut named: Vec<String> = prefixes.iter().take(NAMED).map(IpNet::to_string).collect();
    if prefixes.len() > NAMED {
        named.push(format!("{} more", prefixes.len() - NAMED));
    }
    Advice {
        what: format!(
            "{setting} is 0: the kernel forwards no packets between the tunnels ({}) and other machines",
            named.join(", ")
        ),
        fix: format!(
            "sysctl -w {setting}=1; to keep it: echo {setting}=1 > /etc/sysctl.d/90-postern{}.conf",
            if v6 { "-ipv6" } else { "" }
        ),
    }
}

/// Whether packets are forwarded that come from an interface, and from some other than it and the loopback.
fn forwards(interface: &str, v6: bool) -> bool {
    let folder = format!("/proc/sys/net/ipv{}/conf", if v6 { 6 } else { 4 });
    let of = |name: &str| fs::read_to_string(format!("{folder}/{name}/forwarding"));
    // Where there is no such file, in a container perhaps, nothing is known.
    let Ok(ours) = of(interface) else { return true };
    let others = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut others = others.filter_map(|entry| entry.file_name().into_string().ok());
    let counts = |name: &String| !["all", "default", "lo", interface].contains(&name.as_str());
    let is_on = |text: &str| text.trim() != "0";
    is_on(&ours) && others.any(|name| counts(&name) && of(&name).is_ok_and(|text| is_on(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::sample::{C, wireguard};

    fn needs(lines: &[&str]) -> Needs {
        Needs::new(&wireguard(lines))
    }

    fn said(needs: &Needs) -> Vec<String> {
        needs.not_forwarded(|_, _| false).into_iter().map(|advice| advice.what + "; " + &advice.fix).collect()
    }

    #[test]
    fn a_site_needs_forwarding_and_a_client_does_not() {
        let called = ["peer b address 192.0.2.2", "peer b port 5"];
        let with = |more: &str| said(&needs(&[&called[..], &[more]].concat()));
        assert!(with("peer b allowed-ips 0.0.0.0/0").is_empty());
        assert!(with("peer b allowed-ips 10.1.0.2/32").is_empty());
        assert!(with("peer b allowed-ips 10.1.0.0/24").is_empty());
        let site = with("peer b allowed-ips 10.2.0.0/24");
        assert!(site.len() == 1 && site[0].contains("10.2.0.0/24"), "{site:?}");
        assert!(site[0].contains("; sysctl -w net.ipv4.ip_forward=1"), "{site:?}");
        let site = with("peer b allowed-ips 2001:db8::/48");
        assert!(site.len() == 1 && site[0].contains("sysctl -w net.ipv6.conf.all.forwarding=1"), "{site:?}");
    }

    #[test]
    fn peers_that_call_are_there_for_each_other() {
        let one = ["peer b allowed-ips 10.1.0.2/32"];
        assert_eq!(needs(&one), Needs::default());
        let key = format!("peer c public-key {C}");
        let two = [one[0], &key, "peer c allowed-ips 10.1.0.3/32"];
        assert_eq!(said(&needs(&two)).len(), 1);
        assert!(needs(&[&two[..], &["disable"]].concat()).forwarded.is_empty());
        // With forwarding on, there is no warning.
        assert!(needs(&two).not_forwarded(|interface, v6| interface == "wg0" && !v6).is_empty());
    }

    #[test]
    fn an_address_of_another_machine_is_not_ours() {
        assert!(is_ours(IpAddr::from([127, 0, 0, 1])));
        // Of the documentation's, which no machine has.
        let foreign: IpAddr = "192.0.2.77".parse().expect("literal");
        let needs = Needs { local: [(foreign, "berlin".to_owned())].into(), ..Needs::default() };
        let said = needs.warnings();
        assert!(said.len() == 1 && said[0].what.contains("peer berlin local-address 192.0.2.77"), "{said:?}");
        assert!(said[0].fix.contains("ip -brief address"), "{said:?}");
    }
}
