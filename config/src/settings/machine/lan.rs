//! `service dhcp-server` and `service dns forwarding`, typed.

use super::super::{Reader, parsed, set_or_default};
use crate::tree::Tree;
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Addresses for devices of the site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhcpServer {
    /// Networks that devices are in.
    pub subnets: Vec<DhcpSubnet>,
    /// Whether addresses of other networks are refused at once.
    pub is_authoritative: bool,
}

/// A network that devices are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpSubnet {
    /// The network.
    pub prefix: Ipv4Net,
    /// The first and the last address of what is given.
    pub ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Seconds that an address is given for.
    pub lease: u32,
    /// The router of the devices.
    pub router: Option<Ipv4Addr>,
    /// Their name servers.
    pub name_servers: Vec<Ipv4Addr>,
    /// Their time servers.
    pub time_servers: Vec<Ipv4Addr>,
    /// Their domain.
    pub domain: Option<String>,
    /// Devices with an address of their own, by name.
    pub hosts: BTreeMap<String, DhcpHost>,
}

/// A device with an address of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpHost {
    /// The address of its Ethernet card.
    pub hardware: String,
    /// Its address.
    pub address: Ipv4Addr,
}

/// Questions for names that are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsForwarding {
    /// Addresses of this machine that devices ask.
    pub listen: Vec<IpAddr>,
    /// Name servers that are asked, with their ports.
    pub servers: Vec<(IpAddr, u16)>,
    /// Whether those of this machine are asked, too.
    pub asks_system: bool,
    /// Name servers of domains.
    pub domains: BTreeMap<String, Vec<(IpAddr, u16)>>,
    /// Names that are remembered.
    pub cache: u32,
}

const DHCP: &str = "service dhcp-server";
const SUBNET: &str = "service dhcp-server shared-network-name <name> subnet <prefix>";
const DNS: &str = "service dns forwarding";

impl Reader {
    pub(super) fn dhcp_server(&mut self, tree: &Tree) -> DhcpServer {
        let mut server = DhcpServer::default();
        if tree.has("disable") {
            return server;
        }
        for (name, network) in tree.at(&["shared-network-name"]).into_iter().flat_map(Tree::children) {
            if network.has("disable") {
                continue;
            }
            server.is_authoritative |= network.has("authoritative");
            for (prefix, subnet) in network.at(&["subnet"]).into_iter().flat_map(Tree::children) {
                let path = format!("{DHCP} shared-network-name {name} subnet {prefix}");
                let Ok(prefix) = prefix.parse::<Ipv4Net>() else {
                    self.error(subnet.location(), format!("{path} is not of IPv4"), "write a prefix of IPv4");
                    continue;
                };
                if let Some(subnet) = self.subnet(&path, prefix, subnet) {
                    server.subnets.push(subnet);
                }
            }
        }
        self.check_twice(tree, &server);
        server
    }

    /// Refuses what is there twice: dnsmasq would take one of both.
    fn check_twice(&mut self, tree: &Tree, server: &DhcpServer) {
        let (mut addresses, mut cards) = (BTreeSet::new(), BTreeSet::new());
        for host in server.subnets.iter().flat_map(|subnet| subnet.hosts.values()) {
            if !addresses.insert(host.address) {
                let reason = format!("{DHCP}: two devices have the address {}", host.address);
                self.error(tree.location(), reason, "give one of them another ip-address");
            }
            if !cards.insert(host.hardware.to_ascii_lowercase()) {
                let reason = format!("{DHCP}: two devices have the mac {}", host.hardware);
                self.error(tree.location(), reason, "delete one of both static mappings");
            }
        }
        for (place, subnet) in server.subnets.iter().enumerate() {
            let is_around = |other: &&DhcpSubnet| {
                other.prefix.contains(&subnet.prefix) || subnet.prefix.contains(&other.prefix)
            };
            if let Some(other) = server.subnets[..place].iter().find(is_around) {
                let reason = format!("{DHCP}: the subnets {} and {} overlap", other.prefix, subnet.prefix);
                self.error(tree.location(), reason, "give each network a subnet of its own");
            }
        }
    }

    fn subnet(&mut self, path: &str, prefix: Ipv4Net, tree: &Tree) -> Option<DhcpSubnet> {
        let ranges = self.ranges(path, prefix, tree);
        let hosts = self.hosts(path, prefix, tree);
        if ranges.is_empty() && hosts.is_empty() {
            self.error(
                tree.location(),
                format!("{path} gives no addresses"),
                format!("set {path} range 0 start ADDRESS, and stop"),
            );
            return None;
        }
        let domain = tree.at(&["option"]).and_then(|option| option.value("domain-name")).map(str::to_owned);
        Some(DhcpSubnet {
            prefix,
            ranges,
            lease: set_or_default(tree, SUBNET, "lease"),
            router: self.told(path, tree, "default-router").pop(),
            name_servers: self.told(path, tree, "name-server"),
            time_servers: self.told(path, tree, "ntp-server"),
            domain,
            hosts,
        })
    }

    /// The first and the last address of each range.
    fn ranges(&mut self, path: &str, prefix: Ipv4Net, tree: &Tree) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        let mut ranges = Vec::new();
        for (name, range) in tree.at(&["range"]).into_iter().flat_map(Tree::children) {
            let end = |word| range.value(word).and_then(|text| text.parse::<Ipv4Addr>().ok());
            let (Some(start), Some(stop)) = (end("start"), end("stop")) else {
                let reason = format!("{path} range {name} has no start or no stop of IPv4");
                // The last address of the network is the broadcast address.
                let last = prefix.hosts().next_back().unwrap_or(prefix.addr());
                self.error(range.location(), reason, format!("set {path} range {name} stop {last}"));
                continue;
            };
            if start > stop || !prefix.contains(&start) || !prefix.contains(&stop) {
                let reason = format!("{path} range {name}: {start} to {stop} is not in the network");
                self.error(range.location(), reason, "write the first and the last address that are given");
                continue;
            }
            ranges.push((start, stop));
        }
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1 >= pair[1].0) {
            let reason = format!("{path}: two ranges have the address {}", pair[1].0);
            self.error(tree.location(), reason, "let the ranges end before each other");
        }
        ranges
    }

    /// Devices with an address of their own, by name.
    fn hosts(&mut self, path: &str, prefix: Ipv4Net, tree: &Tree) -> BTreeMap<String, DhcpHost> {
        let mut hosts = BTreeMap::new();
        for (name, host) in tree.at(&["static-mapping"]).into_iter().flat_map(Tree::children) {
            if host.has("disable") {
                continue;
            }
            let place = format!("{path} static-mapping {name}");
            if is_word_of_dnsmasq(name) {
                let reason = format!("{place}: dnsmasq takes {name} for a word of its own");
                self.error(host.location(), reason, format!("call it: {name}-device"));
                continue;
            }
            let address = host.value("ip-address").and_then(|text| text.parse::<Ipv4Addr>().ok());
            match (host.value("mac"), address.filter(|address| prefix.contains(address))) {
                (Some(hardware), Some(address)) => {
                    hosts.insert(name.to_owned(), DhcpHost { hardware: hardware.to_owned(), address });
                }
                (None, _) => {
                    let fix = format!("set {place} mac 02:00:5e:10:00:01");
                    self.error(host.location(), format!("{place} has no mac"), fix);
                }
                (_, None) => {
                    let fix = format!("set {place} ip-address, of {prefix}");
                    self.error(host.location(), format!("{place} has no address of the network"), fix);
                }
            }
        }
        hosts
    }

    /// Addresses that devices are told in an option. DHCP of IPv4 has no field for one of IPv6.
    fn told(&mut self, path: &str, tree: &Tree, word: &str) -> Vec<Ipv4Addr> {
        let mut addresses = Vec::new();
        let Some(option) = tree.at(&["option"]) else { return addresses };
        for text in option.values(word) {
            if let Ok(address) = text.parse() {
                addresses.push(address);
                continue;
            }
            let place = format!("{path} option {word}");
            let fix = format!("delete {place} {text}, or write an address of IPv4");
            self.error(option.location(), format!("{place}: {text} is not of IPv4"), fix);
        }
        addresses
    }

    pub(super) fn dns_forwarding(&mut self, tree: &Tree) -> DnsForwarding {
        let listen: Vec<IpAddr> = parsed(tree.values("listen-address"));
        if listen.is_empty() || listen.iter().any(IpAddr::is_unspecified) {
            let reason = format!("{DNS} does not say which devices may ask");
            self.error(
                tree.location(),
                reason,
                format!("set {DNS} listen-address, the address of this machine inside the site"),
            );
        }
        let domains: BTreeMap<String, Vec<(IpAddr, u16)>> = tree
            .at(&["domain"])
            .into_iter()
            .flat_map(Tree::children)
            .map(|(domain, tree)| (domain.to_owned(), servers(tree)))
            .collect();
        for domain in domains.iter().filter(|(_, servers)| servers.is_empty()).map(|(domain, _)| domain) {
            let path = format!("{DNS} domain {domain}");
            self.error(
                tree.location(),
                format!("{path} has no name server"),
                format!("set {path} name-server ADDRESS"),
            );
        }
        let (servers, asks_system) = (servers(tree), tree.has("system"));
        if servers.is_empty() && !asks_system && domains.is_empty() {
            let fix = format!("set {DNS} name-server ADDRESS; or set {DNS} system");
            self.error(tree.location(), format!("{DNS} has no name server"), fix);
        }
        DnsForwarding {
            listen,
            servers,
            asks_system,
            domains,
            cache: set_or_default(tree, DNS, "cache-size"),
        }
    }
}

/// Whether dnsmasq would read a name as what to do with a device, or as a lease time.
fn is_word_of_dnsmasq(name: &str) -> bool {
    let is_time = name.trim_end_matches(['s', 'm', 'h', 'd', 'w', 'S', 'M', 'H', 'D', 'W']);
    let is_time = !is_time.is_empty() && is_time.bytes().all(|byte| byte.is_ascii_digit());
    is_time || ["ignore", "infinite"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

fn servers(tree: &Tree) -> Vec<(IpAddr, u16)> {
    let servers = tree.at(&["name-server"]).into_iter().flat_map(Tree::children);
    let port = |tree: &Tree| tree.value("port").and_then(|port| port.parse().ok()).unwrap_or(53);
    servers.filter_map(|(address, tree)| Some((address.parse().ok()?, port(tree)))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    const LAN: &str = "set service dhcp-server shared-network-name LAN";

    fn refused(lines: &[String]) -> String {
        let errors = read(&(lines.join("\n") + "\n")).expect_err("refused");
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_devices_are_told_is_read() {
        let subnet = format!("{LAN} subnet 10.2.0.0/24");
        let lines = [
            format!("{LAN} authoritative"),
            format!("{subnet} range 0 start 10.2.0.100"),
            format!("{subnet} range 0 stop 10.2.0.199"),
            format!("{subnet} option default-router 10.2.0.1"),
            format!("{subnet} option name-server 10.2.0.1"),
            format!("{subnet} static-mapping printer mac 02:00:5e:10:00:01"),
            format!("{subnet} static-mapping printer ip-address 10.2.0.9"),
            "set service dns forwarding listen-address 10.2.0.1".to_owned(),
            "set service dns forwarding name-server 9.9.9.9 port 5353".to_owned(),
            "set service dns forwarding domain office.example name-server 10.1.0.1".to_owned(),
        ];
        let machine = read(&(lines.join("\n") + "\n")).expect("right");
        let dhcp = machine.dhcp.as_ref().expect("it is there");
        let only = &dhcp.subnets[0];
        assert!(dhcp.is_authoritative && only.lease == 86_400);
        assert_eq!(only.ranges.len(), 1);
        assert_eq!(only.hosts["printer"].address, Ipv4Addr::new(10, 2, 0, 9));
        let dns = machine.dns.as_ref().expect("it is there");
        assert_eq!(dns.servers, [(IpAddr::from([9, 9, 9, 9]), 5353)]);
        assert_eq!(dns.domains["office.example"], [(IpAddr::from([10, 1, 0, 1]), 53)]);
        let off =
            read(&format!("set service dhcp-server disable\n{}\n", lines[..3].join("\n"))).expect("right");
        assert_eq!(off.dhcp.as_deref(), Some(&DhcpServer::default()));
    }

    #[test]
    fn what_cannot_be_given_is_refused_with_a_fix() {
        let subnet = format!("{LAN} subnet 10.2.0.0/24");
        let range = |start: &str, stop: &str, name: u8| {
            [format!("{subnet} range {name} start {start}"), format!("{subnet} range {name} stop {stop}")]
        };
        for (lines, said) in [
            (vec![format!("{subnet} lease 600")], "range 0 start"),
            (range("10.2.0.9", "10.2.0.1", 0).to_vec(), "not in the network"),
            (range("10.3.0.1", "10.3.0.9", 0).to_vec(), "not in the network"),
            (
                [range("10.2.0.1", "10.2.0.9", 0), range("10.2.0.9", "10.2.0.20", 1)].concat(),
                "two ranges have the address 10.2.0.9",
            ),
            (vec![format!("{subnet} range 0 start 10.2.0.1")], "range 0 stop 10.2.0.254"),
            (
                [
                    range("10.2.0.1", "10.2.0.9", 0).to_vec(),
                    vec![format!("{subnet} option name-server 2001:db8::53")],
                ]
                .concat(),
                "option name-server: 2001:db8::53 is not of IPv4",
            ),
            (vec![format!("{subnet} static-mapping a ip-address 10.2.0.5")], "has no mac"),
            (
                [
                    range("10.2.0.1", "10.2.0.9", 0).to_vec(),
                    vec![
                        format!("{LAN} subnet 10.2.0.0/25 range 0 start 10.2.0.20"),
                        format!("{LAN} subnet 10.2.0.0/25 range 0 stop 10.2.0.30"),
                    ],
                ]
                .concat(),
                "10.2.0.0/24 and 10.2.0.0/25 overlap",
            ),
            (
                vec![
                    format!("{subnet} static-mapping a mac 02:00:5e:10:00:0a"),
                    format!("{subnet} static-mapping a ip-address 10.2.0.5"),
                    format!("{subnet} static-mapping b mac 02:00:5E:10:00:0A"),
                    format!("{subnet} static-mapping b ip-address 10.2.0.6"),
                ],
                "two devices have the mac",
            ),
            (vec![format!("{subnet} static-mapping ignore mac 02:00:5e:10:00:0a")], "ignore-device"),
            (vec![format!("{subnet} static-mapping 45m mac 02:00:5e:10:00:0a")], "a word of its own"),
            (vec![format!("{LAN} subnet 2001:db8::/64 lease 600")], "not of IPv4"),
            (vec!["set service dns forwarding system".to_owned()], "listen-address"),
            (
                vec!["set service dns forwarding listen-address 10.2.0.1".to_owned()],
                "service dns forwarding system",
            ),
            (
                vec![
                    "set service dns forwarding system".to_owned(),
                    "set service dns forwarding listen-address 0.0.0.0".to_owned(),
                ],
                "which devices may ask",
            ),
        ] {
            let refused = refused(&lines);
            assert!(refused.contains(said), "{lines:?}: {refused}");
        }
    }
}
