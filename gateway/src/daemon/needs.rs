//! Whether the machine has what the configuration needs: the kernel forwards nothing by default, and an address of ours may be
//! another machine's. Nothing else would say so.

use crate::api::model::Advice;
use config::Path;
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
    pub forwarded: BTreeSet<(String, IpNet)>,
    /// Addresses that must be ours, with where the configuration has them for a peer.
    pub local: BTreeMap<IpAddr, Path>,
}

impl Needs {
    /// Adds what another part of the configuration needs.
    pub fn extend(&mut self, other: Self) {
        self.forwarded.extend(other.forwarded);
        self.local.extend(other.local);
    }

    /// What the machine has not.
    pub fn warnings(&self) -> Vec<Advice> {
        let foreign = self.local.iter().filter(|(address, _)| !is_ours(**address));
        let foreign = foreign.map(|(address, place)| Advice {
            what: format!(
                "{place} {address}: this machine does not have that address, so that nothing is sent to the peer"
            ),
            fix: format!(
                "set {place} to one of: ip -brief address; or any; or give the machine the address"
            ),
        });
        self.not_forwarded(forwards).into_iter().chain(foreign).collect()
    }

    /// What the kernel does not forward, a warning for each version of IP.
    fn not_forwarded(&self, forwards: impl Fn(&str, bool) -> bool) -> Vec<Advice> {
        let kept = |v6: bool| {
            // Each interface is asked once: thousands of prefixes are behind it.
            let mut asked: BTreeMap<&str, bool> = BTreeMap::new();
            let mut is_kept = |name| !*asked.entry(name).or_insert_with_key(|name| forwards(name, v6));
            let of = self.forwarded.iter().filter(|(_, prefix)| matches!(prefix, IpNet::V6(_)) == v6);
            let kept: BTreeSet<IpNet> =
                of.filter(|(name, _)| is_kept(name.as_str())).map(|(_, prefix)| *prefix).collect();
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
            "set system {} forwarding; or, without the configuration: sysctl -w {setting}=1",
            if v6 { "ipv6" } else { "ip" }
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

    fn needs(prefixes: &[&str]) -> Needs {
        let net = |text: &&str| ("wg0".to_owned(), text.parse().expect("literal"));
        Needs { forwarded: prefixes.iter().map(net).collect(), ..Needs::default() }
    }

    #[test]
    fn what_is_not_forwarded_is_said_with_the_setting_of_its_version() {
        let said = |prefixes: &[&str], is_on: fn(&str, bool) -> bool| needs(prefixes).not_forwarded(is_on);
        let site = said(&["10.2.0.0/24"], |_, _| false);
        assert!(site.len() == 1 && site[0].what.contains("10.2.0.0/24"), "{site:?}");
        assert!(site[0].fix.starts_with("set system ip forwarding"), "{site:?}");
        let both = said(&["10.2.0.0/24", "2001:db8::/48"], |_, _| false);
        assert!(both.len() == 2 && both[1].fix.starts_with("set system ipv6 forwarding"));
        // With forwarding on, there is no warning.
        assert!(said(&["10.2.0.0/24"], |interface, v6| interface == "wg0" && !v6).is_empty());
    }

    #[test]
    fn an_address_of_another_machine_is_not_ours() {
        assert!(is_ours(IpAddr::from([127, 0, 0, 1])));
        // Of the documentation's, which no machine has.
        let foreign: IpAddr = "192.0.2.77".parse().expect("literal");
        let place = Path::new("vpn ipsec site-to-site peer berlin local-address".split(' '));
        let needs = Needs { local: [(foreign, place)].into(), ..Needs::default() };
        let said = needs.warnings();
        assert!(said.len() == 1 && said[0].what.contains("peer berlin local-address 192.0.2.77"), "{said:?}");
        assert!(said[0].fix.contains("ip -brief address"), "{said:?}");
    }
}
