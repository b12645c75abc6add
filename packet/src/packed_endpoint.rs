//! An endpoint in six words.
//!
//! A stage that hands an endpoint on copies it. The fields of an [`Endpoint`] are written one by one, and a wide copy that follows at once
//! waits until they are all in memory; words are written and read as they are.

use crate::Endpoint;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Words of an endpoint.
pub const WORDS: usize = 6;

/// Bits of the first word. The port is above them, the binding above the port.
const PRESENT: u64 = 1;
const REMOTE_V6: u64 = 2;
const LOCAL_V4: u64 = 4;
const LOCAL_V6: u64 = 8;
const TCP: u64 = 16;
const PORT: u32 = 16;
const BINDING: u32 = 32;

/// An endpoint: family, flags and port; flow and scope; both addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedEndpoint([u64; WORDS]);

impl PackedEndpoint {
    /// The endpoint of these words; `None` for those of no endpoint.
    #[inline]
    pub fn from_words(words: [u64; WORDS]) -> Option<Self> {
        (words[0] & PRESENT != 0).then_some(Self(words))
    }

    /// The words of an endpoint, or of none.
    #[inline]
    pub fn words(endpoint: Option<&Endpoint>) -> [u64; WORDS] {
        endpoint.map_or([0; WORDS], |endpoint| Self::from(endpoint).0)
    }

    /// Whether the address of the peer is one of IPv4.
    #[inline]
    pub fn is_v4(&self) -> bool {
        self.0[0] & REMOTE_V6 == 0
    }

    /// The port of the peer.
    #[inline]
    pub fn port(&self) -> u16 {
        (self.0[0] >> PORT) as u16
    }

    /// The address of the peer.
    #[inline]
    pub fn remote(&self) -> IpAddr {
        let [_, _, high, low, ..] = self.0;
        if self.is_v4() { Ipv4Addr::from_bits(high as u32).into() } else { joined([high, low]).into() }
    }

    /// The local address, if it is known.
    #[inline]
    pub fn local(&self) -> Option<IpAddr> {
        let [first, .., high, low] = self.0;
        match first & (LOCAL_V4 | LOCAL_V6) {
            0 => None,
            LOCAL_V4 => Some(Ipv4Addr::from_bits(high as u32).into()),
            _ => Some(joined([high, low]).into()),
        }
    }

    /// The endpoint field by field.
    #[inline]
    pub fn unpack(&self) -> Endpoint {
        let [first, scope, ..] = self.0;
        let remote: SocketAddr = match self.remote() {
            IpAddr::V4(address) => SocketAddrV4::new(address, self.port()).into(),
            IpAddr::V6(address) => {
                SocketAddrV6::new(address, self.port(), (scope >> 32) as u32, scope as u32).into()
            }
        };
        Endpoint { remote, local: self.local(), is_tcp: first & TCP != 0, binding: (first >> BINDING) as u8 }
    }
}

impl From<&Endpoint> for PackedEndpoint {
    #[inline]
    fn from(&Endpoint { ref remote, local, is_tcp, binding }: &Endpoint) -> Self {
        let mut first = PRESENT | u64::from(remote.port()) << PORT | u64::from(binding) << BINDING;
        let mut words = [0; WORDS];
        match remote {
            SocketAddr::V4(remote) => words[2] = remote.ip().to_bits().into(),
            SocketAddr::V6(remote) => {
                first |= REMOTE_V6;
                words[1] = u64::from(remote.flowinfo()) << 32 | u64::from(remote.scope_id());
                [words[2], words[3]] = halves(*remote.ip());
            }
        }
        match local {
            None => {}
            Some(IpAddr::V4(local)) => {
                first |= LOCAL_V4;
                words[4] = local.to_bits().into();
            }
            Some(IpAddr::V6(local)) => {
                first |= LOCAL_V6;
                [words[4], words[5]] = halves(local);
            }
        }
        words[0] = first | if is_tcp { TCP } else { 0 };
        Self(words)
    }
}

#[inline]
fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

#[inline]
fn joined([high, low]: [u64; 2]) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let remotes: [SocketAddr; 3] = [
            "192.0.2.1:65535".parse().expect("an address"),
            "[2001:db8::1]:1".parse().expect("an address"),
            SocketAddrV6::new("fe80::ffff:1".parse().expect("an address"), 4500, 0x000f_0001, 7).into(),
        ];
        for remote in remotes {
            for local in [None, Some("198.51.100.255"), Some("2001:db8:ffff::2")] {
                let local = local.map(|local| local.parse().expect("an address"));
                for (is_tcp, binding) in [(false, 0), (true, 3), (false, u8::MAX)] {
                    let endpoint = Endpoint { remote, local, is_tcp, binding };
                    let packed = PackedEndpoint::from(&endpoint);
                    assert_eq!(packed.unpack(), endpoint);
                    assert_eq!(
                        (packed.remote(), packed.port(), packed.local(), packed.is_v4()),
                        (remote.ip(), remote.port(), local, remote.is_ipv4())
                    );
                    let words = PackedEndpoint::words(Some(&endpoint));
                    assert_eq!(PackedEndpoint::from_words(words), Some(packed));
                }
            }
        }
        assert_eq!(PackedEndpoint::from_words(PackedEndpoint::words(None)), None);
    }
}
