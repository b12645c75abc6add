//! Transport mode through NAT: each side knows the same host by another address (RFC 7296 section 2.23.1).
//!
//! Selectors of the peer are first translated to local addresses: for a side behind a NAT, its single address is
//! replaced by the address that is known here. So the peer only gets packets of its own address, whatever it asks
//! for. With forced encapsulation and no NAT, both sides use the same address, and nothing changes.

use crate::esp::TrafficSelector;
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::selectors::one_host;
use std::net::IpAddr;

/// The selectors of the peer, translated.
pub(super) struct Translated {
    /// The local selectors.
    pub(super) local: Vec<TrafficSelector>,
    /// The remote selectors.
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) renamed: Renamed,
}

/// The sides whose address differs between the peer and the local side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Renamed {
    pub(super) local: bool,
    pub(super) remote: bool,
}

/// Translates selectors to our side of a NAT, for a session that authenticated over `path`.
pub(super) fn translate(
    nat: Nat,
    path: Path,
    local: &[TrafficSelector],
    remote: &[TrafficSelector],
) -> Translated {
    let (ours, local) = side(nat.local.then(|| path.local.ip()), local);
    let (theirs, remote) = side(nat.remote.then(|| path.remote.ip()), remote);
    // The peer cannot pretend that the local side is behind a NAT. A peer that echoes the selectors sent by the local
    // side does not show whether they changed.
    Translated { local, remote, renamed: Renamed { local: ours || nat.local, remote: theirs } }
}

/// Translates the selectors of one side, with the new address `address` if it is behind a NAT; also returns whether
/// they changed. Selectors of several addresses are not valid in transport mode and stay unchanged.
fn side(address: Option<IpAddr>, selectors: &[TrafficSelector]) -> (bool, Vec<TrafficSelector>) {
    let (Some(before), Some(address)) = (one_host(selectors), address) else {
        return (false, selectors.to_vec());
    };
    let moved = |selector: &TrafficSelector| TrafficSelector {
        protocol: selector.protocol,
        ports: selector.ports.clone(),
        addresses: address..=address,
    };
    (before != address, selectors.iter().map(moved).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ikev2::selectors::host;

    fn path() -> Path {
        let address = |text: &str| text.parse().expect("literal");
        Path { local: address("10.0.0.1:4500"), remote: address("203.0.113.7:1024") }
    }

    fn of(text: &str, protocol: u8, port: u16) -> TrafficSelector {
        TrafficSelector { protocol, ports: port..=port, ..host(text.parse().expect("literal")) }
    }

    fn nat(local: bool, remote: bool) -> Nat {
        Nat { local, remote, in_udp: true }
    }

    #[test]
    fn only_the_address_of_a_side_behind_a_nat_is_another() {
        let (ours, theirs) =
            ([of("198.51.100.1", 6, 80)], [of("192.168.1.5", 6, 9), of("192.168.1.5", 17, 9)]);
        let all = |local, remote| translate(nat(local, remote), path(), &ours, &theirs);
        let it = all(false, false);
        assert_eq!((&it.local[..], &it.remote[..], it.renamed), (&ours[..], &theirs[..], Renamed::default()));
        let it = all(true, false);
        assert_eq!((&it.local[..], &it.remote[..]), (&[of("10.0.0.1", 6, 80)][..], &theirs[..]));
        assert_eq!(it.renamed, Renamed { local: true, remote: false });
        let it = all(false, true);
        let here = [of("203.0.113.7", 6, 9), of("203.0.113.7", 17, 9)];
        assert_eq!(
            (&it.local[..], &it.remote[..], it.renamed),
            (&ours[..], &here[..], Renamed { local: false, remote: true })
        );
    }

    #[test]
    fn a_nat_that_is_only_pretended_changes_nothing() {
        let (ours, theirs) = ([of("10.0.0.1", 0, 0)], [of("203.0.113.7", 0, 0)]);
        let it = translate(nat(false, true), path(), &ours, &theirs);
        assert_eq!((&it.local[..], &it.remote[..], it.renamed), (&ours[..], &theirs[..], Renamed::default()));
    }

    #[test]
    fn what_is_not_one_host_stays_as_it_is() {
        let two = [of("192.168.1.5", 6, 9), of("192.168.1.6", 6, 9)];
        let range = [TrafficSelector {
            protocol: 0,
            ports: 0..=u16::MAX,
            addresses: [192, 168, 1, 0].into()..=[192, 168, 1, 255].into(),
        }];
        for theirs in [&two[..], &range[..], &[]] {
            let it = translate(nat(false, true), path(), &[], theirs);
            assert_eq!((&it.remote[..], it.renamed), (theirs, Renamed::default()));
        }
    }
}
