//! `sa`: a security association.

use super::Context;
use super::algorithm::{self, AEADS, CIPHERS, MACS, Named, Protection};
use super::finding::{Finding, Severity};
use super::number;
use super::settings::{Direction, Fallback, Family, Limits, Mode, Offload, Sa};
use super::tokens::{Tokens, shown};
use crypto::SecretBytes;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zeroize::Zeroizing;

/// What a line has given.
#[derive(Default)]
struct Draft {
    mode: Option<Form>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    cipher: Option<Named<algorithm::Cipher>>,
    mac: Option<Named<algorithm::Mac>>,
    aead: Option<Named<crypto::Cipher>>,
    cipher_key: Zeroizing<Vec<u8>>,
    mac_key: Zeroizing<Vec<u8>>,
    offload: Offload,
    port: Option<u16>,
    queue: Option<u8>,
    fallback: Option<Fallback>,
    udp_encapsulation: bool,
    mss: u16,
    extended_sequence: u64,
    telemetry: bool,
    reassembly: bool,
    limits: Limits,
}

/// The word behind `mode`.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Tunnel(Family),
    Transport,
}

/// Reads the words behind `sa`; nothing for an SPI of 0, whose line is ignored.
pub(super) fn read(tokens: &mut Tokens<'_>, context: &Context) -> Result<Option<Sa>, Finding> {
    let word = tokens.required("\"in\" or \"out\"")?;
    let direction = if word == "in" { Direction::Inbound } else { Direction::Outbound };
    if !matches!(word, "in" | "out") {
        let text = format!("{} stands for out: every word but in does", shown(word));
        tokens.warn("direction", text, "write sa in or sa out");
    }
    let word = tokens.required("SPI")?;
    if !number::is_digits(word) {
        let message = format!("input \"{}\" is not valid number string", shown(word));
        return Err(tokens.refuse(message, "write the SPI behind in or out, with decimal digits"));
    }
    let spi = tokens.cut("the SPI", word, i64::from(u32::MAX)) as u32;
    if spi == 0 {
        tokens.warn("spi-zero", "an SA with the SPI 0 is ignored", "give it an SPI from 256 to 4294967294");
        return Ok(None);
    }
    let mut draft = Draft::default();
    while let Some(word) = tokens.option() {
        option(tokens, context, direction, &mut draft, word)?;
    }
    finish(tokens, direction, spi, draft).map(Some)
}

fn option<'a>(
    tokens: &mut Tokens<'a>,
    context: &Context,
    direction: Direction,
    draft: &mut Draft,
    word: &'a str,
) -> Result<(), Finding> {
    match word {
        "mode" => mode(tokens, draft)?,
        "telemetry" => draft.telemetry = true,
        "cipher_algo" => {
            tokens.once(word)?;
            let cipher = algorithm(tokens, word, CIPHERS)?;
            draft.cipher_key = key(tokens, cipher.name, cipher.key_length, "cipher_key")?;
            draft.cipher = Some(cipher);
        }
        "auth_algo" => {
            tokens.once(word)?;
            let mac = algorithm(tokens, word, MACS)?;
            draft.mac_key = key(tokens, mac.name, mac.key_length, "auth_key")?;
            draft.mac = Some(mac);
        }
        "aead_algo" => {
            tokens.once(word)?;
            let aead = algorithm(tokens, word, AEADS)?;
            draft.cipher_key = key(tokens, aead.name, aead.key_length, "aead_key")?;
            draft.aead = Some(aead);
        }
        "src" => {
            tokens.once(word)?;
            draft.source = address(tokens, draft.mode, word)?;
        }
        "dst" => {
            tokens.once(word)?;
            draft.destination = address(tokens, draft.mode, word)?;
        }
        "type" => offload(tokens, draft)?,
        "port_id" => {
            tokens.once(word)?;
            port(tokens, draft, word)?;
        }
        "mss" => {
            let (text, _) = tokens.lenient(word)?;
            draft.mss = tokens.cut(word, text, i64::from(u16::MAX)) as u16;
        }
        "reassembly_en" => draft.reassembly = true,
        "esn" => draft.extended_sequence = tokens.lenient(word)?.1 as u64,
        "fallback" => fallback(tokens, context, direction, draft)?,
        "flow-direction" => flow_direction(tokens, context, draft)?,
        "udp-encap" => udp_encapsulation(tokens, context, draft)?,
        "lifetime" if !context.strict => draft.limits.seconds = limit(tokens, word, "seconds")?,
        "life-bytes" if !context.strict => draft.limits.bytes = limit(tokens, word, "bytes")?,
        "life-packets" if !context.strict => draft.limits.packets = limit(tokens, word, "packets")?,
        _ => {
            let fix = "an SA has mode, src, dst, cipher_algo, auth_algo, aead_algo, type, port_id, fallback, \
                       flow-direction, udp-encap, mss, esn, telemetry and reassembly_en, and here lifetime, life-bytes and life-packets; a key stands directly behind its algorithm";
            return Err(tokens.unrecognized(word, fix));
        }
    }
    Ok(())
}

fn mode(tokens: &mut Tokens<'_>, draft: &mut Draft) -> Result<(), Finding> {
    tokens.once("mode")?;
    draft.mode = Some(match tokens.argument("mode")? {
        "ipv4-tunnel" => Form::Tunnel(Family::V4),
        "ipv6-tunnel" => Form::Tunnel(Family::V6),
        "transport" => Form::Transport,
        word => return Err(tokens.unrecognized(word, "a mode is ipv4-tunnel, ipv6-tunnel or transport")),
    });
    Ok(())
}

fn algorithm<T: Copy>(tokens: &mut Tokens<'_>, of: &str, table: &[Named<T>]) -> Result<Named<T>, Finding> {
    let word = tokens.argument(of)?;
    algorithm::find(table, word).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|algorithm| algorithm.name).collect();
        tokens.unrecognized(word, format!("{of} is one of {}", names.join(", ")))
    })
}

/// The key behind an algorithm that has one.
fn key(tokens: &mut Tokens<'_>, of: &str, length: usize, word: &str) -> Result<Zeroizing<Vec<u8>>, Finding> {
    if length == 0 {
        return Ok(Zeroizing::default());
    }
    let found = tokens.argument(of)?;
    if found != word {
        let message = format!("unrecognized input \"{}\", expect \"{word}\"", shown(found));
        return Err(tokens.refuse(message, format!("write {word} and the key directly behind {of}")));
    }
    let text = tokens.argument(word)?;
    let (bytes, is_plain) = key_bytes(text);
    if bytes.len() != length {
        let found = if bytes.is_empty() {
            "parts of more than two digits".to_owned()
        } else {
            format!("{} bytes", bytes.len())
        };
        let fix = format!(
            "the key of {of} has {length} bytes in hexadecimal, with colons between; this one has {found}"
        );
        return Err(tokens.refuse("unrecognized input \"***\"", fix));
    }
    if !is_plain {
        let text = format!(
            "{word} has parts that are no hexadecimal number: they are read as 0, or up to the first other character"
        );
        tokens.warn("key-digits", text, "write each byte with one or two hexadecimal digits");
    }
    Ok(bytes)
}

/// The bytes of a key, none if a part is too long, and whether each part is a hexadecimal number.
fn key_bytes(text: &str) -> (Zeroizing<Vec<u8>>, bool) {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut is_plain = true;
    for part in text.split(':') {
        if part.len() > 2 {
            return (Zeroizing::default(), false);
        }
        is_plain &= !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(number::unsigned(part, 16).map_or(0, |(value, _)| value as u8));
    }
    (bytes, is_plain)
}

/// An outer address; nothing before `mode`, where it is ignored.
fn address(tokens: &mut Tokens<'_>, form: Option<Form>, word: &str) -> Result<Option<IpAddr>, Finding> {
    match form {
        Some(Form::Tunnel(family)) => {
            let read = tokens.address(word, family, "addr")?;
            if read.has_length {
                let text = format!("the prefix length of {word} is ignored");
                tokens.findings.push(Finding::new(
                    Severity::Note,
                    tokens.line(),
                    "length-ignored",
                    text,
                    "delete it",
                ));
            }
            Ok(Some(read.address))
        }
        Some(Form::Transport) => {
            let argument = tokens.argument(word)?;
            Err(tokens.unrecognized(argument, format!("an SA in transport mode has no {word}")))
        }
        None => {
            tokens.argument(word)?;
            tokens.warn(
                "address-before-mode",
                format!("{word} stands before mode, and is ignored"),
                "write mode first",
            );
            Ok(None)
        }
    }
}

fn offload(tokens: &mut Tokens<'_>, draft: &mut Draft) -> Result<(), Finding> {
    tokens.once("type")?;
    let word = tokens.argument("type")?;
    let found = Offload::WORDS.iter().find(|(name, _)| *name == word);
    draft.offload = found.map(|(_, offload)| *offload).ok_or_else(|| {
        let names: Vec<&str> = Offload::WORDS.iter().map(|(name, _)| *name).collect();
        tokens.refuse(
            format!("Invalid input \"{}\"", shown(word)),
            format!("type is one of {}", names.join(", ")),
        )
    })?;
    Ok(())
}

/// A port, which must be the one that was given before, if one was.
fn port(tokens: &mut Tokens<'_>, draft: &mut Draft, of: &str) -> Result<(), Finding> {
    let (word, value) = tokens.lenient(of)?;
    match draft.port {
        None => {
            let port = tokens.cut(of, word, i64::from(u16::MAX)) as u16;
            // 65535 stands for no port.
            draft.port = (port != u16::MAX).then_some(port);
            Ok(())
        }
        Some(port) if i64::from(value as i32) == i64::from(port) => Ok(()),
        Some(port) => {
            let message = format!("portid {} not matching with already assigned portid {port}", shown(word));
            Err(tokens.refuse(message, "port_id and flow-direction name the same port"))
        }
    }
}

fn fallback(
    tokens: &mut Tokens<'_>,
    context: &Context,
    direction: Direction,
    draft: &mut Draft,
) -> Result<(), Finding> {
    if context.library == Some(false) {
        return Err(tokens.refuse(
            "Fallback session not allowed for legacy mode.",
            "add -l to the command line, or delete fallback",
        ));
    }
    if draft.offload != Offload::InlineCrypto {
        let message = "Fallback session allowed if primary session is of type inline-crypto-offload only.";
        return Err(
            tokens.refuse(message, "write type inline-crypto-offload before fallback, or delete fallback")
        );
    }
    if direction == Direction::Outbound {
        return Err(tokens.refuse("Fallback session not allowed for egress rule", "delete fallback"));
    }
    tokens.once("fallback")?;
    draft.fallback = Some(match tokens.argument("fallback")? {
        "lookaside-none" => Fallback::Lookaside,
        "cpu-crypto" => Fallback::CpuCrypto,
        word => {
            let message = format!("unrecognized fallback type {}.", shown(word));
            return Err(tokens.refuse(message, "a fallback is lookaside-none or cpu-crypto"));
        }
    });
    Ok(())
}

fn flow_direction(tokens: &mut Tokens<'_>, context: &Context, draft: &mut Draft) -> Result<(), Finding> {
    if !draft.offload.is_software() {
        let number = draft.offload as u8;
        let message = format!("flow director not supported for security session type {number}");
        return Err(tokens.refuse(message, "write type no-offload or cpu-crypto, or delete flow-direction"));
    }
    port(tokens, draft, "flow-direction")?;
    let (word, _) = tokens.lenient("the queue of flow-direction")?;
    let queue = tokens.cut("the queue of flow-direction", word, i64::from(u8::MAX)) as u8;
    draft.queue = Some(queue);
    let port = draft.port.unwrap_or(u16::MAX);
    if let Some(queues) = &context.queues
        && !queues.contains(&(port, u16::from(queue)))
    {
        let text = format!("port id {port} / queue id {queue} is not valid: --config does not have it");
        tokens.warn("flow-direction", text, "name a port and a queue of --config");
    }
    Ok(())
}

fn udp_encapsulation(tokens: &mut Tokens<'_>, context: &Context, draft: &mut Draft) -> Result<(), Finding> {
    match draft.offload {
        Offload::InlineCrypto => draft.udp_encapsulation = true,
        Offload::InlineProtocol | Offload::LookasideProtocol => {
            tokens.once("udp-encap")?;
            draft.udp_encapsulation = true;
        }
        Offload::None | Offload::CpuCrypto if context.strict => {
            let number = draft.offload as u8;
            let message = format!("UDP encapsulation not supported for security session type {number}");
            return Err(
                tokens.refuse(message, "without --strict, Postern carries ESP of software SAs in UDP")
            );
        }
        Offload::None | Offload::CpuCrypto => {
            draft.udp_encapsulation = true;
            let text = "udp-encap on an SA without offload: ipsec-secgw refuses it, Postern carries ESP in UDP port 4500";
            let note = Finding::note(tokens.line(), "udp-encap", text, "");
            tokens.findings.push(note);
        }
    }
    Ok(())
}

/// The number behind a word that ipsec-secgw does not have.
fn limit<'a>(tokens: &mut Tokens<'a>, word: &'a str, unit: &str) -> Result<u64, Finding> {
    tokens.once(word)?;
    let text = tokens.argument(word)?;
    let number = text.parse().ok().filter(|&number: &u64| number > 0);
    let number = number.ok_or_else(|| {
        let message = format!("input \"{}\" is not valid number string", shown(text));
        tokens.refuse(message, format!("{word} takes a number of {unit}, from 1 on"))
    })?;
    let text = format!("{word} on an SA: ipsec-secgw refuses it, Postern ends the SA after so many {unit}");
    tokens.findings.push(Finding::note(tokens.line(), "lifetime", text, ""));
    Ok(number)
}

fn finish(tokens: &mut Tokens<'_>, direction: Direction, spi: u32, draft: Draft) -> Result<Sa, Finding> {
    let protection = protection(tokens, &draft)?;
    let Some(form) = draft.mode else {
        return Err(tokens.refuse("missing mode option", "write mode ipv4-tunnel, ipv6-tunnel or transport"));
    };
    let (mut offload, has_port) = (draft.offload, tokens.has("port_id"));
    if !offload.is_software() && !has_port {
        let text = "Missing portid option, falling back to non-offload";
        tokens.warn(
            "offload-without-port",
            text,
            format!("write port_id behind type {}, or delete type", offload.word()),
        );
    }
    if !tokens.has("type") || !has_port && offload != Offload::CpuCrypto {
        offload = Offload::None;
    }
    let mode = match form {
        Form::Transport => Mode::Transport,
        Form::Tunnel(family) => {
            let any: IpAddr = match family {
                Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
                Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            Mode::Tunnel {
                source: draft.source.unwrap_or(any),
                destination: draft.destination.unwrap_or(any),
            }
        }
    };
    let mut keys = Vec::with_capacity(draft.cipher_key.len() + draft.mac_key.len());
    keys.extend_from_slice(&draft.cipher_key);
    keys.extend_from_slice(&draft.mac_key);
    Ok(Sa {
        line: tokens.line(),
        direction,
        spi,
        mode,
        protection,
        keys: SecretBytes::new(keys),
        offload,
        port: draft.port,
        queue: draft.queue,
        fallback: draft.fallback,
        udp_encapsulation: draft.udp_encapsulation,
        mss: draft.mss,
        extended_sequence: draft.extended_sequence,
        telemetry: draft.telemetry,
        reassembly: draft.reassembly,
        limits: draft.limits,
    })
}

fn protection(tokens: &Tokens<'_>, draft: &Draft) -> Result<Protection, Finding> {
    match (draft.aead, draft.cipher, draft.mac) {
        (Some(_), Some(_), _) => {
            Err(tokens.refuse("AEAD used, no need for cipher options", "delete cipher_algo, or aead_algo"))
        }
        (Some(_), None, Some(_)) => {
            Err(tokens.refuse("AEAD used, no need for auth options", "delete auth_algo, or aead_algo"))
        }
        (Some(aead), None, None) => Ok(Protection::Aead(aead)),
        (None, None, _) => {
            Err(tokens
                .refuse("missing cipher or AEAD options", "write aead_algo, or cipher_algo and auth_algo"))
        }
        (None, Some(_), None) => Err(tokens.refuse("missing auth or AEAD options", "write auth_algo")),
        (None, Some(cipher), Some(mac)) => Ok(Protection::Pair(cipher, mac)),
    }
}
