//! `vpn ipsec site-to-site peer`.

use super::{
    Authentication, Esp, Identity, Ike, Mode, Named, Peer, Pfs, Reader, Remote, Start, Traffic, Tunnel,
    branches,
};
use crate::schema::{ALL_PROTOCOLS, nearest, protocol};
use crate::settings::{parsed, set};
use crate::tree::Tree;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What the name of a peer stands for: in VyOS 1.3 it is the address, or `@` and the identity.
struct Called {
    remote: Option<Remote>,
    id: Option<Identity>,
}

impl Called {
    fn by(name: &str) -> Option<Self> {
        let is_domain = name.contains('.') && !name.starts_with('@');
        let remote = match name.parse::<IpAddr>() {
            Ok(address) => (!address.is_unspecified()).then_some(Remote::Address(address)),
            Err(_) if name.starts_with('@') || name == "any" => None,
            Err(_) if is_domain => Some(Remote::Name(name.to_owned())),
            Err(_) => return None,
        };
        let id = (remote.is_some() || name.starts_with('@')).then(|| Identity::new(name)).flatten();
        Some(Self { remote, id })
    }
}

/// The addresses and identities of both sides.
struct Sides {
    local_address: Option<IpAddr>,
    remote_addresses: Vec<Remote>,
    local_id: Option<Identity>,
    remote_id: Option<Identity>,
}

impl Sides {
    /// The identities by which a psk is found: ours, and those of the peer.
    fn known_by(&self) -> [Vec<Identity>; 2] {
        let remote = self.remote_addresses.iter().map(|remote| match remote {
            Remote::Address(address) => Identity::Address(*address),
            Remote::Name(name) => Identity::Domain(name.to_lowercase()),
        });
        [
            self.local_id.clone().into_iter().chain(self.local_address.map(Identity::Address)).collect(),
            self.remote_id.clone().into_iter().chain(remote).collect(),
        ]
    }
}

/// The name of a peer's psk; none with another authentication mode, or with a secret in the peer's own branch.
fn psk(named: &Named<'_>, tree: &Tree, sides: &Sides, authentication: &Authentication) -> Option<String> {
    let is_secret = matches!(authentication, Authentication::PreSharedSecret(_));
    let is_own = tree.at(&["authentication"]).is_some_and(|tree| tree.has("pre-shared-secret"));
    if !is_secret || is_own {
        return None;
    }
    let [ours, theirs] = sides.known_by();
    let (name, _) = named.secrets.find(&ours, &theirs)?;
    Some(name.to_owned())
}

impl Reader {
    pub(super) fn ipsec_peer(&mut self, named: &Named<'_>, name: &str, tree: &Tree) -> Option<Peer> {
        let path = format!("vpn ipsec site-to-site peer {name}");
        let sides = self.sides(&path, name, tree);
        let authentication = self.authentication(named, &path, tree, &sides);
        let second = self.second_round(named, &path, tree);
        let ike = self.ike_of(named, &path, tree);
        self.refuse_vti(&path, tree);
        let tunnels = self.tunnels(named, &path, tree);
        let (ike, authentication, second) = (ike?, authentication?, second.ok()?);
        if matches!(authentication, Authentication::X509(_)) && sides.remote_id.is_none() {
            self.warn(format!(
                "{path} has no remote-id: every certificate that the ca-certificate signed is accepted"
            ));
        }
        if matches!(authentication, Authentication::Rsa(_)) && sides.remote_id.is_none() {
            self.refuse_anyone(&path, tree, &sides);
        }
        let is_profile = sides.remote_addresses.is_empty() && sides.remote_id.is_none();
        if is_profile && matches!(authentication, Authentication::PreSharedSecret(_)) {
            self.warn(format!(
                "{path} has neither remote-address nor remote-id: it serves every peer that has the secret, under any identity; \
                 use certificates, or configure each peer with its remote-id and secret"
            ));
        }
        self.warn_of_pfs(&path, tree, &ike, &tunnels);
        let is_at = |remote: &Remote| matches!(remote, Remote::Address(_));
        if !sides.remote_addresses.iter().any(is_at) {
            for (number, _) in tunnels.iter().filter(|(_, tunnel)| tunnel.remote.prefixes.is_empty()) {
                self.warn(format!(
                    "{path} tunnel {number} has no remote prefix and the peer no fixed address: packets to the peer leave unencrypted; set {path} remote-address ADDRESS, or a remote prefix"
                ));
            }
        }
        Some(Peer {
            description: set(tree, "description"),
            start: self.start(&path, tree, sides.remote_addresses.is_empty()),
            psk: psk(named, tree, &sides, &authentication),
            local_address: sides.local_address,
            remote_addresses: sides.remote_addresses,
            local_id: sides.local_id,
            remote_id: sides.remote_id,
            authentication,
            second,
            reauthenticate: match tree.value("ikev2-reauth") {
                Some("yes") => true,
                Some("no") => false,
                _ => ike.reauthenticate,
            },
            ike_group: set(tree, "ike-group").unwrap_or_default(),
            ike,
            prefers_udp: tree.has("force-udp-encapsulation")
                || tree.value("force-encapsulation") != Some("disable"),
            replay_window: set(tree, "replay-window"),
            tunnels,
        })
    }

    /// The first Child SA takes its keys from IKE_AUTH: a missing PFS group shows only when it is rekeyed.
    fn warn_of_pfs(&mut self, path: &str, tree: &Tree, ike: &Ike, tunnels: &BTreeMap<u32, Box<Tunnel>>) {
        let group_of_ike = tree.value("ike-group").unwrap_or_default();
        for (number, tunnel) in tunnels {
            let Pfs::Group(group) = tunnel.esp.pfs else { continue };
            if !tunnel.esp.rekey || ike.proposals.iter().any(|proposal| proposal.groups.contains(&group)) {
                continue;
            }
            let (pfs, esp_group) = (group.id(), &tunnel.esp_group);
            self.warn(format!(
                "{path} tunnel {number}: pfs dh-group{pfs} of esp-group {esp_group} is no dh-group of ike-group {group_of_ike}: \
                 the tunnel comes up, but its first rekeying fails unless the peer has this group for PFS; \
                 set vpn ipsec esp-group {esp_group} pfs enable"
            ));
        }
    }

    fn sides(&mut self, path: &str, name: &str, tree: &Tree) -> Sides {
        let empty = Tree::default();
        let authentication = tree.at(&["authentication"]).unwrap_or(&empty);
        let called = Called::by(name).filter(|_| !tree.has("remote-address"));
        if called.is_none() && !tree.has("remote-address") {
            self.warn(format!(
                "{path} has no remote-address, so the peer must connect to us; if it has a fixed address: set {path} \
                 remote-address ADDRESS"
            ));
        }
        let (remote, id) = called.map_or((None, None), |called| (called.remote, called.id));
        let local_address: Option<IpAddr> = set(tree, "local-address");
        let remote_id = authentication.value("remote-id").map(Identity::new);
        let local_id = authentication.value("local-id").or_else(|| authentication.value("id"));
        let sides = Sides {
            local_address: local_address.filter(|address| !address.is_unspecified()),
            remote_addresses: remote.into_iter().chain(remote_addresses(tree)).collect(),
            local_id: local_id.filter(|_| !authentication.has("use-x509-id")).and_then(Identity::new),
            remote_id: remote_id.unwrap_or(id),
        };
        self.check_address_families(path, tree, &sides);
        sides
    }

    fn check_address_families(&mut self, path: &str, tree: &Tree, sides: &Sides) {
        let Some(local) = sides.local_address else { return };
        let other = sides.remote_addresses.iter().find_map(|remote| match remote {
            Remote::Address(address) if address.is_ipv4() != local.is_ipv4() => Some(address),
            _ => None,
        });
        if let Some(remote) = other {
            let reason =
                format!("{path}: local-address {local} cannot reach {remote}: one is IPv4, one is IPv6");
            let kind = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
            let fix = format!("set {path} local-address to our {kind} address, or any");
            self.error(tree.location_of("local-address"), reason, fix);
        }
    }

    fn authentication(
        &mut self,
        named: &Named<'_>,
        path: &str,
        tree: &Tree,
        sides: &Sides,
    ) -> Option<Authentication> {
        let authentication = tree.at(&["authentication"]);
        let has = |word| authentication.is_some_and(|authentication| authentication.has(word));
        match authentication.and_then(|authentication| authentication.value("mode")) {
            Some("x509") => self.x509(named, path, tree).map(Authentication::X509),
            Some("rsa") => self.rsa(named, path, tree).map(Authentication::Rsa),
            None if !has("pre-shared-secret") && (has("x509") || has("rsa")) => {
                let mode = if has("x509") { "x509" } else { "rsa" };
                let reason = format!("{path}: authentication {mode} is set, but authentication mode is not");
                self.error(tree.location(), reason, format!("set {path} authentication mode {mode}"));
                None
            }
            _ => self.pre_shared_secret(named, path, tree, sides),
        }
    }

    /// A bare key carries no identity, so the configuration must name one.
    fn refuse_anyone(&mut self, path: &str, tree: &Tree, sides: &Sides) {
        let [_, theirs] = sides.known_by();
        let name = theirs.first().map_or("NAME".to_owned(), Identity::to_string);
        let reason = format!("{path}: authentication mode rsa needs a remote-id");
        let fix = format!("set {path} authentication remote-id {name}, or the identity that the peer sends");
        self.error(tree.location(), reason, fix);
    }

    fn pre_shared_secret(
        &mut self,
        named: &Named<'_>,
        path: &str,
        tree: &Tree,
        sides: &Sides,
    ) -> Option<Authentication> {
        let own = tree.at(&["authentication"]).and_then(|tree| tree.value("pre-shared-secret"));
        if let Some(secret) = own {
            let secret = crypto::SecretBytes::new(secret.as_bytes().to_vec());
            return Some(Authentication::PreSharedSecret(secret));
        }
        let [ours, theirs] = sides.known_by();
        let is_anyone = theirs.is_empty();
        if let Some((_, secret)) = named.secrets.find(&ours, &theirs) {
            return Some(Authentication::PreSharedSecret(secret.clone()));
        }
        let ids = |ids: &[Identity]| ids.iter().map(Identity::to_string).collect::<Vec<_>>();
        let wanted = ids(if is_anyone { &ours } else { &theirs });
        let wanted = if wanted.is_empty() { vec!["%any".to_owned()] } else { wanted };
        let wanted_ids = wanted.join(", ");
        let reason = if is_anyone {
            format!(
                "{path} has no remote-id, and no psk fits: it must have {wanted_ids} as its only id, or %any"
            )
        } else {
            format!("{path}: no psk has this peer as id: {wanted_ids}")
        };
        let known = named.secrets.identities();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let short = path.rsplit(' ').next().unwrap_or_default();
        let add = format!(
            "set vpn ipsec authentication psk {short} id {0}, set vpn ipsec authentication psk {short} secret 'SECRET'",
            wanted.first().map_or("%any", String::as_str)
        );
        let near = wanted.iter().filter(|_| !is_anyone).find_map(|id| nearest(id, &known));
        let fix = match near {
            Some(near) => format!("did you mean the psk with id {near}? Otherwise {add}"),
            None => add,
        };
        self.error(tree.location(), reason, fix);
        None
    }

    fn ike_of(&mut self, named: &Named<'_>, path: &str, tree: &Tree) -> Option<Arc<Ike>> {
        let known: Vec<&str> = named.ike.keys().copied().collect();
        let Some(name) = tree.value("ike-group") else {
            let reason = format!("{path}: ike-group is not set");
            self.error(tree.location(), reason, format!("set {path} ike-group {}", one_of(&known)));
            return None;
        };
        if let Some(found) = named.ike.get(name) {
            return found.clone();
        }
        self.follow(named.root, &format!("{path} ike-group"), name, tree.location_of("ike-group"));
        None
    }

    fn refuse_vti(&mut self, path: &str, tree: &Tree) {
        let Some(vti) = tree.at(&["vti"]) else { return };
        let what = vti.value("bind").map_or("vti".to_owned(), |name| format!("vti bind {name}"));
        self.error(
            vti.location(),
            format!("{path} {what}: virtual tunnel interfaces are not supported yet"),
            format!("delete {path} vti, set {path} tunnel 1 local prefix PREFIX, set {path} tunnel 1 remote prefix PREFIX"),
        );
    }

    fn start(&mut self, path: &str, tree: &Tree, is_anywhere: bool) -> Start {
        match tree.value("connection-type") {
            Some("none") => Start::Respond,
            None if is_anywhere => Start::Respond,
            Some(kind) if is_anywhere => {
                if kind == "initiate" {
                    self.warn(format!(
                        "{path} connection-type initiate is ignored: without a remote-address, the peer must connect to us"
                    ));
                }
                Start::Respond
            }
            Some("respond" | "trap") => Start::OnTraffic,
            _ => Start::Initiate,
        }
    }

    fn tunnels(&mut self, named: &Named<'_>, path: &str, tree: &Tree) -> BTreeMap<u32, Box<Tunnel>> {
        if tree.at(&["tunnel"]).is_none() && tree.at(&["vti"]).is_none() {
            let fix =
                format!("set {path} tunnel 1 local prefix PREFIX, set {path} tunnel 1 remote prefix PREFIX");
            self.error(tree.location(), format!("{path} has no tunnel"), fix);
        }
        let default = tree.value("default-esp-group");
        branches(tree, &["tunnel"])
            .filter(|(_, tunnel)| !tunnel.has("disable"))
            .filter_map(|(number, tunnel)| {
                let path = format!("{path} tunnel {number}");
                Some((number.parse().ok()?, Box::new(self.tunnel(named, &path, tunnel, default)?)))
            })
            .collect()
    }

    fn tunnel(
        &mut self,
        named: &Named<'_>,
        path: &str,
        tree: &Tree,
        default: Option<&str>,
    ) -> Option<Tunnel> {
        let (local, remote) = (traffic(tree, "local"), traffic(tree, "remote"));
        let protocol = tree.value("protocol").filter(|name| *name != ALL_PROTOCOLS).and_then(protocol);
        let protocol = protocol.filter(|number| *number != 0);
        if let Some(side) =
            [(&local, "local"), (&remote, "remote")].into_iter().find(|it| it.0.port.is_some())
            && protocol.is_none()
        {
            let reason = format!("{path}: {} port is set without protocol", side.1);
            self.error(tree.location(), reason, format!("set {path} protocol tcp, or udp"));
        }
        if protocol.is_some() && (local.prefixes.is_empty() || remote.prefixes.is_empty()) {
            self.warn(format!(
                "{path} has protocol but not both prefixes: all addresses of that side are proposed, and what the peer \
                 narrows them to is used"
            ));
        }
        self.check_prefix_families(path, tree, &local.prefixes, &remote.prefixes);
        let (esp_group, esp) = self.esp_of(named, path, tree, default)?;
        if esp.mode == Mode::Transport && !(local.prefixes.is_empty() && remote.prefixes.is_empty()) {
            let reason =
                format!("{path}: esp-group {esp_group} has mode transport, which does not allow prefixes");
            let fix = format!("set vpn ipsec esp-group {esp_group} mode tunnel, or delete the prefixes");
            self.error(tree.location(), reason, fix);
        }
        Some(Tunnel {
            esp_group,
            esp,
            protocol,
            local,
            remote,
            priority: set(tree, "priority"),
            mtu: set(tree, "mtu"),
        })
    }

    /// Every network must have one of its family on the other side.
    fn check_prefix_families(&mut self, path: &str, tree: &Tree, local: &[IpNet], remote: &[IpNet]) {
        for (side, ours, other, theirs) in
            [("local", local, "remote", remote), ("remote", remote, "local", local)]
        {
            let is_v4 = |prefix: &IpNet| matches!(prefix, IpNet::V4(_));
            let lonely = ours.iter().find(|a| !theirs.iter().any(|b| is_v4(a) == is_v4(b)));
            if let (Some(prefix), false) = (lonely, theirs.is_empty()) {
                let kind = if is_v4(prefix) { "IPv4" } else { "IPv6" };
                let reason = format!("{path}: {side} prefix {prefix} is {kind}, and no {other} prefix is");
                let fix = format!(
                    "set {path} {other} prefix to one of {kind}, or delete {path} {side} prefix {prefix}"
                );
                self.error(tree.location(), reason, fix);
                return;
            }
        }
    }

    fn esp_of(
        &mut self,
        named: &Named<'_>,
        path: &str,
        tree: &Tree,
        default: Option<&str>,
    ) -> Option<(String, Arc<Esp>)> {
        let known: Vec<&str> = named.esp.keys().copied().collect();
        let Some(name) = tree.value("esp-group").or(default) else {
            let reason = format!("{path}: esp-group is not set");
            self.error(tree.location(), reason, format!("set {path} esp-group {}", one_of(&known)));
            return None;
        };
        if let Some(found) = named.esp.get(name) {
            return Some((name.to_owned(), found.clone()?));
        }
        self.follow(named.root, &format!("{path} esp-group"), name, tree.location_of("esp-group"));
        None
    }
}

/// The addresses in `remote-address`; none if the peer may have any.
fn remote_addresses(tree: &Tree) -> Vec<Remote> {
    let values = tree.values("remote-address");
    let remotes: Vec<Option<Remote>> = values
        .into_iter()
        .map(|text| match text.parse::<IpAddr>() {
            Ok(address) => (!address.is_unspecified()).then_some(Remote::Address(address)),
            Err(_) => (text != "any").then(|| Remote::Name(text.to_owned())),
        })
        .collect();
    remotes.into_iter().collect::<Option<_>>().unwrap_or_default()
}

fn traffic(tree: &Tree, side: &str) -> Traffic {
    let Some(tree) = tree.at(&[side]) else { return Traffic { prefixes: Vec::new(), port: None } };
    Traffic { prefixes: parsed(tree.values("prefix")), port: set(tree, "port") }
}

/// The names to choose from.
fn one_of(known: &[&str]) -> String {
    if known.is_empty() { "NAME".to_owned() } else { known.join(", or ") }
}
