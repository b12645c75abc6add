//! The types of values, and the errors for invalid ones.

use super::form::{Form, is_domain};
use super::location::Location;
use super::matching::Matching;
use crate::settings::Processors;
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use zeroize::Zeroizing;

/// The content of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No value: the node is set or not.
    Flag,
    /// No value, or a value as in older versions of VyOS.
    FlagOr(Type),
    /// No value; more words may follow.
    Branch,
    /// One value.
    Value(Type),
    /// Any number of values.
    Values(Type),
}

/// The type of a value, or of a name that the user chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number, both ends included.
    Number(u64, u64),
    /// A number with up to two decimals, both ends included, in hundredths.
    Decimal(u32, u32),
    /// An address with its prefix length: 10.1.0.1/30.
    Host,
    /// The same, or the word for one that is got by DHCP.
    HostOrDhcp,
    /// A prefix: 10.1.0.0/24.
    Prefix,
    /// An address.
    Address,
    /// The same, beside `host-name` for names.
    AddressNoName,
    /// An address, with or without a port: 192.0.2.1, 192.0.2.1:51820 or [2001:db8::1]:51820.
    Endpoint,
    /// An address or a prefix.
    Network,
    /// An address, or `any`.
    AddressOrAny,
    /// An address, a domain name, or `any`.
    PeerAddress,
    /// The name or number of an IP protocol.
    Protocol,
    /// The limit of the MSS: a number of bytes, or the size that fits the MTU.
    SegmentSize,
    /// A number, both ends included, or `auto`.
    NumberOrAuto(u64, u64),
    /// Processors of this machine, by numbers and ranges.
    Processors,
    /// 32 bytes in base64.
    Key,
    /// Bytes in base64: the text between the lines `-----BEGIN` and `-----END` of a PEM file.
    Base64,
    /// The 256 bytes of a static key of OpenVPN, in hexadecimal digits.
    StaticKey,
    /// A SHA-256 fingerprint: 32 bytes in hexadecimal digits, with colons between them.
    Fingerprint,
    /// Text of up to this many characters.
    Text(usize),
    /// A secret of up to this many characters.
    Secret(usize),
    /// The path of a file, which a backup has to have too.
    File,
    /// A folder for copies, here or on another machine.
    Location,
    /// One of these words.
    Word(&'static [&'static str]),
    /// These letters and a number: wg0.
    Interface(&'static str),
    /// A name without spaces.
    Name,
    /// The name of another branch of the configuration, given by the path of its tag.
    Reference(&'static str),
    /// What is written into a file of another program.
    Form(Form),
    /// What packets are told apart by.
    Matching(Matching),
}

/// Leaves a number to the program.
const AUTO: &str = "auto";

/// Characters in the path of a file.
const LONGEST_PATH: usize = 1024;

/// The maximum number of words listed in an error.
const LISTED: usize = 12;

impl Kind {
    /// The type of its values.
    pub fn value_type(self) -> Option<Type> {
        match self {
            Self::Flag | Self::Branch => None,
            Self::FlagOr(kind) | Self::Value(kind) | Self::Values(kind) => Some(kind),
        }
    }
}

impl Type {
    /// Whether its values are paths of files on this machine.
    pub fn names_a_file(self) -> bool {
        matches!(self, Self::File | Self::Form(Form::Program))
    }

    /// Checks whether `text` is a value of this type; the error tells which values are.
    pub fn check(self, text: &str) -> Result<(), String> {
        let is_right = match self {
            Self::Number(low, high) => whole(text).is_some_and(|number| (low..=high).contains(&number)),
            Self::Decimal(low, high) => hundredths(text).is_some_and(|number| (low..=high).contains(&number)),
            Self::Host => text.parse::<IpNet>().is_ok(),
            Self::HostOrDhcp => text == DHCP || text.parse::<IpNet>().is_ok(),
            Self::Prefix => text.parse::<IpNet>().is_ok_and(|prefix| prefix.trunc() == prefix),
            Self::Address | Self::AddressNoName => text.parse::<IpAddr>().is_ok(),
            Self::Endpoint => endpoint_of(text).is_some(),
            Self::Network => text.parse::<IpAddr>().is_ok() || Self::Prefix.check(text).is_ok(),
            Self::AddressOrAny => text == "any" || text.parse::<IpAddr>().is_ok(),
            Self::PeerAddress => text.parse::<IpAddr>().is_ok() || is_domain(text),
            Self::Protocol => protocol(text).is_some() || text == ALL_PROTOCOLS,
            Self::SegmentSize => {
                text == FITTING || whole(text).is_some_and(|number| (536..=65_535).contains(&number))
            }
            Self::NumberOrAuto(low, high) => text == AUTO || Self::Number(low, high).check(text).is_ok(),
            Self::Processors => text.parse::<Processors>().is_ok(),
            Self::Key => key_of(text).is_some(),
            Self::Base64 => bytes_of(text).is_some_and(|bytes| !bytes.is_empty()),
            Self::StaticKey => text.len() == 512 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
            Self::Fingerprint => is_fingerprint(text),
            // Elsewhere a line is a setting.
            Self::Text(longest) => text.chars().count() <= longest && !text.contains(char::is_control),
            Self::Secret(longest) => {
                !text.is_empty() && text.chars().count() <= longest && !text.contains(char::is_control)
            }
            Self::File => is_path(text),
            Self::Location => Location::parse(text).is_ok(),
            Self::Word(words) => words.contains(&text),
            Self::Interface(letters) => interface(letters, text),
            Self::Name | Self::Reference(_) => {
                let is_one_word = |letter: char| !letter.is_whitespace() && !letter.is_control();
                !text.is_empty() && text.chars().count() <= 100 && text.chars().all(is_one_word)
            }
            Self::Form(form) => form.fits(text),
            Self::Matching(matching) => matching.fits(text),
        };
        if is_right { Ok(()) } else { Err(self.refusal(text)) }
    }

    /// Whether values are shown in the configuration, and hidden in logs and where others read them.
    pub(crate) fn is_private(self) -> bool {
        matches!(self, Self::Form(form) if form.is_private())
    }

    /// What a value must be, for errors and for the reference.
    pub fn expected(self) -> String {
        match self {
            Self::Number(low, high) => format!("a number from {low} to {high}"),
            Self::Decimal(low, high) => {
                format!("a number from {} to {}", f64::from(low) / 100.0, f64::from(high) / 100.0)
            }
            Self::Host => "an address with its prefix length, such as 10.1.0.1/30".to_owned(),
            Self::HostOrDhcp => "an address with its prefix length, such as 10.1.0.1/30, or dhcp".to_owned(),
            Self::Prefix => "a prefix, such as 10.1.0.0/24".to_owned(),
            Self::Address | Self::AddressNoName => "an IPv4 or IPv6 address".to_owned(),
            Self::Endpoint => {
                "an IPv4 or IPv6 address, or one with a port, such as 192.0.2.1:51820 or [2001:db8::1]:51820"
                    .to_owned()
            }
            Self::Network => "an address, or a prefix such as 10.1.0.0/24".to_owned(),
            Self::AddressOrAny => "an IPv4 or IPv6 address, or any".to_owned(),
            Self::PeerAddress => "an IPv4 or IPv6 address, a domain name, or any".to_owned(),
            Self::Protocol => "an IP protocol: a number from 0 to 255 or a name such as tcp".to_owned(),
            Self::SegmentSize => format!("a number from 536 to 65535, or {FITTING}"),
            Self::NumberOrAuto(low, high) => format!("a number from {low} to {high}, or {AUTO}"),
            Self::Processors => "a list of processors, such as 2-5,8".to_owned(),
            Self::Key => "32 bytes in base64, 44 characters ending in =".to_owned(),
            Self::Base64 => "base64, in one line".to_owned(),
            Self::StaticKey => "512 hexadecimal digits, in one line".to_owned(),
            Self::Fingerprint => "32 bytes in hexadecimal digits, with colons between them".to_owned(),
            Self::Text(longest) => format!("at most {longest} characters"),
            Self::Secret(longest) => format!("1 to {longest} characters"),
            Self::Location => "a folder, or a URL of one: scp, sftp, http, https or ftp".to_owned(),
            Self::File => format!("the path of a file, of up to {LONGEST_PATH} characters"),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Interface(letters) => format!("{letters} and a number, such as {letters}0"),
            Self::Name | Self::Reference(_) => "a name of 1 to 100 characters without spaces".to_owned(),
            Self::Form(form) => form.expected(),
            Self::Matching(matching) => matching.expected().to_owned(),
        }
    }

    /// What to write instead of an invalid value, if the error does not show it.
    pub fn advice(self, text: &str) -> Option<String> {
        match self {
            Self::Number(low, _) if whole(text).is_some_and(|number| number < low) => {
                Some(format!("write {low} or more"))
            }
            Self::Number(_, high) if whole(text).is_some_and(|number| number > high) => {
                Some(format!("write {high} or less"))
            }
            Self::Number(..) => Some("write its digits alone".to_owned()),
            Self::Address | Self::AddressOrAny | Self::Endpoint if is_domain(text) => {
                Some(format!("names are not resolved here: write the address; getent ahosts {text} shows it"))
            }
            Self::AddressNoName if is_domain(text) => Some(format!("a name has a word of its own: host-name {text}")),
            Self::Address | Self::AddressNoName | Self::AddressOrAny => {
                Some("write an address such as 192.0.2.1 or 2001:db8::1".to_owned())
            }
            Self::Host if matches!(text, "dhcp" | "dhcpv6") => {
                Some("write an address: interfaces ethernet and bridge get theirs by DHCP".to_owned())
            }
            Self::HostOrDhcp if text == "dhcpv6" => {
                Some("let the operating system get it by DHCPv6, and take the line out".to_owned())
            }
            Self::Host | Self::HostOrDhcp if text.parse::<IpAddr>().is_ok() => {
                Some(format!("write the length of its network behind it: {text}/24"))
            }
            Self::Location if text.contains('@') => Some(
                "for scp use a key: ssh-copy-id user@host, then scp://user@host/folder; for http and ftp a .netrc file"
                    .to_owned(),
            ),
            Self::Location => Some("write /folder, or scp://user@host/folder".to_owned()),
            Self::StaticKey => {
                Some("postern generate pki openvpn shared-secret prints a new one".to_owned())
            }
            Self::Fingerprint => Some("openssl x509 -in FILE -noout -fingerprint -sha256 prints it".to_owned()),
            Self::Key => Some("postern generate pki wireguard key-pair prints a new pair".to_owned()),
            _ => None,
        }
    }

    /// The error for an invalid value. A possible secret is not repeated.
    fn refusal(self, text: &str) -> String {
        let expected = match self {
            Self::Prefix if let Ok(prefix) = text.parse::<IpNet>() => {
                format!("a prefix: host bits are set; write {}", prefix.trunc())
            }
            Self::Key => return format!("not a key: {}", self.expected()),
            Self::Base64 => {
                return "not base64: join the lines between BEGIN and END of a PEM file into one".to_owned();
            }
            Self::StaticKey => {
                return "not a static key: join the lines between BEGIN and END of its file into one"
                    .to_owned();
            }
            Self::Text(_) if text.contains(char::is_control) => {
                return "more than one line, or characters that cannot be shown".to_owned();
            }
            Self::Text(longest) => return format!("longer than {longest} characters"),
            Self::Location => return Location::parse(text).err().unwrap_or_default(),
            Self::Secret(_) => return format!("not a secret of {}", self.expected()),
            Self::Word(words) if words.len() > LISTED => {
                format!("one of the {} valid words", words.len())
            }
            Self::Interface(_) if text.len() > 15 => "at most 15 characters long".to_owned(),
            Self::Form(form) if form.is_private() => return format!("not {}", form.expected()),
            _ => self.expected(),
        };
        format!("{text:?} is not {expected}")
    }
}

/// What a value looks like, in a list of what may follow.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(low, high) => write!(f, "<{low}-{high}>"),
            Self::Decimal(low, high) => {
                write!(f, "<{}-{}>", f64::from(*low) / 100.0, f64::from(*high) / 100.0)
            }
            Self::Host => f.write_str("<address/length>"),
            Self::HostOrDhcp => f.write_str("<address/length>|dhcp"),
            Self::Prefix => f.write_str("<prefix/length>"),
            Self::Address | Self::AddressNoName => f.write_str("<address>"),
            Self::Endpoint => f.write_str("<address>|<address:port>"),
            Self::Network => f.write_str("<address>|<prefix/length>"),
            Self::AddressOrAny => f.write_str("<address>|any"),
            Self::PeerAddress => f.write_str("<address>|<domain>|any"),
            Self::Protocol => write!(f, "<0-255>|<name>|{ALL_PROTOCOLS}"),
            Self::SegmentSize => write!(f, "<536-65535>|{FITTING}"),
            Self::NumberOrAuto(low, high) => write!(f, "<{low}-{high}>|{AUTO}"),
            Self::Processors => f.write_str("<list>"),
            Self::Key => f.write_str("<key>"),
            Self::Base64 => f.write_str("<base64>"),
            Self::StaticKey => f.write_str("<hex>"),
            Self::Fingerprint => f.write_str("<fingerprint>"),
            Self::Text(_) => f.write_str("<text>"),
            Self::Secret(_) => f.write_str("<secret>"),
            Self::File => f.write_str("<path>"),
            Self::Location => f.write_str("<folder>|<url>"),
            Self::Word(words) => f.write_str(&words.join("|")),
            Self::Interface(letters) => write!(f, "<{letters}N>"),
            Self::Name | Self::Reference(_) => f.write_str("<name>"),
            Self::Form(form) => f.write_str(form.shown()),
            Self::Matching(matching) => f.write_str(matching.shown()),
        }
    }
}

fn is_fingerprint(text: &str) -> bool {
    let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    text.split(':').count() == 32 && text.split(':').all(is_byte)
}

fn is_path(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= LONGEST_PATH && !text.contains(char::is_control)
}

fn interface(letters: &str, text: &str) -> bool {
    let digits = text.strip_prefix(letters).unwrap_or_default();
    text.len() <= 15 && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number as it is printed: 01 would be another name for the tunnel 1.
fn whole(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A number with up to two decimals, in hundredths.
pub(crate) fn hundredths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > 2 {
        return None;
    }
    let decimals = format!("{decimals:0<2}").parse::<u32>().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(decimals)
}

/// The word for an address that a server gives.
pub(crate) const DHCP: &str = "dhcp";

/// The word for the segments that fit the MTU.
pub(crate) const FITTING: &str = "clamp-mss-to-pmtu";

/// The word for every protocol.
pub(crate) const ALL_PROTOCOLS: &str = "all";

/// Protocols that go by a name, as IANA numbers them.
const PROTOCOLS: &[(&str, u8)] = &[
    ("ah", 51),
    ("dccp", 33),
    ("eigrp", 88),
    ("esp", 50),
    ("gre", 47),
    ("icmp", 1),
    ("icmpv6", 58),
    ("igmp", 2),
    ("ip", 0),
    ("ipencap", 4),
    ("ipip", 4),
    ("ipv6", 41),
    ("ipv6-icmp", 58),
    ("l2tp", 115),
    ("ospf", 89),
    ("ospfigp", 89),
    ("pim", 103),
    ("sctp", 132),
    ("tcp", 6),
    ("udp", 17),
    ("udplite", 136),
    ("vrrp", 112),
];

/// The number of an IP protocol; 0 stands for any.
pub(crate) fn protocol(text: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
    named.map(|(_, number)| *number).or_else(|| text.parse().ok())
}

/// The name of a protocol, if it has one.
pub(crate) fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// An address, and its port if there is one; 0 is no port.
pub(crate) fn endpoint_of(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address, None));
    }
    let whole = text.parse::<SocketAddr>().ok().filter(|whole| whole.port() != 0)?;
    Some((whole.ip(), Some(whole.port())))
}

/// The bytes of a key in base64.
pub(crate) fn key_of(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    let decoded = <base64ct::Base64 as base64ct::Encoding>::decode(text, &mut *bytes).ok()?;
    (decoded.len() == 32).then_some(bytes)
}

/// The bytes of a text in base64.
pub(crate) fn bytes_of(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    <base64ct::Base64 as base64ct::Encoding>::decode_vec(text).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFLOADS: &[&str] = &["tun-tso", "udp-gso"];

    #[test]
    fn values_are_checked_and_refused_with_what_is_expected() {
        let key = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
        for (kind, good, bad, said) in [
            (Type::Number(68, 16_000), "1420", "67", "from 68 to 16000"),
            (Type::Number(1024, 26_843_545_600_000), "26843545600000", "26843545600001", "26843545600000"),
            (Type::Number(1, 9), "1", "01", "from 1 to 9"),
            (Type::Decimal(100, 1000), "1.8", "0.99", "from 1 to 10"),
            (Type::Decimal(100, 1000), "10", "1.", "from 1 to 10"),
            (Type::Host, "10.1.0.1/30", "10.1.0.1", "10.1.0.1/30"),
            (Type::Prefix, "10.1.0.0/24", "10.1.0.1/24", "write 10.1.0.0/24"),
            (Type::Prefix, "::/0", "10.1.0.0", "10.1.0.0/24"),
            (Type::Address, "2001:db8::1", "berlin", "address"),
            (Type::Endpoint, "2001:db8::1", "berlin", "192.0.2.1:51820"),
            (Type::Endpoint, "[2001:db8::1]:51820", "[2001:db8::1]:0", "[2001:db8::1]:51820"),
            (Type::Endpoint, "192.0.2.1:9", "192.0.2.1:65536", "with a port"),
            (Type::AddressOrAny, "any", "berlin", "or any"),
            (Type::PeerAddress, "vpn.example.org", "192.0.2.256", "domain name"),
            (Type::PeerAddress, "any", "a b", "domain name"),
            (Type::Protocol, "gre", "grey", "such as tcp"),
            (Type::Protocol, "255", "256", "from 0 to 255"),
            (Type::NumberOrAuto(1, 64), "auto", "65", "from 1 to 64, or auto"),
            (Type::NumberOrAuto(1, 64), "64", "Auto", "from 1 to 64, or auto"),
            (Type::Processors, "2-5,8", "5-2", "such as 2-5,8"),
            (Type::SegmentSize, "clamp-mss-to-pmtu", "535", "from 536 to 65535, or clamp-mss-to-pmtu"),
            (Type::Key, key, "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWl==", "base64"),
            (Type::Base64, "AAECAw==", "-----BEGIN", "between BEGIN and END"),
            (Type::Text(5), "abcde", "abcdef", "5 characters"),
            (Type::Secret(5), "abcde", "", "1 to 5 characters"),
            (Type::File, "/etc/postern/a b.crl", "/a\nb", "path of a file"),
            (Type::Word(OFFLOADS), "udp-gso", "gso", "tun-tso"),
            (Type::Interface("wg"), "wg01", "wg", "wg0"),
            (Type::Interface("wg"), "wg0123456789012", "wg01234567890123", "15 characters"),
            (Type::Name, "peer-203.0.113.10", "a b", "without spaces"),
            (Type::Name, "o'brien", "a\u{1b}b", "without spaces"),
        ] {
            assert_eq!(kind.check(good), Ok(()), "{kind:?}");
            let message = kind.check(bad).expect_err("bad");
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn advice_says_what_to_write() {
        let number = Type::Number(30, 86_400);
        for (kind, text, said) in [
            (number, "10", Some("write 30 or more")),
            (number, "100000", Some("write 86400 or less")),
            (number, "1h", Some("write its digits alone")),
            (
                Type::Address,
                "vpn.example.net",
                Some(
                    "names are not resolved here: write the address; getent ahosts vpn.example.net shows it",
                ),
            ),
            (
                Type::AddressNoName,
                "vpn.example.net",
                Some("a name has a word of its own: host-name vpn.example.net"),
            ),
            (Type::Address, "192.0.2", Some("write an address such as 192.0.2.1 or 2001:db8::1")),
            (Type::Key, "secret", Some("postern generate pki wireguard key-pair prints a new pair")),
            (Type::Prefix, "10.1.0.1", None),
        ] {
            assert_eq!(kind.advice(text).as_deref(), said, "{text}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated() {
        for kind in [Type::Key, Type::Base64, Type::Secret(3)] {
            assert!(!kind.check("my secret").expect_err("bad").contains("my secret"), "{kind:?}");
        }
    }

    #[test]
    fn decimals_are_read_in_hundredths() {
        assert_eq!(
            ["1.8", "1.85", "2", "1.855", "x", ".5"].map(hundredths),
            [Some(180), Some(185), Some(200), None, None, None]
        );
    }
}
