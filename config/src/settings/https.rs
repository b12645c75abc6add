//! `service https`, typed: where the API is listened for, who may use it, and with which certificate.

use super::pki::Reference;
use super::{Reader, parsed, set_or_default};
use crate::error::Location;
use crate::tree::Tree;
use crypto::SecretBytes;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The API for other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Https {
    /// Addresses that are listened on, and the clients that may connect to each; an empty list allows all.
    pub listen: BTreeMap<SocketAddr, Vec<IpNet>>,
    /// Keys of clients, by their names.
    pub keys: BTreeMap<String, SecretBytes>,
    /// The certificate; without one, the server signs its own.
    pub certificate: Option<ServerCertificate>,
    /// Days for which a certificate is valid that the server signs itself.
    pub lifetime_days: u32,
    /// Names of this machine in such a certificate.
    pub names: Vec<String>,
    /// Whether TLS 1.2 and TLS 1.3 are accepted.
    pub versions: Versions,
    /// Whether a request to delete what does not exist is refused.
    pub is_strict: bool,
}

/// A certificate with its private key, in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCertificate {
    /// The certificate, and those of the authorities that are sent with it.
    pub chain: Vec<Vec<u8>>,
    /// Its private key.
    pub private_key: SecretBytes,
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// TLS 1.2 is accepted.
    pub tls12: bool,
    /// TLS 1.3 is accepted.
    pub tls13: bool,
}

/// Characters of a key below which a warning advises a longer one.
const SHORT: usize = 16;

const ALL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

impl Reader {
    pub(super) fn https(&mut self, root: &Tree) -> Option<Https> {
        let tree = root.at(&["service", "https"])?;
        let Some(api) = tree.at(&["api"]) else {
            self.warn(
                "service https listens only with an API: set service https api keys id NAME key SECRET",
            );
            return None;
        };
        let rest = api.at(&["rest"]);
        let keys = self.api_keys(api);
        let listen = self.listen(tree);
        let certificate =
            self.server_certificate(root, tree.at(&["certificates"]), "service https certificates");
        let generated = tree.at(&["certificates", "system-generated-certificate"]);
        let lifetime_days = set_or_default(
            generated.unwrap_or(&Tree::default()),
            "service https certificates system-generated-certificate",
            "lifetime",
        );
        let accepted = tree.values("tls-version");
        let accepts = |version| accepted.is_empty() || accepted.contains(&version);
        let hosts = tree.at(&["virtual-host"]).into_iter().flat_map(Tree::children);
        let names = hosts.flat_map(|(_, host)| host.values("server-name")).map(str::to_owned).collect();
        Some(Https {
            listen,
            keys,
            certificate: certificate.ok()?,
            lifetime_days,
            names,
            versions: Versions { tls12: accepts("1.2"), tls13: accepts("1.3") },
            is_strict: api.has("strict") || rest.is_some_and(|rest| rest.has("strict")),
        })
    }

    /// The keys of clients: without one, no client could use the API.
    fn api_keys(&mut self, api: &Tree) -> BTreeMap<String, SecretBytes> {
        const PATH: &str = "service https api keys id";
        let mut keys: BTreeMap<String, SecretBytes> = BTreeMap::new();
        for (id, branch) in api.at(&["keys", "id"]).into_iter().flat_map(Tree::children) {
            let Some(key) = branch.value("key") else {
                let fix = format!("set {PATH} {id} key SECRET");
                self.error(branch.location(), format!("{PATH} {id}: key is not set"), fix);
                continue;
            };
            if key.chars().count() < SHORT {
                let make = "openssl rand -hex 32 makes one that cannot be guessed";
                self.warn(format!("{PATH} {id} key has fewer than {SHORT} characters: {make}"));
            }
            let secret = SecretBytes::new(key.as_bytes().to_vec());
            if let Some((other, _)) = keys.iter().find(|(_, known)| **known == secret) {
                let reason = format!("{PATH} {id}: {other} has the same key");
                self.error(branch.location_of("key"), reason, "give each its own, as revisions name it");
            }
            keys.insert(id.to_owned(), secret);
        }
        if keys.is_empty() && self.errors.is_empty() {
            let fix = format!("set {PATH} NAME key SECRET; openssl rand -hex 32 makes a secret");
            self.error(api.location(), "service https api: there is no key, so no client could use it", fix);
        }
        keys
    }

    /// Where is listened: of VyOS 1.3 its virtual hosts, of 1.4 the service.
    fn listen(&mut self, tree: &Tree) -> BTreeMap<SocketAddr, Vec<IpNet>> {
        let hosts: BTreeMap<&str, &Tree> =
            tree.at(&["virtual-host"]).into_iter().flat_map(Tree::children).collect();
        let only = tree.at(&["api-restrict"]).map(|only| only.values("virtual-host")).unwrap_or_default();
        for name in &only {
            if !hosts.contains_key(name) {
                let reason =
                    format!("service https api-restrict virtual-host: there is no virtual-host {name}");
                let fix = format!("set service https virtual-host {name} listen-port 443");
                self.error(tree.location_of("api-restrict"), reason, fix);
            }
        }
        let mut listen = BTreeMap::new();
        for (name, host) in &hosts {
            if only.is_empty() || only.contains(name) {
                let port = set_or_default(host, "service https virtual-host <name>", "listen-port");
                self.listen_on(host, port, &mut listen);
            }
        }
        if hosts.is_empty() || tree.has("listen-address") || tree.has("port") {
            self.listen_on(tree, set_or_default(tree, "service https", "port"), &mut listen);
        }
        listen
    }

    fn listen_on(&mut self, tree: &Tree, port: u16, listen: &mut BTreeMap<SocketAddr, Vec<IpNet>>) {
        let mut addresses: Vec<IpAddr> = parsed(tree.values("listen-address"));
        if addresses.is_empty() {
            addresses.extend(ALL);
        }
        let clients = clients(tree);
        for address in addresses {
            let address = SocketAddr::new(address, port);
            let before = listen.insert(address, clients.clone());
            if before.is_some_and(|before| before != clients) {
                let reason = format!("service https: two virtual hosts at {address} allow different clients");
                self.error(
                    tree.location(),
                    reason,
                    "give both the same allow-client address, or another port",
                );
            }
        }
    }

    /// The certificate, if one is named; an error, which is reported, if something is wrong with it.
    pub(super) fn server_certificate(
        &mut self,
        root: &Tree,
        names: Option<&Tree>,
        path: &str,
    ) -> Result<Option<ServerCertificate>, ()> {
        let Some(names) = names else { return Ok(None) };
        let Some(name) = names.value("certificate") else {
            if names.has("ca-certificate") {
                self.warn(format!("{path} ca-certificate has no effect without: {path} certificate NAME"));
            }
            return Ok(None);
        };
        let reference = |word: &str, kind, name, location: Location| Reference {
            from: format!("{path} {word}"),
            location,
            kind,
            name,
        };
        let own = reference("certificate", "certificate", name, names.location_of("certificate"));
        let (branch, certificate) = self.public(root, &own, "certificate", &["certificate"]).ok_or(())?;
        let private_key = self.private_key(&own, branch).ok_or(())?;
        let mut chain = vec![certificate];
        if let Some(name) = names.value("ca-certificate") {
            let authority = reference("ca-certificate", "ca", name, names.location_of("ca-certificate"));
            chain.push(self.public(root, &authority, "certificate", &["certificate"]).ok_or(())?.1);
        }
        Ok(Some(ServerCertificate { chain, private_key }))
    }
}

/// The clients that may connect; nothing for all.
pub(super) fn clients(tree: &Tree) -> Vec<IpNet> {
    let texts = tree.at(&["allow-client"]).map(|clients| clients.values("address")).unwrap_or_default();
    let prefix = |text: &str| text.parse().or_else(|_| text.parse().map(IpAddr::into)).ok();
    texts.into_iter().filter_map(prefix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    const KEYS: &str = "set service https api keys id ansible key 'a long secret of a client'\n";

    fn read(more: &str) -> (Option<Https>, Vec<String>) {
        let tree = crate::parse(&format!("{KEYS}{more}")).expect("right");
        let (settings, warnings) = Settings::new(&tree).expect("right");
        (settings.https, warnings)
    }

    fn refused(text: &str) -> String {
        let errors = crate::parse(text).and_then(|tree| Settings::new(&tree)).expect_err(text);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    fn listened(more: &str) -> Vec<String> {
        let (https, _) = read(more);
        https.expect("an API").listen.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn all_addresses_are_listened_on_unless_some_are_named() {
        assert_eq!(listened(""), ["0.0.0.0:443", "[::]:443"]);
        assert_eq!(listened("set service https port 8443"), ["0.0.0.0:8443", "[::]:8443"]);
        let named =
            "set service https listen-address 192.0.2.1\nset service https listen-address 2001:db8::1";
        assert_eq!(listened(named), ["192.0.2.1:443", "[2001:db8::1]:443"]);
    }

    #[test]
    fn virtual_hosts_of_vyos_1_3_are_listened_on() {
        let host = "set service https virtual-host a listen-address 192.0.2.1\n\
                    set service https virtual-host a server-name vpn.example.org\n";
        assert_eq!(listened(host), ["192.0.2.1:443"]);
        assert_eq!(read(host).0.expect("an API").names, ["vpn.example.org"]);
        let two = format!("{host}set service https virtual-host b listen-port 8443\n");
        assert_eq!(listened(&two).len(), 3);
        let only = format!("{two}set service https api-restrict virtual-host a");
        assert_eq!(listened(&only), ["192.0.2.1:443"]);
        let no = refused(&format!("{KEYS}{host}set service https api-restrict virtual-host c"));
        assert!(no.contains("there is no virtual-host c"), "{no}");
    }

    #[test]
    fn clients_are_addresses_and_prefixes() {
        let (https, _) = read(
            "set service https allow-client address 192.0.2.7\nset service https allow-client address fd00::/8",
        );
        let allowed = https.expect("an API").listen.into_values().next().expect("one");
        assert_eq!(allowed, ["192.0.2.7/32", "fd00::/8"].map(|text| text.parse().expect("a prefix")));
    }

    #[test]
    fn there_is_no_api_without_a_key() {
        let no = refused("set service https api");
        assert!(no.contains("there is no key") && no.contains("fix: set service https api keys id"), "{no}");
        let no = refused("set service https api keys id a");
        assert!(no.contains("id a: key is not set"), "{no}");
        let no = refused(&format!("{KEYS}set service https api keys id b key 'a long secret of a client'"));
        assert!(no.contains("ansible has the same key") && !no.contains("a long secret"), "{no}");
        let tree = crate::parse("set service https port 443\nset system allow-empty").expect("right");
        let (settings, warnings) = Settings::new(&tree).expect("right");
        assert!(settings.https.is_none() && warnings[0].contains("only with an API"), "{warnings:?}");
    }

    #[test]
    fn a_short_key_is_warned_of() {
        assert!(read("").1.is_empty());
        let (_, warnings) = read("set service https api keys id b key qwerty");
        assert!(warnings[0].contains("fewer than 16") && !warnings[0].contains("qwerty"), "{warnings:?}");
    }

    #[test]
    fn a_certificate_must_be_there_with_its_key() {
        let named = format!("{KEYS}set service https certificates certificate web\n");
        assert!(refused(&named).contains("there is no pki certificate web"));
        let no = refused(&format!("{named}set pki certificate web certificate AAAA"));
        assert!(no.contains("pki certificate web has no private key"), "{no}");
        let whole = "set service https certificates certificate web\nset pki certificate web certificate AAAA\n\
                     set pki certificate web private key AAAA\n";
        let certificate = read(whole).0.expect("an API").certificate.expect("one");
        assert_eq!(certificate.chain, [vec![0, 0, 0]]);
    }

    #[test]
    fn versions_of_tls_and_strictness_are_read() {
        let versions = |more| read(more).0.expect("an API").versions;
        assert_eq!(versions(""), Versions { tls12: true, tls13: true });
        assert_eq!(versions("set service https tls-version 1.3"), Versions { tls12: false, tls13: true });
        assert!(read("set service https api strict").0.expect("an API").is_strict);
        assert!(read("set service https api rest strict").0.expect("an API").is_strict);
        assert!(!read("set service https api rest").0.expect("an API").is_strict);
    }
}
