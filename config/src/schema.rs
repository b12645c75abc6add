//! The grammar as a table: one entry a node, in VyOS's words and with VyOS's ranges and defaults.
//!
//! A path names the words from the root. A word in angle brackets stands for a name that the user chooses.

use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;
use zeroize::Zeroizing;

/// What a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: it is there or not.
    Flag,
    /// One value.
    Value(Type),
    /// Any number of values.
    Values(Type),
}

/// What a value, or a name that the user chooses, must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number, both ends included.
    Number(u32, u32),
    /// An address with its prefix length: 10.1.0.1/30.
    Host,
    /// A prefix: 10.1.0.0/24.
    Prefix,
    /// An address.
    Address,
    /// 32 bytes in base64.
    Key,
    /// Up to so many characters.
    Text(usize),
    /// One of these words.
    Word(&'static [&'static str]),
    /// These letters and a number: wg0.
    Interface(&'static str),
    /// A name without spaces.
    Name,
}

/// A node that may be set.
#[derive(Debug)]
pub struct Node {
    /// The words from the root.
    pub path: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds when it is not set.
    pub default: Option<&'static str>,
    /// Whether its value must not be shown.
    pub secret: bool,
    /// What it is for.
    pub help: &'static str,
}

/// A name that the user chooses, by the path that ends in it.
#[derive(Debug)]
pub struct Tag {
    /// The path.
    pub path: &'static str,
    /// What the name must look like.
    pub kind: Type,
    /// What it names.
    pub help: &'static str,
}

const fn node(path: &'static str, kind: Kind, help: &'static str) -> Node {
    Node { path, kind, default: None, secret: false, help }
}

const PORT: Type = Type::Number(1, 65_535);

/// Offloads that can be switched off, by their names in the ports.
pub const OFFLOADS: &[&str] = &["tun-tso", "tun-uso", "tun-gro", "udp-gso", "udp-gro"];

/// Crypto engines that a cipher can be pinned to, by their names in `crypto`.
pub const ENGINES: &[&str] = &["aws-lc", "ipsec-mb", "openssl", "af-alg", "cryptodev"];
const PINNED: &str = "The engine for this cipher; the fastest measured if not set";

/// The names that the user chooses.
pub static TAGS: &[Tag] = &[
    Tag {
        path: "interfaces wireguard <interface>",
        kind: Type::Interface("wg"),
        help: "WireGuard interface",
    },
    Tag { path: "interfaces wireguard <interface> peer <peer>", kind: Type::Name, help: "Name of the peer" },
];

/// Everything that may be set.
pub static NODES: &[Node] = &[
    node("interfaces wireguard <interface> address", Kind::Values(Type::Host), "Address of the interface"),
    node("interfaces wireguard <interface> description", Kind::Value(Type::Text(255)), "What it is for"),
    node("interfaces wireguard <interface> disable", Kind::Flag, "Leave the interface down"),
    node(
        "interfaces wireguard <interface> disable-offload",
        Kind::Values(Type::Word(OFFLOADS)),
        "An offload not to be used",
    ),
    Node {
        default: Some("0"),
        ..node(
            "interfaces wireguard <interface> fwmark",
            Kind::Value(Type::Number(0, u32::MAX)),
            "Mark on outgoing datagrams, for policy routing; 0 for none",
        )
    },
    Node {
        default: Some("1420"),
        ..node(
            "interfaces wireguard <interface> mtu",
            Kind::Value(Type::Number(68, 65_475)),
            "Largest packet inside the tunnel",
        )
    },
    node("interfaces wireguard <interface> per-client-thread", Kind::Flag, "Accepted; has no effect"),
    node(
        "interfaces wireguard <interface> port",
        Kind::Value(PORT),
        "UDP port to listen on; any free one if not set",
    ),
    Node {
        secret: true,
        ..node("interfaces wireguard <interface> private-key", Kind::Value(Type::Key), "Our private key")
    },
    node(
        "interfaces wireguard <interface> peer <peer> address",
        Kind::Value(Type::Address),
        "Address of the peer; it may call us from anywhere if not set",
    ),
    node(
        "interfaces wireguard <interface> peer <peer> allowed-ips",
        Kind::Values(Type::Prefix),
        "What is reached through the peer, and what it may send from",
    ),
    node(
        "interfaces wireguard <interface> peer <peer> description",
        Kind::Value(Type::Text(255)),
        "Who it is",
    ),
    node("interfaces wireguard <interface> peer <peer> disable", Kind::Flag, "As if the peer were not there"),
    node(
        "interfaces wireguard <interface> peer <peer> persistent-keepalive",
        Kind::Value(Type::Number(1, 65_535)),
        "Seconds between packets that keep the path open",
    ),
    node("interfaces wireguard <interface> peer <peer> port", Kind::Value(PORT), "UDP port of the peer"),
    Node {
        secret: true,
        ..node(
            "interfaces wireguard <interface> peer <peer> preshared-key",
            Kind::Value(Type::Key),
            "Key that both sides share beforehand",
        )
    },
    node(
        "interfaces wireguard <interface> peer <peer> public-key",
        Kind::Value(Type::Key),
        "Public key of the peer",
    ),
    node(
        "system acceleration qat",
        Kind::Flag,
        "Use crypto accelerators on a bus where they are the fastest",
    ),
    node("system crypto engine aes-128-ccm", Kind::Value(Type::Word(ENGINES)), PINNED),
    node("system crypto engine aes-128-gcm", Kind::Value(Type::Word(ENGINES)), PINNED),
    node("system crypto engine aes-192-ccm", Kind::Value(Type::Word(ENGINES)), PINNED),
    node("system crypto engine aes-192-gcm", Kind::Value(Type::Word(ENGINES)), PINNED),
    node("system crypto engine aes-256-ccm", Kind::Value(Type::Word(ENGINES)), PINNED),
    node("system crypto engine aes-256-gcm", Kind::Value(Type::Word(ENGINES)), PINNED),
    node("system crypto engine chacha20-poly1305", Kind::Value(Type::Word(ENGINES)), PINNED),
];

/// Nodes of VyOS that are not served here, so that a line with one is told from a misspelt one.
pub static NOT_SERVED: &[&str] = &[
    "interfaces wireguard <interface> ip",
    "interfaces wireguard <interface> ipv6",
    "interfaces wireguard <interface> mirror",
    "interfaces wireguard <interface> redirect",
    "interfaces wireguard <interface> vrf",
];

impl Type {
    /// Whether `text` is a value of this type, and if not, what is.
    pub fn check(self, text: &str) -> Result<(), String> {
        let refuse = |expected: String| Err(format!("{text:?} is not {expected}"));
        match self {
            Self::Number(low, high) => match text.parse::<u32>() {
                Ok(number) if (low..=high).contains(&number) => Ok(()),
                _ => refuse(format!("a number from {low} to {high}")),
            },
            Self::Host if text.parse::<IpNet>().is_err() => {
                refuse("an address with its prefix length, such as 10.1.0.1/30".to_owned())
            }
            Self::Prefix => match text.parse::<IpNet>() {
                Ok(prefix) if prefix.trunc() == prefix => Ok(()),
                Ok(prefix) => {
                    refuse(format!("a prefix: it has bits set beyond its length; write {}", prefix.trunc()))
                }
                Err(_) => refuse("a prefix, such as 10.1.0.0/24".to_owned()),
            },
            Self::Address if text.parse::<IpAddr>().is_err() => refuse("an IPv4 or IPv6 address".to_owned()),
            // The text may be a secret.
            Self::Key if key_of(text).is_none() => {
                Err("not a key: 32 bytes in base64, 44 characters ending in =".to_owned())
            }
            Self::Text(longest) if text.chars().count() > longest => {
                Err(format!("longer than {longest} characters"))
            }
            Self::Word(words) if !words.contains(&text) => refuse(format!("one of {}", words.join(", "))),
            Self::Interface(letters) => {
                match text.strip_prefix(letters) {
                    Some(digits)
                        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
                    {
                        if text.len() > 15 { refuse("at most 15 characters long".to_owned()) } else { Ok(()) }
                    }
                    _ => refuse(format!("{letters} and a number, such as {letters}0")),
                }
            }
            Self::Name
                if text.is_empty() || text.chars().count() > 100 || text.contains(char::is_whitespace) =>
            {
                refuse("a name of 1 to 100 characters without spaces".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The bytes of a key in base64.
pub(crate) fn key_of(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    let decoded = <base64ct::Base64 as base64ct::Encoding>::decode(text, &mut *bytes).ok()?;
    (decoded.len() == 32).then_some(bytes)
}

/// A place in the grammar: the node, the tag, or the inner word that some words lead to.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// It may be set.
    Node(&'static Node),
    /// A chosen name.
    Tag(&'static Tag),
    /// More words follow.
    Inner,
    /// VyOS has it, we do not serve it.
    NotServed,
}

/// The table as a tree, so that a word is found in a step and not in a search.
#[derive(Default)]
struct Grammar {
    words: BTreeMap<&'static str, Grammar>,
    node: Option<&'static Node>,
    tag: Option<&'static Tag>,
    not_served: bool,
}

impl Grammar {
    fn at(&mut self, path: &'static str) -> &mut Self {
        // All names that may be chosen at a place share one branch.
        path.split(' ').fold(self, |grammar, word| {
            let word = if word.starts_with('<') { "<" } else { word };
            grammar.words.entry(word).or_default()
        })
    }

    fn find(&self, words: &[&str]) -> Option<&Self> {
        words
            .iter()
            .try_fold(self, |grammar, word| grammar.words.get::<str>(word).or_else(|| grammar.words.get("<")))
    }
}

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| {
    let mut root = Grammar::default();
    for node in NODES {
        root.at(node.path).node = Some(node);
    }
    for tag in TAGS {
        root.at(tag.path).tag = Some(tag);
    }
    for path in NOT_SERVED {
        root.at(path).not_served = true;
    }
    root
});

/// The place that words lead to.
pub fn find(words: &[&str]) -> Option<Place> {
    let found = GRAMMAR.find(words)?;
    Some(match (found.node, found.tag) {
        (Some(node), _) => Place::Node(node),
        (None, Some(tag)) => Place::Tag(tag),
        (None, None) if found.not_served => Place::NotServed,
        (None, None) => Place::Inner,
    })
}

/// The words that may follow `words`; a name that may be chosen is shown as what it names.
pub fn following(words: &[&str]) -> Vec<&'static str> {
    let Some(found) = GRAMMAR.find(words) else { return Vec::new() };
    let served = found.words.iter().filter(|(_, grammar)| !grammar.not_served);
    served.map(|(word, grammar)| grammar.tag.map_or(*word, |tag| last_word(tag.path))).collect()
}

/// The names of all nodes whose values must not be shown.
pub fn secrets() -> impl Iterator<Item = &'static str> {
    NODES.iter().filter(|node| node.secret).map(|node| last_word(node.path))
}

fn last_word(path: &'static str) -> &'static str {
    path.rsplit(' ').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found_and_every_default_is_valid() {
        for node in NODES {
            let words: Vec<&str> = node.path.split(' ').collect();
            assert!(
                matches!(find(&words), Some(Place::Node(found)) if std::ptr::eq(found, node)),
                "{}",
                node.path
            );
            if let (Some(default), Kind::Value(kind) | Kind::Values(kind)) = (node.default, node.kind) {
                assert_eq!(kind.check(default), Ok(()), "{}", node.path);
            }
        }
    }

    #[test]
    fn values_are_checked_and_refused_with_what_is_expected() {
        let key = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
        for (kind, good, bad, said) in [
            (Type::Number(68, 16_000), "1420", "67", "from 68 to 16000"),
            (Type::Host, "10.1.0.1/30", "10.1.0.1", "10.1.0.1/30"),
            (Type::Prefix, "10.1.0.0/24", "10.1.0.1/24", "write 10.1.0.0/24"),
            (Type::Prefix, "::/0", "10.1.0.0", "10.1.0.0/24"),
            (Type::Address, "2001:db8::1", "berlin", "address"),
            (Type::Key, key, "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWl==", "base64"),
            (Type::Text(5), "abcde", "abcdef", "5 characters"),
            (Type::Word(OFFLOADS), "udp-gso", "gso", "tun-tso"),
            (Type::Interface("wg"), "wg01", "wg", "wg0"),
            (Type::Interface("wg"), "wg0123456789012", "wg01234567890123", "15 characters"),
            (Type::Name, "peer-203.0.113.10", "a b", "without spaces"),
        ] {
            assert_eq!(kind.check(good), Ok(()), "{kind:?}");
            let message = kind.check(bad).expect_err("bad");
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn a_bad_key_is_not_repeated() {
        assert!(!Type::Key.check("mysecret").expect_err("bad").contains("mysecret"));
    }

    #[test]
    fn following_words_complete_a_path() {
        assert_eq!(following(&["interfaces", "wireguard"]), ["<interface>"]);
        assert!(following(&["interfaces", "wireguard", "wg0", "peer", "a"]).contains(&"public-key"));
        assert!(following(&["interfaces", "bonding"]).is_empty());
    }
}
