//! `rt` and `neigh`: a route, and the Ethernet address behind a port.

use super::finding::Finding;
use super::number;
use super::settings::{Family, Neighbour, Route};
use super::tokens::Tokens;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most routes of a family.
pub(super) const MOST_ROUTES: usize = 1024;

/// The ports that DPDK has room for.
pub(super) const MOST_PORTS: u16 = 32;

/// Reads the words behind `rt`. `present` is the number of routes of a family that were read before.
pub(super) fn read(tokens: &mut Tokens<'_>, present: impl Fn(Family) -> usize) -> Result<Route, Finding> {
    let (family, any): (Family, IpAddr) = match tokens.required("ipv4 or ipv6")? {
        "ipv4" => (Family::V4, Ipv4Addr::UNSPECIFIED.into()),
        "ipv6" => (Family::V6, Ipv6Addr::UNSPECIFIED.into()),
        word => return Err(tokens.unrecognized(word, "write rt ipv4 or rt ipv6")),
    };
    if present(family) >= MOST_ROUTES {
        let fix = format!("ipsec-secgw takes {MOST_ROUTES} routes of each family");
        return Err(tokens.refuse("too many rt rules, abort insertion", fix));
    }
    let mut route = Route { line: tokens.line(), family, address: any, length: None, port: 0 };
    let mut has_port = false;
    while let Some(word) = tokens.option() {
        match word {
            "dst" => {
                let noun = if family == Family::V4 { "addr" } else { "address" };
                let read = tokens.address(word, family, noun)?;
                route.address = read.address;
                let length = read.length as u8;
                route.length = read.has_length.then_some(length);
                if u32::from(length) != read.length {
                    let text = format!("the prefix length {} is read as {length}", read.length);
                    tokens.warn("number-cut", text, format!("a prefix length is at most {}", family.bits()));
                }
            }
            "port" => {
                let port = tokens.number(word)?;
                route.port = port as u8;
                has_port = true;
                if i32::from(route.port) != port {
                    let text = format!("port {port} is read as {}: a port has 8 bits", route.port);
                    tokens.warn("number-cut", text, "name a port of -p");
                }
            }
            _ => {
                let text = format!("{word} is ignored: a route has dst and port");
                tokens.warn("word-ignored", text, "delete it, or correct it");
            }
        }
    }
    if !has_port {
        tokens.warn(
            "route-without-port",
            "the route has no port, and leads to port 0",
            "write port and its number",
        );
    }
    Ok(route)
}

/// Reads what stands behind `neigh`, where only spaces and tabs separate words: the port, and its address if it is one.
///
/// The error is empty where no rule of the format fits the line.
pub(super) fn neighbour(line: u32, text: &str) -> Result<(u16, Option<Neighbour>), Option<Finding>> {
    let words: Vec<&str> = text.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    let ["port", port, address] = words[..] else { return Err(None) };
    // A word of DPDK's command line library has at most 126 characters.
    let port = number::command_line_16_bits(port)
        .filter(|_| port.len() <= 126 && address.len() <= 126)
        .ok_or(None)?;
    if port >= MOST_PORTS {
        let fix = format!("ports are 0 to {}", MOST_PORTS - 1);
        return Err(Some(Finding::error(line, "line", format!("invalid port number:{port}"), fix)));
    }
    Ok((port, mac(address).map(|address| Neighbour { line, address })))
}

/// An Ethernet address: six numbers in hexadecimal with colons between, each read by `strtoul`.
fn mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut rest = text;
    for (index, byte) in address.iter_mut().enumerate() {
        let (value, behind) = number::unsigned(rest, 16)?;
        *byte = u8::try_from(value).ok()?;
        rest = match index {
            5 if behind.is_empty() => behind,
            5 => return None,
            _ => behind.strip_prefix(':')?,
        };
    }
    Some(address)
}
