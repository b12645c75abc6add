//! The packets of a rule of the configuration, as rules of nf_tables tell them apart.

use super::nft::{
    self, AT_LEAST, AT_MOST, EQUAL, ICMP_V6, IIFNAME, NETWORK_HEADER, NF_PROTOCOL, NOT_EQUAL, OIFNAME,
    TRANSPORT_HEADER, compare, interface, interface_begins, meta, payload, protocol,
};
use config::settings::packets::{Addresses, LinkName, Packets, Ports, Side};
use std::net::IpAddr;

/// linux/netfilter.h
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// Where ports begin in the headers of TCP, UDP and SCTP.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

/// Only packets of this version of IP.
pub(super) fn of_family(v6: bool) -> Vec<u8> {
    [meta(NF_PROTOCOL), compare(EQUAL, &[if v6 { IPV6 } else { IPV4 }])].concat()
}

/// ICMPv6 messages with this hop limit, from a first type to a last one, that no router has forwarded and none will.
pub(super) fn icmp_on_link((hops, [first, last]): (u8, [u8; 2])) -> Vec<u8> {
    let hop_limit = [payload(NETWORK_HEADER, 7, 1), compare(EQUAL, &[hops])].concat();
    let kind = [payload(TRANSPORT_HEADER, 0, 1), compare(AT_LEAST, &[first]), compare(AT_MOST, &[last])];
    [of_family(true), hop_limit, protocol(ICMP_V6), kind.concat()].concat()
}

/// Expressions that match the packets: one rule for each protocol and each range of ports. The version of IP is matched before.
pub(super) fn matching(packets: &Packets) -> Vec<Vec<u8>> {
    let mut common = Vec::new();
    for (key, link) in [(IIFNAME, &packets.inbound), (OIFNAME, &packets.outbound)] {
        common.extend(link.iter().map(|link| [meta(key), named(link)].concat()));
    }
    for (side, end) in [(&packets.source, End::Source), (&packets.destination, End::Destination)] {
        common.extend(side.addresses.iter().map(|addresses| of_addresses(*addresses, end)));
    }
    let common = common.concat();
    let protocols: Vec<Vec<u8>> = match &packets.protocols[..] {
        [] => vec![Vec::new()],
        protocols => protocols.iter().map(|number| protocol(*number)).collect(),
    };
    let mut all = Vec::new();
    for protocol in protocols {
        for from in of_ports(&packets.source, SOURCE_PORT) {
            for to in of_ports(&packets.destination, DESTINATION_PORT) {
                all.push([common.as_slice(), &protocol, &from, &to].concat());
            }
        }
    }
    all
}

fn named(LinkName { is_negated, name, is_prefix }: &LinkName) -> Vec<u8> {
    let how = if *is_negated { NOT_EQUAL } else { EQUAL };
    if *is_prefix { interface_begins(how, name) } else { interface(how, name) }
}

fn of_addresses(Addresses { is_negated, first, last }: Addresses, end: End) -> Vec<u8> {
    let how = if is_negated { NOT_EQUAL } else { EQUAL };
    let (source, length) = if first.is_ipv4() { (12, 4) } else { (8, 16) };
    let at = if end == End::Source { source } else { source + length };
    [payload(NETWORK_HEADER, at, length), nft::range(how, &bytes(first), &bytes(last))].concat()
}

/// As they are in a header.
pub(super) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// What matches ports: any of these, or all of these at once where they are excepted.
fn of_ports(side: &Side, at: u32) -> Vec<Vec<u8>> {
    let Some(Ports { is_negated, ranges }) = &side.ports else { return vec![Vec::new()] };
    let port = || payload(TRANSPORT_HEADER, at, 2);
    let range = |how, (first, last): (u16, u16)| nft::range(how, &first.to_be_bytes(), &last.to_be_bytes());
    if *is_negated {
        let all = ranges.iter().map(|ports| range(NOT_EQUAL, *ports));
        return vec![[port()].into_iter().chain(all).collect::<Vec<_>>().concat()];
    }
    ranges.iter().map(|ports| [port(), range(EQUAL, *ports)].concat()).collect()
}
