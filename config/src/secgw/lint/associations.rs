//! Traps of SAs: duplicates, keys, weak algorithms, missing policies.

use crate::secgw::algorithm::{Cipher, Mac, Protection};
use crate::secgw::finding::Finding;
use crate::secgw::settings::{Action, Direction, Mode, Sa, Settings};
use crate::secgw::start::CommandLine;
use crypto::cipher::{Encryption, Integrity};
use std::collections::BTreeMap;

/// ipsec-secgw orders SPIs by their difference as a signed number.
const WIDEST: u32 = 1 << 31;

pub(super) fn lint(settings: &Settings, command_line: Option<&CommandLine>, findings: &mut Vec<Finding>) {
    for direction in Direction::ALL {
        let sas: Vec<&Sa> = settings.sas.iter().filter(|sa| sa.direction == direction).collect();
        duplicates(&sas, findings);
        wide(&sas, findings);
    }
    keys(settings, findings);
    for sa in &settings.sas {
        without_policy(settings, sa, findings);
        protection(sa, findings);
        addresses(sa, findings);
        legacy(sa, command_line, findings);
    }
    if command_line.is_some_and(|line| line.application.window == 0)
        && settings.sas.iter().any(|sa| sa.direction == Direction::Inbound)
    {
        let text = "without -w there is no replay protection: recorded packets are accepted again";
        findings.push(Finding::warning(None, "no-replay-window", text, "write -w 1024"));
    }
}

fn duplicates(sas: &[&Sa], findings: &mut Vec<Finding>) {
    let mut first: BTreeMap<u32, &Sa> = BTreeMap::new();
    for sa in sas {
        let Some(other) = first.get(&sa.spi) else {
            first.insert(sa.spi, sa);
            continue;
        };
        let text = match sa.direction {
            Direction::Inbound => format!(
                "SPI {} is that of line {} too: ipsec-secgw installs neither this SA nor any inbound one of a larger SPI, and says nothing; \
                 Postern takes the first one",
                sa.spi, other.line
            ),
            Direction::Outbound => format!(
                "SPI {} is that of line {} too: it is not defined which one a policy takes; Postern takes the first one",
                sa.spi, other.line
            ),
        };
        findings.push(Finding::warning(
            sa.line,
            "duplicate-spi",
            text,
            "give each SA of a direction an SPI of its own",
        ));
    }
}

fn wide(sas: &[&Sa], findings: &mut Vec<Finding>) {
    let Some(low) = sas.iter().map(|sa| sa.spi).min() else { return };
    if let Some(sa) = sas.iter().find(|sa| sa.spi - low >= WIDEST) {
        let text = format!(
            "SPI {} is {WIDEST} or more above SPI {low}: ipsec-secgw may not find SAs of this direction",
            sa.spi
        );
        findings.push(Finding::warning(
            sa.line,
            "wide-spi",
            text,
            "choose SPIs nearer to each other; Postern finds all",
        ));
    }
}

/// Keys that several SAs share. One inbound and one outbound SA may have the same key only if no counter repeats.
fn keys(settings: &Settings, findings: &mut Vec<Finding>) {
    let mut first: BTreeMap<&[u8], &Sa> = BTreeMap::new();
    for sa in settings.sas.iter().filter(|sa| !sa.keys.is_empty()) {
        let key = sa.keys.expose();
        if key.iter().all(|byte| *byte == key[0]) {
            let text = "each byte of the key is the same: it is the key of an example";
            findings.push(Finding::warning(sa.line, "example-key", text, "make a random key"));
        }
        let Some(other) = first.get(key) else {
            first.insert(key, sa);
            continue;
        };
        let harm = if sa.protection.counts() && other.protection.counts() {
            "their counters repeat, which reveals plaintext and lets packets be forged"
        } else {
            "packets of one may be accepted as those of the other"
        };
        let text = format!("the SA has the key of line {}: {harm}", other.line);
        findings.push(Finding::warning(sa.line, "shared-key", text, "give each SA a key of its own"));
    }
}

fn without_policy(settings: &Settings, sa: &Sa, findings: &mut Vec<Finding>) {
    let names = |action| action == Action::Protect(sa.spi);
    if settings.policies.iter().any(|policy| policy.direction == sa.direction && names(policy.action)) {
        return;
    }
    let text = match sa.direction {
        Direction::Inbound => format!(
            "no inbound policy says protect {}: packets of the SA are dropped after decryption",
            sa.spi
        ),
        Direction::Outbound => {
            format!("no outbound policy says protect {}: nothing is sent by the SA", sa.spi)
        }
    };
    let fix = format!("add a line sp {} with protect {}, or delete the SA", sa.direction.word(), sa.spi);
    findings.push(Finding::warning(sa.line, "sa-without-policy", text, fix));
}

fn protection(sa: &Sa, findings: &mut Vec<Finding>) {
    let mut warn = |rule, text: String, fix: &str| findings.push(Finding::warning(sa.line, rule, text, fix));
    let better = "write aead_algo aes-256-gcm or chacha20-poly1305";
    let (cipher, mac) = match sa.protection {
        Protection::Pair(cipher, mac) => (cipher, mac),
        Protection::Aead(aead) => {
            if aead.is.is_ccm() {
                let text = "CCM has 3 bytes of salt (RFC 4309): the last byte of the key is not used";
                findings.push(Finding::note(
                    sa.line,
                    "ccm-salt",
                    text,
                    "give the peer the key without its last byte",
                ));
            }
            return;
        }
    };
    match cipher.is {
        Cipher::Known(Encryption::Null) => {
            warn("null-cipher", "packets are not encrypted".to_owned(), better);
        }
        Cipher::Known(Encryption::TripleDesCbc) | Cipher::Des => {
            warn("weak-algorithm", format!("{} is weak: its blocks have 64 bits", cipher.name), better);
        }
        Cipher::Known(_) if mac.is == Mac::Gmac => {
            let text =
                format!("with aes-gmac, ipsec-secgw ignores {}: packets are not encrypted", cipher.name);
            warn("gmac-cipher", text, better);
        }
        Cipher::Known(_) => {}
    }
    match mac.is {
        Mac::Null => {
            warn("null-auth", "packets are not authenticated: anyone can change them".to_owned(), better);
        }
        Mac::Known(Integrity::HmacSha1) => {
            warn("weak-algorithm", "sha1-hmac rests on SHA-1".to_owned(), better);
        }
        Mac::Known(_) | Mac::Gmac => {}
    }
    if sa.protection.transform().is_none() {
        let text = format!("Postern has no ESP with cipher {} and MAC {}", cipher.name, mac.name);
        findings.push(Finding::note(sa.line, "not-served", text, better));
    }
}

fn addresses(sa: &Sa, findings: &mut Vec<Finding>) {
    let Mode::Tunnel { source, destination } = sa.mode else { return };
    let missing: Vec<&str> = [("src", source), ("dst", destination)]
        .into_iter()
        .filter(|(_, address)| address.is_unspecified())
        .map(|(word, _)| word)
        .collect();
    if !missing.is_empty() {
        let text = format!("the tunnel has no {}: its outer address is {source}", missing.join(" and no "));
        let fix = "write src and dst behind mode";
        findings.push(Finding::warning(sa.line, "tunnel-address", text, fix));
    } else if source == destination {
        let text = format!("both ends of the tunnel are {source}");
        findings.push(Finding::warning(
            sa.line,
            "tunnel-address",
            text,
            "src is the sending gateway, dst the receiving one",
        ));
    }
}

/// An algorithm that ipsec-secgw has only with `-l`, or only without.
fn legacy(sa: &Sa, command_line: Option<&CommandLine>, findings: &mut Vec<Finding>) {
    let name = sa.protection.name();
    match command_line.map(|command_line| command_line.application.library) {
        Some(false) | None if !sa.protection.is_in_legacy_path() => {
            let text = format!("without -l, ipsec-secgw drops every packet of {name}; Postern needs no -l");
            findings.push(Finding::note(sa.line, "library-algorithm", text, "run ipsec-secgw with -l"));
        }
        _ => {}
    }
    let both = command_line.is_none() && !sa.protection.is_in_library();
    if both {
        let text = format!("with -l, ipsec-secgw does not start with {name}");
        findings.push(Finding::note(sa.line, "library-algorithm", text, "run ipsec-secgw without -l"));
    }
}
