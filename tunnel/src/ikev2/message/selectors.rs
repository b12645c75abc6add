//! Traffic Selector payloads (RFC 7296 section 3.13).

use super::numbers::selector;
use super::reader::Reader;
use super::{Length, ParseError};
use crate::esp::TrafficSelector;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The selectors of a payload. Selectors of unknown types, and those for packets without ports (OPAQUE of RFC 4301),
/// are left out: no local packet matches them.
pub(super) fn parse(body: &[u8]) -> Result<Vec<TrafficSelector>, ParseError> {
    let mut reader = Reader::new(body);
    let count = reader.u8()?;
    reader.take(3)?;
    let mut selectors = Vec::new();
    for _ in 0..count {
        selectors.extend(parse_one(&mut reader)?);
    }
    if count == 0 || !reader.is_empty() {
        return Err(ParseError::Malformed);
    }
    Ok(selectors)
}

fn parse_one(reader: &mut Reader<'_>) -> Result<Option<TrafficSelector>, ParseError> {
    let (kind, protocol, length) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let mut body = reader.body(length, 4)?;
    if !matches!(kind, selector::IPV4_RANGE | selector::IPV6_RANGE) {
        return Ok(None);
    }
    let ports = body.u16()?..=body.u16()?;
    let mut address = || match kind {
        selector::IPV4_RANGE => body.u32().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        _ => body.u128().map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    };
    let addresses = address()?..=address()?;
    if !body.is_empty() || addresses.is_empty() {
        return Err(ParseError::Malformed);
    }
    let is_opaque = (*ports.start(), *ports.end()) == (u16::MAX, 0);
    if ports.is_empty() && !is_opaque {
        return Err(ParseError::Malformed);
    }
    Ok((!is_opaque).then_some(TrafficSelector { protocol, ports, addresses }))
}

pub(super) fn emit(selectors: &[TrafficSelector], out: &mut Vec<u8>) {
    let count = u8::try_from(selectors.len()).expect("a configuration has fewer than 256 selectors");
    out.extend([count, 0, 0, 0]);
    for TrafficSelector { protocol, ports, addresses } in selectors {
        let kind = if addresses.start().is_ipv4() { selector::IPV4_RANGE } else { selector::IPV6_RANGE };
        out.extend([kind, *protocol]);
        let length = Length::begin(out, 2);
        out.extend(ports.start().to_be_bytes());
        out.extend(ports.end().to_be_bytes());
        for address in [addresses.start(), addresses.end()] {
            match address {
                IpAddr::V4(address) => out.extend(address.octets()),
                IpAddr::V6(address) => out.extend(address.octets()),
            }
        }
        length.end(out);
    }
}
