//! `service metrics`, typed: where counters are listened for, who may read them, and which there are.

use super::https::{ServerCertificate, clients};
use super::{Reader, parsed, set_or_default};
use crate::tree::Tree;
use crypto::SecretBytes;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Counters and states for Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Addresses that are listened on, and the clients that may connect to each; an empty list allows all.
    pub listen: BTreeMap<SocketAddr, Vec<IpNet>>,
    /// What clients must send, if anything.
    pub token: Option<SecretBytes>,
    /// HTTPS instead of HTTP.
    pub tls: Option<MetricsTls>,
    /// Which peers have metrics of their own.
    pub peers: MetricsPeers,
    /// Whether the names of other WireGuard exporters are there too.
    pub wireguard_names: bool,
}

/// How connections are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsTls {
    /// The certificate; without one, the server signs its own.
    pub certificate: Option<ServerCertificate>,
}

/// Peers that have metrics of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsPeers {
    /// All.
    #[default]
    All,
    /// Those that are down.
    DownOnly,
    /// None.
    Off,
}

/// Characters of a token below which a warning advises a longer one.
const SHORT: usize = 16;
const PATH: &str = "service metrics";

impl Reader {
    pub(super) fn metrics(&mut self, root: &Tree) -> Option<Metrics> {
        let tree = root.at(&["service", "metrics"])?;
        let mut addresses: Vec<IpAddr> = parsed(tree.values("listen-address"));
        if addresses.is_empty() {
            addresses.push(Ipv4Addr::LOCALHOST.into());
        }
        let tls = match tree.at(&["tls"]) {
            Some(names) => Some(MetricsTls {
                certificate: self.server_certificate(root, Some(names), "service metrics tls").ok()?,
            }),
            None => None,
        };
        self.check_token(tree, PATH);
        self.check_remote(tree, &addresses, PATH);
        let port = set_or_default(tree, PATH, "port");
        let clients = clients(tree);
        let listen = addresses.iter().map(|address| (SocketAddr::new(*address, port), clients.clone()));
        Some(Metrics {
            listen: listen.collect(),
            token: tree.value("token").map(|token| SecretBytes::new(token.as_bytes().to_vec())),
            tls,
            peers: match tree.value("peers") {
                Some("down-only") => MetricsPeers::DownOnly,
                Some("off") => MetricsPeers::Off,
                _ => MetricsPeers::All,
            },
            wireguard_names: !tree.has("disable-wireguard-names"),
        })
    }

    /// Warns of a token that can be guessed.
    pub(super) fn check_token(&mut self, tree: &Tree, path: &str) {
        if tree.value("token").is_some_and(|token| token.chars().count() < SHORT) {
            let make = "openssl rand -hex 32 makes one that cannot be guessed";
            self.warn(format!("{path} token has fewer than {SHORT} characters: {make}"));
        }
    }

    /// The names of peers, and when they are there, are for nobody else on the network.
    pub(super) fn check_remote(&mut self, tree: &Tree, addresses: &[IpAddr], path: &str) {
        let Some(remote) = addresses.iter().find(|address| !address.is_loopback()) else { return };
        let location = tree.location_of("listen-address");
        if !tree.has("tls") {
            let reason = format!("{path} listen-address {remote}: without TLS only loopback is allowed");
            self.error(location, reason, format!("set {path} tls; or set {path} listen-address 127.0.0.1"));
        }
        if tree.value("token").is_none() {
            let reason = format!("{path} listen-address {remote}: without a token only loopback is allowed");
            let fix = format!("set {path} token SECRET; openssl rand -hex 32 makes one");
            self.error(location, reason, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn read(lines: &[&str]) -> (Metrics, Vec<String>) {
        let text: String = lines.iter().map(|line| format!("set service metrics {line}\n")).collect();
        let (settings, warnings) = Settings::new(&crate::parse(&text).expect("right")).expect("right");
        (settings.metrics.expect("metrics"), warnings)
    }

    fn refused(lines: &[&str]) -> String {
        let text: String = lines.iter().map(|line| format!("set service metrics {line}\n")).collect();
        let errors = crate::parse(&text).and_then(|tree| Settings::new(&tree)).expect_err(&text);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn loopback_needs_nothing_more_and_is_the_default() {
        let (metrics, warnings) = read(&[""]);
        assert_eq!(metrics.listen.keys().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1:9586"]);
        assert!(metrics.token.is_none() && metrics.tls.is_none() && metrics.wireguard_names);
        assert_eq!((metrics.peers, warnings.len()), (MetricsPeers::All, 0));
        let (metrics, _) =
            read(&["listen-address ::1", "port 9000", "peers down-only", "disable-wireguard-names"]);
        assert_eq!(metrics.listen.keys().map(ToString::to_string).collect::<Vec<_>>(), ["[::1]:9000"]);
        assert_eq!((metrics.peers, metrics.wireguard_names), (MetricsPeers::DownOnly, false));
    }

    #[test]
    fn any_other_address_needs_tls_and_a_token() {
        let no = refused(&["listen-address 127.0.0.1", "listen-address 192.0.2.1"]);
        assert!(no.contains("192.0.2.1: without TLS") && no.contains("without a token"), "{no}");
        let no = refused(&["listen-address 0.0.0.0", "token 'a long secret of a scraper'"]);
        assert!(no.contains("without TLS") && !no.contains("without a token"), "{no}");
        let no = refused(&["listen-address 2001:db8::1", "tls"]);
        assert!(!no.contains("without TLS") && no.contains("without a token"), "{no}");
        let (metrics, _) = read(&["listen-address 192.0.2.1", "tls", "token 'a long secret of a scraper'"]);
        assert_eq!(metrics.tls, Some(MetricsTls { certificate: None }));
    }

    #[test]
    fn a_short_token_is_warned_of_and_a_certificate_must_be_there() {
        let (_, warnings) = read(&["token qwerty"]);
        assert!(warnings[0].contains("fewer than 16") && !warnings[0].contains("qwerty"), "{warnings:?}");
        let no = refused(&["tls certificate web"]);
        assert!(no.contains("there is no pki certificate web"), "{no}");
    }
}
