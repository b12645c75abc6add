//! `sp`: a policy.

use super::finding::Finding;
use super::number;
use super::settings::{Action, Direction, Family, Policy, Ports, Protocol};
use super::tokens::{Tokens, shown};
use ipnet::IpNet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Reads the words behind `sp`. Peers of IKE that it names are added to `ike_peers`.
pub(super) fn read(tokens: &mut Tokens<'_>, ike_peers: &mut Vec<String>) -> Result<Policy, Finding> {
    let word = tokens.required("ipv4 or ipv6")?;
    let family = match word {
        "ipv4" => Family::V4,
        "ipv6" => Family::V6,
        _ => {
            return Err(
                tokens.refuse(format!("unrecognizable input {}", shown(word)), "write sp ipv4 or sp ipv6")
            );
        }
    };
    let direction = match tokens.required("\"in\" or \"out\"")? {
        "in" => Direction::Inbound,
        "out" => Direction::Outbound,
        // ipsec-secgw names the word before the wrong one.
        _ => {
            let message = format!("unrecognized input \"{}\", expect \"in\" or \"out\"", family.word());
            return Err(
                tokens.refuse(message, format!("write sp {} in or sp {} out", family.word(), family.word()))
            );
        }
    };
    let mut policy = empty(tokens.line(), family, direction);
    while let Some(word) = tokens.option() {
        if word == "ike" {
            policy.action = ike(tokens, word, ike_peers)?;
        } else {
            option(tokens, &mut policy, word)?;
        }
    }
    finish(tokens)?;
    Ok(policy)
}

fn empty(line: u32, family: Family, direction: Direction) -> Policy {
    let any = match family {
        Family::V4 => IpNet::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        Family::V6 => IpNet::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
    .expect("0 bits fit");
    Policy {
        line,
        family,
        direction,
        action: Action::Discard,
        priority: 0,
        source: any,
        destination: any,
        protocol: Protocol::default(),
        source_ports: Ports::default(),
        destination_ports: Ports::default(),
    }
}

fn option<'a>(tokens: &mut Tokens<'a>, policy: &mut Policy, word: &'a str) -> Result<(), Finding> {
    match word {
        "esp" => tokens.once(word)?,
        "protect" => {
            tokens.once(word)?;
            conflict(tokens, word, &[("ike", "ike"), ("bypass", "bypass"), ("discard", "discard")])?;
            policy.action = protect(tokens)?;
        }
        "bypass" => {
            tokens.once(word)?;
            conflict(tokens, word, &[("ike", "ike"), ("protect", "protect"), ("discard", "discard")])?;
            policy.action = Action::Bypass;
        }
        "discard" => {
            tokens.once(word)?;
            // The message of ipsec-secgw names discard twice.
            conflict(tokens, word, &[("ike", "ike"), ("protect", "protect"), ("bypass", "discard")])?;
            policy.action = Action::Discard;
        }
        "pri" => {
            tokens.once(word)?;
            policy.priority = tokens.number(word)?;
        }
        "src" => {
            tokens.once(word)?;
            policy.source = network(tokens, word, policy.family)?;
        }
        "dst" => {
            tokens.once(word)?;
            policy.destination = network(tokens, word, policy.family)?;
        }
        "proto" => {
            tokens.once(word)?;
            policy.protocol = protocol(tokens)?;
        }
        "sport" => {
            tokens.once(word)?;
            policy.source_ports = tokens.range(word, "port_from:port_to")?;
        }
        "dport" => {
            tokens.once(word)?;
            policy.destination_ports = tokens.range(word, "port_from:port_to")?;
        }
        _ => {
            let fix = "a policy has esp, an action, pri, src, dst, proto, sport and dport";
            return Err(tokens.unrecognized(word, fix));
        }
    }
    Ok(())
}

/// `ike PEER`: in place of `protect SPI`, and of `esp`, which it implies.
fn ike<'a>(tokens: &mut Tokens<'a>, word: &'a str, ike_peers: &mut Vec<String>) -> Result<Action, Finding> {
    tokens.once(word)?;
    conflict(tokens, word, &["protect", "bypass", "discard"].map(|other| (other, other)))?;
    let name = tokens.argument(word)?;
    let place = ike_peers.iter().position(|peer| peer == name).unwrap_or_else(|| {
        ike_peers.push(name.to_owned());
        ike_peers.len() - 1
    });
    let many = |_| tokens.refuse("too many peers of IKE", format!("a file names at most {} peers", u16::MAX));
    u16::try_from(place).map(Action::Ike).map_err(many)
}

/// The others are given with the words that the message has for them.
fn conflict(tokens: &Tokens<'_>, word: &str, others: &[(&str, &str)]) -> Result<(), Finding> {
    match others.iter().find(|(other, _)| tokens.has(other)) {
        Some((_, other)) => {
            let message = format!("conflict item between \"{word}\" and \"{other}\"");
            Err(tokens.refuse(message, "a policy has one action"))
        }
        None => Ok(()),
    }
}

fn protect(tokens: &mut Tokens<'_>) -> Result<Action, Finding> {
    let word = tokens.argument("protect")?;
    if !number::is_digits(word) {
        let message = format!("input \"{}\" is not valid number string", shown(word));
        return Err(tokens.refuse(message, "protect takes the SPI of an SA"));
    }
    let spi = number::int(word) as u32;
    if matches!(spi, 0 | u32::MAX) {
        let fix = "0 and 4294967295 stand for discard and bypass; give the SA another SPI";
        return Err(tokens.refuse(format!("invalid SPI: {word}"), fix));
    }
    if number::long(word) != i64::from(spi) {
        let text = format!("SPI {word} is read as {spi}: only the low bits of the number are kept");
        tokens.warn("number-cut", text, "an SPI is at most 4294967294");
    }
    Ok(Action::Protect(spi))
}

/// Addresses; one without a length stands for all.
fn network(tokens: &mut Tokens<'_>, word: &str, family: Family) -> Result<IpNet, Finding> {
    let read = tokens.address(word, family, "addr")?;
    let bits = u32::from(family.bits());
    if !read.has_length && !read.address.is_unspecified() {
        let text = format!("{word} {} has no prefix length, and stands for every address", read.address);
        tokens.warn("any-address", text, format!("write {word} {}/{bits}", read.address));
    }
    if read.length > bits {
        let (text, rule) = match family {
            // rte_acl shifts by a negative number of bits.
            Family::V4 => (
                format!(
                    "/{} is longer than an address: ipsec-secgw may match every address, Postern matches /32",
                    read.length
                ),
                "prefix-length",
            ),
            Family::V6 => {
                (format!("/{} is longer than an address, and is read as /128", read.length), "prefix-length")
            }
        };
        tokens.warn(rule, text, format!("a prefix length of {word} is at most {bits}"));
    }
    Ok(IpNet::new(read.address, read.length.min(bits) as u8).expect("the length fits"))
}

fn protocol(tokens: &mut Tokens<'_>) -> Result<Protocol, Finding> {
    let range = tokens.range("proto", "from:to")?;
    let fix = "proto takes a number and a mask of 8 bits, such as 17:255 for UDP";
    let part = |part: u16, name: &str| {
        u8::try_from(part).map_err(|_| tokens.refuse(format!("proto {name} over-limit"), fix))
    };
    Ok(Protocol { value: part(range.low, "low")?, mask: part(range.high, "high")? })
}

fn finish(tokens: &Tokens<'_>) -> Result<(), Finding> {
    if tokens.has("ike") {
        return Ok(());
    }
    if !tokens.has("esp") {
        return Err(tokens.refuse("missing argument \"esp\"", "write esp"));
    }
    if !["protect", "bypass", "discard"].into_iter().any(|action| tokens.has(action)) {
        let message = "missing argument \"protect\", \"bypass\", or \"discard\"";
        return Err(tokens.refuse(message, "write protect SPI, bypass or discard"));
    }
    Ok(())
}
