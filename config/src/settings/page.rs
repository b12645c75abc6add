//! `service page`, typed: where browsers find the status page, and what they log in with.

use super::https::clients;
use super::metrics::MetricsTls;
use super::{Reader, parsed, set_or_default};
use crate::tree::Tree;
use crypto::SecretBytes;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The status page for browsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Addresses that are listened on, and the clients that may connect to each; an empty list allows all.
    pub listen: BTreeMap<SocketAddr, Vec<IpNet>>,
    /// What a reader logs in with.
    pub token: SecretBytes,
    /// HTTPS instead of HTTP.
    pub tls: Option<MetricsTls>,
    /// Names that browsers may use, in lower case.
    pub names: Vec<String>,
}

const PATH: &str = "service page";

impl Reader {
    pub(super) fn page(&mut self, root: &Tree) -> Option<Page> {
        let tree = root.at(&["service", "page"])?;
        let mut addresses: Vec<IpAddr> = parsed(tree.values("listen-address"));
        if addresses.is_empty() {
            addresses.push(Ipv4Addr::LOCALHOST.into());
        }
        let tls = match tree.at(&["tls"]) {
            Some(names) => Some(MetricsTls {
                certificate: self.server_certificate(root, Some(names), "service page tls").ok()?,
            }),
            None => None,
        };
        self.check_token(tree, PATH);
        self.check_remote(tree, &addresses, PATH);
        let Some(token) = tree.value("token") else {
            // Other users and programs of this machine reach loopback too.
            let reason = format!("{PATH} has no token");
            self.error(
                root.location_of("service"),
                reason,
                format!("set {PATH} token SECRET; openssl rand -hex 32 makes one"),
            );
            return None;
        };
        let port = set_or_default(tree, PATH, "port");
        let clients = clients(tree);
        let listen = addresses.iter().map(|address| (SocketAddr::new(*address, port), clients.clone()));
        Some(Page {
            listen: listen.collect(),
            token: SecretBytes::new(token.as_bytes().to_vec()),
            tls,
            names: tree.values("host-name").into_iter().map(str::to_ascii_lowercase).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn read(lines: &[&str]) -> Result<(Page, Vec<String>), String> {
        let text: String = lines.iter().map(|line| format!("set service page {line}\n")).collect();
        let checked = crate::parse(&text).and_then(|tree| Settings::new(&tree));
        let (settings, warnings) = checked
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok((settings.page.expect("a page"), warnings))
    }

    #[test]
    fn a_page_needs_a_token_and_is_on_loopback() {
        let no = read(&[""]).expect_err("anyone could read it");
        assert!(no.contains("has no token") && no.contains("set service page token"), "{no}");
        let (page, warnings) =
            read(&["token 'a long secret of a reader'", "host-name GW.example"]).expect("right");
        assert_eq!(page.listen.keys().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1:9587"]);
        assert!(page.names == ["gw.example"] && page.tls.is_none() && warnings.is_empty());
        let (_, warnings) = read(&["token qwerty"]).expect("right");
        assert!(warnings[0].contains("service page token has fewer than 16"), "{warnings:?}");
    }

    #[test]
    fn another_address_needs_tls() {
        let token = "token 'a long secret of a reader'";
        let no = read(&[token, "listen-address 192.0.2.1"]).expect_err("tokens in clear");
        assert!(no.contains("192.0.2.1: without TLS") && no.contains("set service page tls"), "{no}");
        let (page, _) = read(&[token, "listen-address 192.0.2.1", "tls"]).expect("right");
        assert_eq!(page.tls, Some(MetricsTls { certificate: None }));
    }
}
