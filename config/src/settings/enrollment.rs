//! `service enrollment`, typed: where branches join, what they may reach, and which there are.

mod claims;

pub use claims::{overlap, own_or_of_network, reserved};

use super::https::clients;
use super::{Reader, Settings, parsed, set, set_or_default};
use crate::schema::key_of;
use crate::tree::Tree;
use crypto::PublicKey;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Branches that join with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrollment {
    /// Addresses that are listened on, and the clients that may connect to each; an empty list allows all.
    pub listen: BTreeMap<SocketAddr, Vec<IpNet>>,
    /// The TCP port of all of them.
    pub port: u16,
    /// The domain name at which branches reach this gateway.
    pub host_name: Option<String>,
    /// Addresses at which branches reach this gateway; they may be none if it has a name.
    pub addresses: Vec<IpAddr>,
    /// The WireGuard interface of their tunnels.
    pub interface: String,
    /// Networks here that they may reach.
    pub networks: Vec<IpNet>,
    /// The branches by name.
    pub branches: BTreeMap<String, Branch>,
    /// All peers of the interface by name: a branch that has joined is the peer of its name.
    pub peers: BTreeMap<String, EnrolledPeer>,
}

/// A peer of the interface, which may be disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrolledPeer {
    /// Its key; one that is disabled may have none.
    pub public_key: Option<PublicKey>,
    /// What its tunnel carries.
    pub allowed_ips: Vec<IpNet>,
    /// Not served now.
    pub is_disabled: bool,
}

/// A branch, which has joined or may join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its address inside the tunnel.
    pub address: IpAddr,
    /// The networks behind it.
    pub networks: Vec<IpNet>,
    /// The token with which it joins, or has joined.
    pub token: Option<Token>,
    /// When it joined, in seconds since 1970.
    pub joined: Option<u64>,
}

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of its secret.
    pub hash: [u8; 32],
    /// When it was made, in seconds since 1970, if that is known.
    pub created: Option<u64>,
    /// When it expires, in seconds since 1970.
    pub expires: u64,
    /// Not accepted, whether or not it has expired.
    pub is_revoked: bool,
}

const PATH: &str = "service enrollment";
const ALL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
/// As many addresses as a token holds.
const MOST_ADDRESSES: usize = 4;

impl Branch {
    /// What its tunnel carries: its address, and the networks behind it.
    pub fn allowed_ips(&self) -> impl Iterator<Item = IpNet> {
        std::iter::once(IpNet::from(self.address)).chain(self.networks.iter().copied())
    }
}

impl Reader {
    pub(super) fn enrollment(&mut self, root: &Tree, settings: &Settings) -> Option<Enrollment> {
        let tree = root.at(&["service", "enrollment"])?;
        let addresses: Vec<IpAddr> = parsed(tree.values("address"));
        let host_name = tree.value("host-name").map(str::to_owned);
        if addresses.is_empty() && host_name.is_none() {
            let fix =
                format!("set {PATH} address ADDRESS, where branches reach this gateway; or host-name NAME");
            self.error(tree.location(), format!("{PATH}: address is not set"), fix);
        } else if addresses.len() > MOST_ADDRESSES {
            let reason = format!("{PATH}: a token has at most {MOST_ADDRESSES} addresses");
            self.error(tree.location_of("address"), reason, format!("delete {PATH} address ADDRESS"));
        }
        let Some(interface) = tree.value("interface") else {
            let fix = format!("set {PATH} interface wg0");
            self.error(tree.location(), format!("{PATH}: interface is not set"), fix);
            return None;
        };
        self.check_interface(tree, interface, settings);
        let port = set_or_default(tree, PATH, "port");
        let clients = clients(tree);
        let mut listened: Vec<IpAddr> = parsed(tree.values("listen-address"));
        if listened.is_empty() {
            listened.extend(ALL);
        }
        let named = tree.at(&["branch"]).into_iter().flat_map(Tree::children);
        let peers = root.at(&["interfaces", "wireguard", interface, "peer"]);
        let enrollment = Enrollment {
            listen: listened.iter().map(|it| (SocketAddr::new(*it, port), clients.clone())).collect(),
            port,
            host_name,
            addresses,
            interface: interface.to_owned(),
            networks: parsed(tree.values("network")),
            branches: named
                .filter_map(|(name, it)| Some((name.to_owned(), self.enrolled(name, it)?)))
                .collect(),
            peers: peers
                .into_iter()
                .flat_map(Tree::children)
                .map(|(name, it)| (name.to_owned(), peer(it)))
                .collect(),
        };
        self.check_claims(tree, &enrollment, settings.wireguard.get(interface));
        Some(enrollment)
    }

    /// Branches must find the interface at its port.
    fn check_interface(&mut self, tree: &Tree, name: &str, settings: &Settings) {
        let location = tree.location_of("interface");
        let Some(interface) = settings.wireguard.get(name) else {
            // One that is wrong in itself is reported there.
            if self.errors.is_empty() {
                let fix =
                    format!("set interfaces wireguard {name} private-key KEY, with an address and a port");
                self.error(location, format!("{PATH} interface: there is no {name}"), fix);
            }
            return;
        };
        if interface.port.is_none() {
            let fix = format!("set interfaces wireguard {name} port 51820");
            self.error(location, format!("{PATH} interface: {name} has no port of its own"), fix);
        }
    }

    fn enrolled(&mut self, name: &str, tree: &Tree) -> Option<Branch> {
        let path = format!("{PATH} branch {name}");
        let Some(address) = set(tree, "address") else {
            let fix = format!("make it with: postern enroll create {name}; or delete {path}");
            self.error(tree.location(), format!("{path}: address is not set"), fix);
            return None;
        };
        let token = tree.at(&["token"]);
        let read = token.and_then(|token| {
            Some(Token {
                hash: *key_of(token.value("hash")?)?,
                created: set(token, "created"),
                expires: set(token, "expires")?,
                is_revoked: token.has("revoked"),
            })
        });
        if let Some(token) = token.filter(|_| read.is_none()) {
            let fix = format!("make a new one with: postern enroll create {name}; or delete {path} token");
            self.error(token.location(), format!("{path} token: it has no hash, or does not expire"), fix);
        }
        Some(Branch {
            address,
            networks: parsed(tree.values("network")),
            token: read,
            joined: set(tree, "joined"),
        })
    }
}

fn peer(tree: &Tree) -> EnrolledPeer {
    let key = tree.value("public-key").or(tree.value("pubkey")).and_then(key_of);
    EnrolledPeer {
        public_key: key.map(|key| PublicKey(*key)),
        allowed_ips: parsed(tree.values("allowed-ips")),
        is_disabled: tree.has("disable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIREGUARD: &str = "set interfaces wireguard wg0 address 10.255.0.1/24\n\
         set interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n";
    const RIGHT: &[&str] = &["address 198.51.100.1", "interface wg0", "network 10.1.0.0/24"];
    const PORT: &str = "set interfaces wireguard wg0 port 51820\n";
    const HASH: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

    fn read(wireguard: &str, lines: &[&str]) -> Result<Enrollment, String> {
        let lines: String = lines.iter().map(|line| format!("set service enrollment {line}\n")).collect();
        let text = format!("{WIREGUARD}{wireguard}{lines}");
        let checked = crate::parse(&text).and_then(|tree| Settings::new(&tree));
        let (settings, _) = checked
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok(settings.enrollment.expect("it is set"))
    }

    #[test]
    fn branches_have_an_address_networks_and_what_is_kept_of_a_token() {
        let hash = format!("branch berlin token hash {HASH}");
        let of_berlin = [
            "branch berlin address 10.255.0.2",
            "branch berlin network 10.2.0.0/24",
            &hash,
            "branch berlin token expires 1800000000",
        ];
        let read = read(PORT, &[RIGHT, &of_berlin].concat()).expect("right");
        let berlin = &read.branches["berlin"];
        let allowed: Vec<String> = berlin.allowed_ips().map(|prefix| prefix.to_string()).collect();
        assert_eq!(allowed, ["10.255.0.2/32", "10.2.0.0/24"]);
        let token = berlin.token.as_ref().expect("one");
        assert_eq!((token.expires, token.is_revoked, berlin.joined), (1_800_000_000, false, None));
        assert_eq!((read.port, read.listen.len(), &*read.interface), (9588, 2, "wg0"));
    }

    #[test]
    fn head_office_is_reached_at_addresses_or_at_a_name() {
        let named = read(PORT, &["host-name head.example.org", "interface wg0"]).expect("right");
        assert_eq!((named.host_name.as_deref(), named.addresses.len()), (Some("head.example.org"), 0));
        let both = read(PORT, &[RIGHT, &["host-name head.example.org"]].concat()).expect("right");
        assert_eq!((both.host_name.is_some(), both.addresses.len()), (true, 1));
        let said = read(PORT, &["address head.example.org", "interface wg0"]).expect_err("it is a name");
        assert!(said.contains("host-name head.example.org"), "{said}");
    }

    #[test]
    fn what_branches_would_not_find_is_refused() {
        let refused = |wireguard, lines: &[&str]| read(wireguard, lines).expect_err("wrong");
        assert!(refused("", RIGHT).contains("fix: set interfaces wireguard wg0 port 51820"));
        assert!(refused(PORT, &RIGHT[1..]).contains("address is not set"));
        assert!(refused(PORT, &[RIGHT[0]]).contains("interface is not set"));
        assert!(refused(PORT, &[RIGHT[0], "interface wg1"]).contains("there is no wg1"));
        let without = [RIGHT, &["branch berlin network 10.2.0.0/24"]].concat();
        assert!(refused(PORT, &without).contains("berlin: address is not set"));
        let hash = format!("branch berlin token hash {HASH}");
        let for_ever = [RIGHT, &["branch berlin address 10.255.0.2", &hash]].concat();
        assert!(refused(PORT, &for_ever).contains("does not expire"));
    }
}
