//! Traffic selectors: which packets a policy or an SA is for (RFC 4301 section 4.4.1.1, RFC 7296 section 3.13).

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// One side of the packets that are meant: their source or their destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrafficSelector {
    /// The IP protocol; 0 for any.
    pub protocol: u8,
    /// Ports of TCP, UDP and SCTP; of ICMP the type in the high and the code in the low byte.
    pub ports: RangeInclusive<u16>,
    /// Addresses, both of one family.
    pub addresses: RangeInclusive<IpAddr>,
}
