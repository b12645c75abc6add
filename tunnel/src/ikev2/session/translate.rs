//! Transport mode through NAT: each side has its own names for the same addresses (RFC 7296 section 2.23.1).
//!
//! Selectors of the other side are put into our words before anything else is done with them: on a side that is behind a
//! NAT, its one address becomes the one by which we know it. So the other side gets no packets but those of the address
//! where it is, whatever it asks for. Where a NAT is only pretended, both call the address the same, and nothing changes.

use crate::esp::TrafficSelector;
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::selectors::one_host;
use std::net::IpAddr;

/// The other side's selectors in our words.
pub(super) struct Translated {
    /// Our packets.
    pub(super) local: Vec<TrafficSelector>,
    /// Its packets.
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) renamed: Renamed,
}

/// On which sides it has another word for the address than we do.
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
    // That we are behind a NAT nobody pretends, and who gives back what we have sent does not show it.
    Translated { local, remote, renamed: Renamed { local: ours || nat.local, remote: theirs } }
}

/// The selectors of one side, whose address is `address` if it is behind a NAT, and whether that changes them. Those of more
/// than one address are not of transport mode, and stay as they are.
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
