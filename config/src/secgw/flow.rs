//! `flow`: a rule for the flow director of a NIC.

use super::finding::Finding;
use super::settings::{Family, Flow, FlowAddress};
use super::tokens::{Tokens, shown};
use std::net::IpAddr;

/// The most rules.
pub(super) const MOST: usize = 128;

/// Reads the words behind `flow`; nothing for a rule that is ignored.
pub(super) fn read(tokens: &mut Tokens<'_>) -> Result<Option<Flow>, Finding> {
    let mut flow = Flow { line: tokens.line(), ..Flow::default() };
    while let Some(word) = tokens.option() {
        match word {
            "mark" => flow.mark = Some(tokens.number(word)? as u32),
            "eth" => flow.ethernet = true,
            "ipv4" => match address(tokens, Family::V4, flow.v4)? {
                Some(read) => flow.v4 = Some(read),
                None => return Ok(None),
            },
            "ipv6" => flow.v6 = address(tokens, Family::V6, flow.v6)?,
            "port" => flow.port = small(tokens, word)?,
            "queue" => flow.queue = Some(small(tokens, word)?),
            "count" => flow.count = true,
            "security" => flow.security = true,
            "set_mark" => flow.set_mark = Some(tokens.number(word)? as u32),
            _ => {
                let fix = "a flow has mark, eth, ipv4 or ipv6 with src or dst (one of them), port, queue, count, security and set_mark";
                return Err(tokens.refuse(format!("Unrecognized input:{}", shown(word)), fix));
            }
        }
    }
    Ok(Some(flow))
}

fn small(tokens: &mut Tokens<'_>, of: &str) -> Result<u16, Finding> {
    let number = tokens.number(of)?;
    if u16::try_from(number).is_err() {
        let text = format!("{of} {} is read as {}: only 16 bits are kept", number as u32, number as u16);
        tokens.warn("number-cut", text, format!("{of} is at most 65535"));
    }
    Ok(number as u16)
}

/// The address behind `ipv4` or `ipv6`; nothing if the rule is dropped.
fn address(
    tokens: &mut Tokens<'_>,
    family: Family,
    before: Option<FlowAddress>,
) -> Result<Option<FlowAddress>, Finding> {
    let mut flow = before.unwrap_or_default();
    let place: &mut Option<(IpAddr, u32)> = match tokens.argument(family.word())? {
        "src" => &mut flow.source,
        "dst" => &mut flow.destination,
        word => {
            let text = format!("{} behind {} is ignored", shown(word), family.word());
            tokens.warn("word-ignored", text, "write src or dst and an address there");
            return Ok(Some(flow));
        }
    };
    let noun = if family == Family::V4 { "addr" } else { "address" };
    let read = tokens.address("the address", family, noun)?;
    if family == Family::V4 && read.length > u32::from(family.bits()) {
        let text = format!("the rule is ignored: /{} is longer than an address", read.length);
        tokens.warn("flow-dropped", text, "a prefix length is at most 32");
        return Ok(None);
    }
    *place = Some((read.address, read.length));
    Ok(Some(flow))
}
