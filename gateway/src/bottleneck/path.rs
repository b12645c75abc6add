//! Limits in the path of tunnels: counters do not show packets that are lost behind the gateway, but probes do.

use crate::api::model::{Bottleneck, Limit};
use crate::path::model::{Mtu, Path};

/// Names a black hole in the path of a tunnel where nothing in the gateway is the limit. A TCP connection through one stands still, so
/// that there is hardly any traffic.
pub fn name_black_holes(found: &mut [Bottleneck], paths: &[Path]) {
    for bottleneck in found {
        let hole = paths.iter().find(|it| it.mtu == Mtu::BlackHole && it.interface == bottleneck.interface);
        let Some(path) = hole else { continue };
        let evidence = format!(
            "path of {}: {} bytes come through and back, the tunnel sends up to {}",
            path.peer.replace(char::is_control, "?"),
            path.path_mtu_bytes.map_or_else(|| "no large number of".to_owned(), |size| size.to_string()),
            path.tunnel_mtu_bytes.unwrap_or_default()
        );
        bottleneck.evidence.push(evidence);
        if !matches!(bottleneck.limit, Limit::Elsewhere | Limit::NoTraffic | Limit::Loss) {
            continue;
        }
        let to = path.peer.replace(char::is_control, "?");
        bottleneck.limit = Limit::Path;
        bottleneck.sentence = format!(
            "The path limits {}: large packets to {to} and back are lost without an ICMP error, a black hole.",
            bottleneck.interface
        );
        bottleneck.remedy = path.mtu_remedy.clone().or_else(|| Some("postern show path".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_black_hole_is_the_limit_only_where_the_gateway_is_not() {
        let of = |interface: &str, limit| Bottleneck {
            interface: interface.to_owned(),
            limit,
            sentence: "before".to_owned(),
            ..Bottleneck::default()
        };
        let mut found = vec![
            of("wg0", Limit::NoTraffic),
            of("wg0", Limit::Elsewhere),
            of("wg0", Limit::Cipher),
            of("wg1", Limit::Elsewhere),
        ];
        let path = Path {
            interface: "wg0".to_owned(),
            peer: "berlin".to_owned(),
            mtu: Mtu::BlackHole,
            path_mtu_bytes: Some(1312),
            tunnel_mtu_bytes: Some(1420),
            mtu_remedy: Some("set interfaces wireguard wg0 mtu 1312".to_owned()),
            ..Path::default()
        };
        name_black_holes(&mut found, &[Path::default(), path.clone()]);
        let limits: Vec<Limit> = found.iter().map(|it| it.limit).collect();
        assert_eq!(limits, [Limit::Path, Limit::Path, Limit::Cipher, Limit::Elsewhere]);
        assert_eq!(found[0].remedy, path.mtu_remedy);
        assert!(
            found[1].sentence.contains("berlin") && found[1].evidence[0].contains("1312 bytes"),
            "{found:?}"
        );
        assert_eq!((&*found[2].sentence, found[2].evidence.len(), found[3].evidence.len()), ("before", 1, 0));
    }
}
