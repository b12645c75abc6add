//! `system`.

use super::value::Type;
use super::{Inner, Node, flag, inner, value, values};

/// Crypto engines that a cipher can be pinned to, by their names in `crypto`.
pub const ENGINES: &[&str] = &["aws-lc", "multi-buffer", "ipsec-mb", "openssl", "af-alg", "cryptodev"];

const fn pin(path: &'static str) -> Node {
    value(path, Type::Word(ENGINES), "Crypto engine for this cipher (default: the fastest one measured)")
}

macro_rules! pins {
    ($($cipher:literal),*) => { [$(pin(concat!("system crypto engine ", $cipher))),*] };
}

/// A cipher with each of the MACs.
macro_rules! pairs {
    ($encryption:literal) => {
        [
            pin(concat!("system crypto engine ", $encryption, "+hmac-sha1-96")),
            pin(concat!("system crypto engine ", $encryption, "+hmac-sha256-128")),
            pin(concat!("system crypto engine ", $encryption, "+hmac-sha384-192")),
            pin(concat!("system crypto engine ", $encryption, "+hmac-sha512-256")),
            pin(concat!("system crypto engine ", $encryption, "+aes-xcbc-96")),
        ]
    };
}

pub(super) static INNER: &[Inner] = &[
    inner("system", "Settings of the gateway as a whole"),
    inner("system acceleration", "Crypto accelerators"),
    inner("system config-management", "Revisions of the configuration"),
    inner("system config-management commit-archive", "Copies of each revision in other places"),
    inner("system crypto", "Encryption of packets"),
    inner("system crypto engine", "Crypto engine for each cipher"),
    inner("system ip", "IPv4 settings of the machine"),
    inner("system ipv6", "IPv6 settings of the machine"),
];

/// How many revisions are kept unless it is set.
const REVISIONS: &str = "1000";

pub(super) static NODES: &[Node] = &[
    values(
        "system config-management commit-archive location",
        Type::Location,
        "Folder, or URL of one, for a copy of each revision",
    ),
    value(
        "system config-management commit-archive source-address",
        Type::Address,
        "Address that copies are sent from",
    ),
    value("system config-management commit-revisions", Type::Number(1, 65_535), "Revisions that are kept")
        .or(REVISIONS),
    flag("system acceleration qat", "Use hardware crypto accelerators where they are fastest"),
    flag("system ip disable-forwarding", "Forward no IPv4 packets between interfaces"),
    flag("system ip forwarding", "Forward IPv4 packets between interfaces"),
    flag("system ipv6 disable-forwarding", "Forward no IPv6 packets between interfaces"),
    flag("system ipv6 forwarding", "Forward IPv6 packets between interfaces"),
    flag("system allow-empty", "Accept a configuration without interfaces and peers"),
    flag("system open-at-exit", "Let protected networks be reached unencrypted when the gateway stops"),
];

/// Ciphers that authenticate. AES-GMAC is done by the engine of its GCM cipher.
pub(super) static CIPHER_PINS: &[Node] = &pins![
    "aes-128-ccm",
    "aes-128-gcm",
    "aes-192-ccm",
    "aes-192-gcm",
    "aes-256-ccm",
    "aes-256-gcm",
    "chacha20-poly1305"
];

/// Ciphers with a MAC, by the names of their pairs.
pub(super) static PAIR_PINS: &[[Node; 5]] = &[
    pairs!("null"),
    pairs!("aes-128-cbc"),
    pairs!("aes-192-cbc"),
    pairs!("aes-256-cbc"),
    pairs!("aes-128-ctr"),
    pairs!("aes-192-ctr"),
    pairs!("aes-256-ctr"),
    pairs!("3des-cbc"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Cipher;
    use crypto::cipher::{Encryption, Integrity, Pair};

    #[test]
    fn every_cipher_and_every_pair_can_be_pinned() {
        let pairs = Encryption::ALL.iter().flat_map(|&encryption| {
            Integrity::ALL.iter().map(move |&integrity| Pair { encryption, integrity }.name())
        });
        let mut known: Vec<String> =
            Cipher::ALL.iter().map(|cipher| cipher.name().to_owned()).chain(pairs).collect();
        let pins = CIPHER_PINS.iter().chain(PAIR_PINS.iter().flatten());
        let mut pinned: Vec<String> = pins.map(|pin| pin.path.replace("system crypto engine ", "")).collect();
        known.sort();
        pinned.sort();
        assert_eq!(pinned, known);
    }
}
