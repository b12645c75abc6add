//! `service dhcp-server` and `service dns forwarding`: a dnsmasq of our own for each, which reads no other file. The machine's own one,
//! if there is one, is left alone.

use super::place::{Content, Place, PlaceError};
use super::service::{reload_units, systemctl};
use super::{Wanted, missing};
use crate::machine::model::Finding;
use config::settings::machine::{DhcpServer, DhcpSubnet, DnsForwarding, Part};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

const PROGRAM: &str = "/usr/sbin/dnsmasq";
const FOLDER: &str = "/etc/postern-machine";

/// The name of the file and of the unit of a part.
fn name(part: Part) -> &'static str {
    if part == Part::DhcpServer { "postern-dhcp-server" } else { "postern-dns-forwarding" }
}

fn file(part: Part) -> String {
    format!("{FOLDER}/{}.conf", name(part))
}

fn unit(part: Part) -> String {
    format!("/etc/systemd/system/{}.service", name(part))
}

pub(super) fn known(part: Part) -> Vec<String> {
    vec![file(part), unit(part)]
}

pub(super) fn check(place: &Place, part: Part) -> Vec<Finding> {
    if !place.has(PROGRAM) {
        return vec![missing(part, "dnsmasq is not installed", "apt-get install dnsmasq-base")];
    }
    if !place.has_systemd() {
        let why = format!(
            "{} is written, and nothing here starts dnsmasq with it: there is no systemd",
            file(part)
        );
        return vec![missing(
            part,
            why,
            format!("start it: dnsmasq --keep-in-foreground --conf-file={}", file(part)),
        )];
    }
    Vec::new()
}

/// The files of a part whose dnsmasq reads `text`; none where there is nothing to do.
pub(super) fn wanted(place: &Place, part: Part, text: Option<String>) -> Wanted {
    let Some(text) = text else { return Wanted { known: known(part), ..Wanted::default() } };
    let content = |path, text: String| Content { path, mode: 0o644, text: text.into() };
    let mut files = vec![content(file(part), text)];
    if place.has_systemd() {
        files.push(content(unit(part), unit_text(part)));
    }
    let read = format!("--conf-file={}", place.at(&file(part)).display());
    let verify = place.has(PROGRAM).then(|| (PROGRAM, vec!["--test".to_owned(), read]));
    Wanted { files, known: known(part), verify, ..Wanted::default() }
}

/// Starts dnsmasq with its new file, or ends it.
pub(super) fn tell(place: &Place, part: Part, is_wanted: bool) -> Result<(), PlaceError> {
    if !place.has_systemd() || !place.has(PROGRAM) {
        return Ok(());
    }
    reload_units(place)?;
    if is_wanted {
        systemctl(place, &["enable", name(part)])?;
        return systemctl(place, &["restart", name(part)]);
    }
    Ok(())
}

/// Ends dnsmasq while its unit is there.
pub(super) fn end(place: &Place, part: Part) -> Result<(), PlaceError> {
    if place.has_systemd() && place.has(&unit(part)) {
        systemctl(place, &["disable", "--now", name(part)])?;
    }
    Ok(())
}

/// dnsmasq forks once it has its ports, so that systemd, and the commit, hear of one that cannot have them.
fn unit_text(part: Part) -> String {
    let pid = format!("/run/{}.pid", name(part));
    format!(
        "[Unit]\nDescription={part} of Postern\nAfter=network.target\n[Service]\nType=forking\nPIDFile={pid}\n\
         ExecStart={PROGRAM} --pid-file={pid} --conf-file={}\nRestart=always\nRestartSec=2\n[Install]\n\
         WantedBy=multi-user.target\n",
        file(part)
    )
}

/// What holds for both: it reads no other file, and addresses may come after it.
const COMMON: &str = "bind-dynamic\nno-hosts\n";

/// The file of a DHCP server; none if it gives no addresses.
pub(super) fn dhcp(server: &DhcpServer) -> Option<String> {
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
pub(super) fn dns(dns: &DnsForwarding) -> String {
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
