//! The files of dnsmasq, one for addresses and one for names.

use config::settings::machine::{DhcpServer, DhcpSubnet, DnsForwarding};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// What holds for both: it reads no other file, and addresses may come after it.
const COMMON: &str = "bind-dynamic\nno-hosts\n";

/// The file of a DHCP server; none if it gives no addresses.
pub fn dhcp(server: &DhcpServer) -> Option<String> {
    if server.subnets.is_empty() {
        return None;
    }
    let mut text = format!("{COMMON}port=0\ndhcp-leasefile=/var/lib/misc/postern-dhcp-server.leases\n");
    if server.is_authoritative {
        text += "dhcp-authoritative\n";
    }
    for (number, subnet) in server.subnets.iter().enumerate() {
        write_subnet(&mut text, &format!("net{number}"), subnet);
    }
    Some(text)
}

fn write_subnet(text: &mut String, tag: &str, subnet: &DhcpSubnet) {
    let (mask, lease) = (subnet.prefix.netmask(), subnet.lease);
    for (first, last) in &subnet.ranges {
        let _ = writeln!(text, "dhcp-range=set:{tag},{first},{last},{mask},{lease}");
    }
    if subnet.ranges.is_empty() {
        let _ = writeln!(text, "dhcp-range=set:{tag},{},static,{mask},{lease}", subnet.prefix.network());
    }
    let mut option = |name: &str, values: &[Ipv4Addr]| {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        if !values.is_empty() {
            let _ = writeln!(text, "dhcp-option=tag:{tag},option:{name},{}", values.join(","));
        }
    };
    option("router", subnet.router.as_slice());
    option("dns-server", &subnet.name_servers);
    option("ntp-server", &subnet.time_servers);
    if let Some(domain) = &subnet.domain {
        let _ = writeln!(text, "dhcp-option=tag:{tag},option:domain-name,{domain}");
    }
    for (name, host) in &subnet.hosts {
        let _ = writeln!(text, "dhcp-host={},{},{name}", host.hardware, host.address);
    }
}

/// The file of a forwarder of DNS.
pub fn dns(dns: &DnsForwarding) -> String {
    let mut text = format!("{COMMON}cache-size={}\n", dns.cache);
    for address in &dns.listen {
        let _ = writeln!(text, "listen-address={address}");
    }
    // Questions about private addresses and names without a domain stay here.
    text += "bogus-priv\ndomain-needed\n";
    if !dns.asks_system {
        text += "no-resolv\n";
    }
    for (address, port) in &dns.servers {
        let _ = writeln!(text, "server={}", server(*address, *port));
    }
    for (domain, servers) in &dns.domains {
        for (address, port) in servers {
            let _ = writeln!(text, "server=/{}/{}", domain.trim_end_matches('.'), server(*address, *port));
        }
    }
    text
}

fn server(address: IpAddr, port: u16) -> String {
    format!("{address}#{port}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::Machine;
    use config::settings::machine::Part;

    fn machine(part: Part, lines: &[&str]) -> Machine {
        let text: String = lines.iter().map(|line| format!("set {part} {line}\n")).collect();
        Machine::read(part, &text).unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    #[test]
    fn the_files_have_what_the_configuration_says_and_nothing_else() {
        let lan = "shared-network-name LAN subnet 10.2.0.0/24";
        let lines = [
            &format!("{lan} range 0 start 10.2.0.100")[..],
            &format!("{lan} range 0 stop 10.2.0.199"),
            &format!("{lan} option default-router 10.2.0.1"),
            &format!("{lan} option name-server 10.2.0.1"),
            &format!("{lan} option domain-name site.example"),
            &format!("{lan} static-mapping printer mac 02:00:5e:10:00:01"),
            &format!("{lan} static-mapping printer ip-address 10.2.0.9"),
            "shared-network-name STATIC subnet 10.3.0.0/24 static-mapping a mac 02:00:5e:10:00:02",
            "shared-network-name STATIC subnet 10.3.0.0/24 static-mapping a ip-address 10.3.0.9",
        ];
        let text = dhcp(&machine(Part::DhcpServer, &lines).dhcp.expect("it is there")).expect("addresses");
        assert_eq!(
            text,
            "bind-dynamic\nno-hosts\nport=0\ndhcp-leasefile=/var/lib/misc/postern-dhcp-server.leases\n\
             dhcp-range=set:net0,10.2.0.100,10.2.0.199,255.255.255.0,86400\n\
             dhcp-option=tag:net0,option:router,10.2.0.1\ndhcp-option=tag:net0,option:dns-server,10.2.0.1\n\
             dhcp-option=tag:net0,option:domain-name,site.example\ndhcp-host=02:00:5e:10:00:01,10.2.0.9,printer\n\
             dhcp-range=set:net1,10.3.0.0,static,255.255.255.0,86400\ndhcp-host=02:00:5e:10:00:02,10.3.0.9,a\n"
        );
        assert_eq!(dhcp(&machine(Part::DhcpServer, &["disable"]).dhcp.expect("it is there")), None);
        let lines = [
            "listen-address 10.2.0.1",
            "name-server 2001:db8::53",
            "domain a.example name-server 10.1.0.1 port 5353",
        ];
        assert_eq!(
            dns(&machine(Part::DnsForwarding, &lines).dns.expect("it is there")),
            "bind-dynamic\nno-hosts\ncache-size=1000\nlisten-address=10.2.0.1\nbogus-priv\ndomain-needed\nno-resolv\n\
             server=2001:db8::53#53\nserver=/a.example/10.1.0.1#5353\n"
        );
    }
}
