//! `postern show interfaces`: all interfaces of this machine, in the columns of VyOS.

use crate::answer::Answer;
use crate::request::Request;
use crate::tabulate::columns;
use crate::{Failure, client};
use config::tree::natural_order;
use gateway::host::netlink::Netlink;
use gateway::host::netlink::inventory::{Address, Interface};
use gateway::wireguard::model::Interfaces;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What an interface is to VyOS, which is the word for it in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bonding,
    Bridge,
    Dummy,
    Ethernet,
    Loopback,
    Openvpn,
    Tunnel,
    Vti,
    Wireguard,
    /// None of these.
    Other,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bonding => "bonding",
            Self::Bridge => "bridge",
            Self::Dummy => "dummy",
            Self::Ethernet => "ethernet",
            Self::Loopback => "loopback",
            Self::Openvpn => "openvpn",
            Self::Tunnel => "tunnel",
            Self::Vti => "vti",
            Self::Wireguard => "wireguard",
            Self::Other => "other",
        }
    }

    /// By what the kernel says of it; our own are TUN interfaces, which only their names tell apart.
    pub(crate) fn of(interface: &Interface) -> Self {
        let name = interface.name.as_str();
        match interface.kind.as_deref() {
            None if interface.flags.contains(&"LOOPBACK") => Self::Loopback,
            None | Some("veth" | "vlan") => Self::Ethernet,
            Some("bond") => Self::Bonding,
            Some("bridge") => Self::Bridge,
            Some("dummy") => Self::Dummy,
            Some("vti" | "vti6" | "xfrm") => Self::Vti,
            Some("wireguard") => Self::Wireguard,
            Some("ovpn") => Self::Openvpn,
            Some("tun") if name.starts_with("wg") => Self::Wireguard,
            Some("tun") if name.starts_with("vtun") => Self::Openvpn,
            Some(
                "tun" | "gre" | "gretap" | "ip6gre" | "ip6gretap" | "ipip" | "ip6tnl" | "sit" | "erspan",
            ) => Self::Tunnel,
            Some(_) => Self::Other,
        }
    }
}

/// The interfaces of this machine, of one kind or all.
pub(crate) fn found(kind: Option<Kind>) -> Result<Vec<Interface>, Failure> {
    let mut found = Netlink::open()?.interfaces()?;
    found.retain(|interface| kind.is_none_or(|kind| Kind::of(interface) == kind));
    found.sort_by(|a, b| natural_order(&a.name, &b.name));
    Ok(found)
}

/// The same with the descriptions that the daemons know.
fn described(request: &Request, kind: Option<Kind>) -> Result<Vec<Interface>, Failure> {
    let mut found = found(kind)?;
    let answers: Vec<(PathBuf, Interfaces)> =
        client::ask_each(request.api(), "/v1/interfaces/wireguard").unwrap_or_default();
    for described in answers.into_iter().flat_map(|(_, answer)| answer.interfaces) {
        let own = found.iter_mut().find(|interface| interface.name == described.name);
        if let Some(interface) = own.filter(|_| described.description.is_some()) {
            interface.alias = described.description;
        }
    }
    Ok(found)
}

/// All interfaces.
pub(crate) fn all(request: &Request) -> Result<Answer, Failure> {
    list(request, None)
}

/// All interfaces of a kind.
pub(crate) fn of_kind(request: &Request, kind: Kind) -> Result<Answer, Failure> {
    list(request, Some(kind))
}

fn list(request: &Request, kind: Option<Kind>) -> Result<Answer, Failure> {
    let found = described(request, kind)?;
    let values: Vec<Value> = found.iter().map(value).collect();
    Ok(Answer::new(json!({ "interfaces": values }), move |_| {
        table(&found.iter().map(row).collect::<Vec<_>>())
    }))
}

/// All interfaces with their counters.
pub(crate) fn counters(request: &Request) -> Result<Answer, Failure> {
    let found = described(request, None)?;
    let values: Vec<Value> = found.iter().map(value).collect();
    Ok(Answer::new(json!({ "interfaces": values }), move |_| counter_table(&found)))
}

/// All interfaces with everything known of them.
pub(crate) fn details(request: &Request) -> Result<Answer, Failure> {
    let found = described(request, None)?;
    let values: Vec<Value> = found.iter().map(value).collect();
    Ok(Answer::new(json!({ "interfaces": values }), move |_| {
        found.iter().map(detail).collect::<Vec<_>>().join("\n")
    }))
}

/// One interface.
pub(crate) fn one(request: &Request, kind: Kind) -> Result<Answer, Failure> {
    let name = request.value("NAME").unwrap_or_default().to_owned();
    let mut found = described(request, Some(kind))?;
    let known: Vec<String> = found.iter().map(|interface| interface.name.clone()).collect();
    found.retain(|interface| interface.name == name);
    if found.is_empty() {
        let kind = kind.name();
        let fix = if known.is_empty() {
            "show interfaces".to_owned()
        } else {
            format!("one of {}", known.join(", "))
        };
        return Err(format!("there is no {kind} interface {name}\n  fix: {fix}").into());
    }
    let values: Vec<Value> = found.iter().map(value).collect();
    Ok(Answer::new(json!({ "interfaces": values }), move |_| found.iter().map(detail).collect()))
}

/// A row of the table of interfaces.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) addresses: Vec<String>,
    /// State and link, as VyOS shows them: `u/u`.
    pub(crate) state: &'static str,
    pub(crate) description: String,
}

/// The table of VyOS, with the meaning of its letters.
pub(crate) fn table(rows: &[Row]) -> String {
    let text = String::from("Codes: S - State, L - Link, u - Up, D - Down, A - Admin Down\n");
    let mut lines = vec![
        ["Interface", "IP Address", "S/L", "Description"],
        ["---------", "----------", "---", "-----------"],
    ];
    for row in rows {
        let mut addresses = row.addresses.iter();
        let first = addresses.next().map_or("-", String::as_str);
        lines.push([&row.name, first, row.state, &row.description]);
        lines.extend(addresses.map(|address| ["", address, "", ""]));
    }
    // The column widths of VyOS; long IPv6 addresses exceed them.
    text + &columns("", [16, 33, 4, 0], &lines)
}

fn row(interface: &Interface) -> Row {
    // A link-local address tells nothing: every interface has one.
    let shown = interface.addresses.iter().filter(|address| address.scope != "link");
    Row {
        name: interface.name.clone(),
        addresses: shown.map(prefixed).collect(),
        state: state(interface),
        description: interface.alias.clone().unwrap_or_default(),
    }
}

fn state(interface: &Interface) -> &'static str {
    match (interface.is_up(), interface.has_link()) {
        (false, _) => "A/D",
        (true, true) => "u/u",
        (true, false) => "u/D",
    }
}

fn prefixed(address: &Address) -> String {
    format!("{}/{}", address.address, address.prefix)
}

fn value(interface: &Interface) -> Value {
    let counters = &interface.counters;
    let addresses: Vec<Value> = interface
        .addresses
        .iter()
        .map(|it| json!({ "address": prefixed(it), "scope": it.scope, "peer": it.peer, "broadcast": it.broadcast }))
        .collect();
    let direction = |it: &gateway::host::netlink::inventory::Direction| json!({ "bytes": it.bytes, "packets": it.packets, "errors": it.errors, "dropped": it.dropped });
    json!({
        "name": interface.name,
        "type": Kind::of(interface).name(),
        "kind": interface.kind,
        "admin_up": interface.is_up(),
        "link_up": interface.has_link(),
        "state": interface.link_state,
        "flags": interface.flags,
        "mtu": interface.mtu,
        "hardware_address": interface.hardware_address,
        "description": interface.alias,
        "addresses": addresses,
        "received": direction(&counters.received),
        "sent": direction(&counters.sent),
    })
}

/// An interface in the format of `ip -s address`.
fn detail(interface: &Interface) -> String {
    let qdisc = interface.qdisc.as_ref().map(|name| format!(" qdisc {name}")).unwrap_or_default();
    let queue = match interface.queue_length {
        0 => String::new(),
        length => format!(" qlen {length}"),
    };
    let mut lines = vec![format!(
        "{}: <{}> mtu {}{qdisc} state {} group default{queue}",
        interface.name,
        interface.flags.join(","),
        interface.mtu,
        interface.link_state.to_uppercase(),
    )];
    let link = if interface.flags.contains(&"LOOPBACK") { "loopback" } else { "ether" };
    let all = interface.hardware_broadcast.as_ref().map(|all| format!(" brd {all}")).unwrap_or_default();
    lines.extend(interface.hardware_address.as_ref().map(|own| format!("    link/{link} {own}{all}")));
    if interface.hardware_address.is_none() {
        lines.push("    link/none".to_owned());
    }
    lines.extend(interface.other_names.iter().map(|name| format!("    altname {name}")));
    lines.extend(interface.addresses.iter().map(|address| inet(address, &interface.name)));
    lines.extend(interface.alias.iter().map(|alias| format!("    Description: {alias}")));
    lines.join("\n") + "\n\n" + &traffic(interface)
}

fn inet(address: &Address, interface: &str) -> String {
    let family = if address.address.is_ipv4() { "inet" } else { "inet6" };
    let own = match address.peer {
        Some(peer) => format!("{} peer {peer}/{}", address.address, address.prefix),
        None => prefixed(address),
    };
    let all = address.broadcast.map(|all| format!(" brd {all}")).unwrap_or_default();
    let label = if address.address.is_ipv4() { format!(" {interface}") } else { String::new() };
    format!("    {family} {own}{all} scope {}{label}", address.scope)
}

/// The counters, right-aligned below their names.
fn traffic(interface: &Interface) -> String {
    let counters = &interface.counters;
    let (received, sent) = (&counters.received, &counters.sent);
    let line = |numbers: [u64; 6], widths: [usize; 6]| {
        let cells = numbers.iter().zip(widths).map(|(number, width)| format!("{number:>width$}"));
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    let widths = [12, 9, 6, 7, 7, 10];
    let head = |direction: &str, fifth: &str, last: &str| {
        format!(
            "    {direction}{:>10}  {:>9}  {:>6}  {:>7}  {fifth:>7}  {last:>10}\n",
            "bytes", "packets", "errors", "dropped"
        )
    };
    let lines = [
        head("RX:", "overrun", "mcast"),
        " ".repeat(5)
            + &line(
                [
                    received.bytes,
                    received.packets,
                    received.errors,
                    received.dropped,
                    counters.overrun,
                    counters.multicast,
                ],
                widths,
            ),
        head("TX:", "carrier", "collisions"),
        " ".repeat(5)
            + &line(
                [sent.bytes, sent.packets, sent.errors, sent.dropped, counters.carrier, counters.collisions],
                widths,
            ),
    ];
    lines.concat()
}

fn counter_table(found: &[Interface]) -> String {
    let row = |interface: &Interface| {
        let counters = &interface.counters;
        let numbers = [&counters.received, &counters.sent]
            .map(|it| [it.packets, it.bytes, it.dropped, it.errors].map(|number| number.to_string()));
        [vec![interface.name.clone()], numbers.concat()].concat()
    };
    crate::tabulate::tabulate(
        &[
            "Interface",
            "Rx Packets",
            "Rx Bytes",
            "Rx Dropped",
            "Rx Errors",
            "Tx Packets",
            "Tx Bytes",
            "Tx Dropped",
            "Tx Errors",
        ],
        &found.iter().map(row).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::host::netlink::inventory::{Counters, Direction};

    fn address(text: &str, prefix: u8, scope: &str) -> Address {
        let address = text.parse().expect("an address");
        Address { address, prefix, scope: scope.to_owned(), peer: None, broadcast: None }
    }

    fn ethernet() -> Interface {
        let broadcast = Some("192.0.2.255".parse().expect("an address"));
        Interface {
            index: 2,
            name: "eth0".to_owned(),
            flags: vec!["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
            mtu: 1500,
            qdisc: Some("mq".to_owned()),
            link_state: "up".to_owned(),
            queue_length: 1000,
            hardware_address: Some("00:53:00:f0:01:01".to_owned()),
            hardware_broadcast: Some("ff:ff:ff:ff:ff:ff".to_owned()),
            alias: Some("uplink".to_owned()),
            addresses: vec![
                Address { broadcast, ..address("192.0.2.1", 24, "global") },
                address("fe80::1", 64, "link"),
            ],
            counters: Counters {
                received: Direction { bytes: 56_735_451, packets: 179_841, errors: 0, dropped: 0 },
                sent: Direction { bytes: 5_601_460, packets: 62_595, errors: 0, dropped: 0 },
                multicast: 142_380,
                ..Counters::default()
            },
            ..Interface::default()
        }
    }

    #[test]
    fn the_list_has_the_columns_of_vyos() {
        let down = Interface { name: "eth1".to_owned(), ..Interface::default() };
        let unplugged = Interface { name: "eth2".to_owned(), flags: vec!["UP"], ..Interface::default() };
        let rows: Vec<Row> = [ethernet(), down, unplugged].iter().map(row).collect();
        assert_eq!(
            table(&rows),
            "Codes: S - State, L - Link, u - Up, D - Down, A - Admin Down\n\
             Interface        IP Address                        S/L  Description\n\
             ---------        ----------                        ---  -----------\n\
             eth0             192.0.2.1/24                      u/u  uplink\n\
             eth1             -                                 A/D\n\
             eth2             -                                 u/D\n"
        );
    }

    #[test]
    fn one_interface_is_shown_as_vyos_shows_it() {
        assert_eq!(
            detail(&ethernet()),
            "eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 1000\n\
             \x20   link/ether 00:53:00:f0:01:01 brd ff:ff:ff:ff:ff:ff\n\
             \x20   inet 192.0.2.1/24 brd 192.0.2.255 scope global eth0\n\
             \x20   inet6 fe80::1/64 scope link\n\
             \x20   Description: uplink\n\
             \n\
             \x20   RX:     bytes    packets  errors  dropped  overrun       mcast\n\
             \x20        56735451     179841       0        0        0      142380\n\
             \x20   TX:     bytes    packets  errors  dropped  carrier  collisions\n\
             \x20         5601460      62595       0        0        0           0\n"
        );
    }

    #[test]
    fn kinds_are_those_of_the_configuration() {
        let kind = |name: &str, kind: Option<&str>| {
            let (name, kind) = (name.to_owned(), kind.map(str::to_owned));
            Kind::of(&Interface { name, kind, ..Interface::default() })
        };
        assert_eq!(kind("eth0", None), Kind::Ethernet);
        assert_eq!(kind("wg0", Some("tun")), Kind::Wireguard);
        assert_eq!(kind("ipsec0", Some("tun")), Kind::Tunnel);
        assert_eq!(kind("vti1", Some("xfrm")), Kind::Vti);
        assert_eq!(kind("ifb0", Some("ifb")), Kind::Other);
        let loopback = Interface { flags: vec!["LOOPBACK"], ..Interface::default() };
        assert_eq!(Kind::of(&loopback), Kind::Loopback);
    }
}
