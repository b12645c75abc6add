//! What packets are told apart by: names of links, addresses and ports, in the forms of VyOS.

use crate::settings::packets::{Addresses, LinkName, Ports, parse_addresses, parse_ports};

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// The name of a network interface of this machine.
    Link,
    /// The same, of several if it ends in a star, or of all others behind an exclamation mark.
    Links,
    /// An IPv4 address, a prefix or a range, or all others behind an exclamation mark.
    Addresses,
    /// The same of IPv6.
    AddressesV6,
    /// Ports and ranges of ports, or all others behind an exclamation mark.
    Ports,
    /// An IPv4 address or a range.
    Range,
    /// The same, or the address of the interface that packets leave by.
    RangeOrMasquerade,
    /// A port or a range of ports.
    PortRange,
}

/// The word for the address of the interface that packets leave by.
pub const MASQUERADE: &str = "masquerade";

impl Matching {
    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Self::Link => text.parse::<LinkName>().is_ok_and(|it| !it.is_negated && !it.is_prefix),
            Self::Links => text.parse::<LinkName>().is_ok(),
            Self::Addresses => text.parse::<Addresses>().is_ok_and(|it| it.is_ipv4()),
            Self::AddressesV6 => text.parse::<Addresses>().is_ok_and(|it| !it.is_ipv4()),
            Self::Ports => text.parse::<Ports>().is_ok(),
            Self::Range => parse_addresses(text).is_ok(),
            Self::RangeOrMasquerade => text == MASQUERADE || parse_addresses(text).is_ok(),
            Self::PortRange => parse_ports(text).is_ok(),
        }
    }

    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Link => "the name of an interface: up to 15 characters, such as eth0",
            Self::Links => "the name of an interface, such as eth0, eth* or !eth0",
            Self::Addresses => {
                "an IPv4 address, a prefix or a range, such as 10.1.0.1, 10.1.0.0/24, 10.1.0.1-10.1.0.9 or !10.1.0.0/24"
            }
            Self::AddressesV6 => {
                "an IPv6 address, a prefix or a range, such as 2001:db8::1, 2001:db8::/32, 2001:db8::1-2001:db8::9 or !2001:db8::/32"
            }
            Self::Ports => "ports, such as 80, 443,1000-2000 or !25",
            Self::Range => "an IPv4 address or a range, such as 10.1.0.1 or 10.1.0.1-10.1.0.9",
            Self::RangeOrMasquerade => "an IPv4 address, a range such as 10.1.0.1-10.1.0.9, or masquerade",
            Self::PortRange => "a port, or a range of ports such as 1000-2000",
        }
    }

    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Link => "<interface>",
            Self::Links => "[!]<interface>[*]",
            Self::Addresses | Self::AddressesV6 => "[!]<address>|<prefix/length>|<address-address>",
            Self::Ports => "[!]<port>|<port-port>,...",
            Self::Range => "<address>|<address-address>",
            Self::RangeOrMasquerade => "<address>|<address-address>|masquerade",
            Self::PortRange => "<port>|<port-port>",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_packets_are_told_apart_by_is_read_as_vyos_reads_it() {
        for (kind, good, bad) in [
            (
                Matching::Link,
                &["eth0", "enp1s0f0", "a.7"][..],
                &["", "eth*", "!eth0", "a/b", "a b", "0123456789abcdef", ".."][..],
            ),
            (Matching::Links, &["eth0", "eth*", "!wg0", "!ppp*"], &["", "!", "*", "e*h", "!!a"]),
            (
                Matching::Addresses,
                &["10.0.0.1", "!10.0.0.0/8", "10.0.0.1-10.0.0.9", "0.0.0.0/0"],
                &["", "!", "10.0.0.1/8", "10.0.0.9-10.0.0.1", "::1", "10.0.0.0/33", "10.0.0.1-", "a"],
            ),
            (
                Matching::AddressesV6,
                &["2001:db8::1", "!2001:db8::/32", "::1-::9", "::/0"],
                &["10.0.0.1", "2001:db8::1/32", "::9-::1", ":", "fe80::1%eth0"],
            ),
            (
                Matching::Ports,
                &["80", "!25", "80,443,1000-2000"],
                &["", "0", "80,", "70000", "9-8", "http", "01"],
            ),
            (Matching::Range, &["10.0.0.1", "10.0.0.1-10.0.0.2"], &["10.0.0.0/8", "masquerade", "!10.0.0.1"]),
            (Matching::RangeOrMasquerade, &["masquerade", "10.0.0.1"], &["Masquerade", "eth0"]),
            (Matching::PortRange, &["80", "80-81"], &["80,81", "!80", "81-80", ""]),
        ] {
            for text in good {
                assert!(kind.fits(text), "{kind:?} {text:?}");
            }
            for text in bad {
                assert!(!kind.fits(text), "{kind:?} {text:?}");
            }
        }
    }
}
