//! What VyOS checks at commit: settings that exclude each other, and settings that are missing.

use super::super::parsed;
use super::{Interface, Mode, Reader};
use crate::tree::Tree;
use ipnet::{IpNet, Ipv4Net};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// The longest prefix of the network of a server, and of its IPv6 network.
const SMALLEST_V4: u8 = 29;
const SMALLEST_V6: u8 = 112;
/// Most addresses of a pool, as in OpenVPN.
const MOST: u32 = 65_536;

/// A node that does not fit another: the node, the reason and the fix.
type Row = (&'static str, &'static str, &'static str);

const DELETE: &str = "delete";
const NOT_OF_CLIENT: &[Row] = &[
    ("local-port", "a client takes any port", DELETE),
    ("local-host", "a client takes any address", DELETE),
    ("local-address", "a client has its address from the server", DELETE),
    ("remote-address", "a client has its address from the server", DELETE),
    ("server", "it is for mode server", DELETE),
];
const NOT_OF_SERVER: &[Row] = &[
    ("remote-port", "a server waits for its clients", DELETE),
    ("remote-host", "a server waits for its clients", DELETE),
    ("remote-address", "the address of the server is the first of server subnet", DELETE),
    ("local-address", "the address of the server is the first of server subnet", DELETE),
];
const NOT_OF_SITES: &[Row] = &[
    ("server", "it is for mode server", DELETE),
    ("authentication", "it is for mode client or server", DELETE),
    ("replace-default-route", "it is for mode client or server", DELETE),
];

impl Reader {
    pub(super) fn check_openvpn(&mut self, interface: &Interface<'_>) {
        let rows = match interface.mode {
            Mode::Server => NOT_OF_SERVER,
            Mode::Client => NOT_OF_CLIENT,
            Mode::SiteToSite => NOT_OF_SITES,
        };
        for (word, reason, fix) in rows.iter().filter(|(word, ..)| interface.tree.has(word)) {
            self.wrong(interface, word, &format!("mode {}: {reason}", interface.mode.word()), fix);
        }
        if interface.tree.value("device-type") == Some("tap") {
            let reason = "the interface carries IP packets, without Ethernet";
            self.wrong(interface, "device-type", reason, "set {path} device-type tun on both ends");
        }
        self.protocol(interface);
        match interface.mode {
            Mode::Server => self.server(interface),
            Mode::Client => self.client(interface),
            Mode::SiteToSite => self.sites(interface),
        }
        self.certificates(interface);
    }

    /// An error of a node; in `fix`, `{path}` stands for the interface.
    fn wrong(&mut self, interface: &Interface<'_>, word: &str, reason: &str, fix: &str) {
        let (tree, path) = (interface.tree, &interface.path);
        let words: Vec<&str> = word.split(' ').collect();
        let location = match words.split_last() {
            Some((last, above)) => tree.at(above).unwrap_or(tree).location_of(last),
            None => tree.location(),
        };
        let fix = if fix == DELETE { format!("delete {path} {word}") } else { fix.replace("{path}", path) };
        self.error(location, format!("{path} {word}: {reason}"), fix);
    }

    fn protocol(&mut self, interface: &Interface<'_>) {
        let has_remote = interface.tree.has("remote-host");
        match (interface.protocol(), interface.mode) {
            ("tcp-active", Mode::Server) => {
                let fix = "set {path} protocol tcp-passive";
                self.wrong(interface, "protocol", "mode server: a server does not connect", fix);
            }
            ("tcp-passive", Mode::Client) => {
                let fix = "set {path} protocol tcp-active";
                self.wrong(interface, "protocol", "mode client: a client does not listen", fix);
            }
            ("tcp-passive", Mode::SiteToSite) if has_remote => {
                let reason = "protocol tcp-passive: this end listens, and the other connects";
                self.wrong(interface, "remote-host", reason, DELETE);
            }
            ("tcp-active", Mode::SiteToSite) if !has_remote => {
                let fix = "set {path} remote-host ADDRESS";
                self.wrong(interface, "protocol", "tcp-active: remote-host is not set", fix);
            }
            _ => {}
        }
    }

    fn client(&mut self, interface: &Interface<'_>) {
        let tree = interface.tree;
        if !tree.has("remote-host") {
            self.wrong(interface, "mode", "client: remote-host is not set", "set {path} remote-host ADDRESS");
        }
        if let Some(given) = tree.at(&["authentication"]) {
            if given.has("password-hash-file") {
                let reason = "mode client: a server checks passwords";
                self.wrong(interface, "authentication password-hash-file", reason, DELETE);
            }
            for word in ["username", "password"].into_iter().filter(|word| !given.has(word)) {
                let fix = format!("set {{path}} authentication {word} TEXT");
                self.wrong(interface, "authentication", &format!("{word} is not set"), &fix);
            }
        }
        let is_named = |option: &&str| {
            let option = option.trim().trim_start_matches('-');
            ["remote-cert-tls", "verify-x509-name", "remote-cert-eku"].iter().any(|it| option.starts_with(it))
        };
        let tls = tree.at(&["tls"]);
        let pins = tls.is_some_and(|tls| tls.has("peer-fingerprint"));
        if tls.is_some() && !pins && !tree.values("openvpn-option").iter().any(is_named) {
            let path = &interface.path;
            self.warn(format!(
                "{path} tls: a client with a certificate of this authority can pass as the server; if the server's certificate is \
                 for servers: set {path} openvpn-option 'remote-cert-tls server'"
            ));
        }
    }

    fn sites(&mut self, interface: &Interface<'_>) {
        let tree = interface.tree;
        let local = tree.at(&["local-address"]);
        let local: Vec<IpAddr> = local
            .into_iter()
            .flat_map(Tree::children)
            .filter_map(|(address, _)| address.parse().ok())
            .collect();
        let remote: Vec<IpAddr> = parsed(tree.values("remote-address"));
        for (word, found, other) in [("local-address", &local, &remote), ("remote-address", &remote, &local)]
        {
            if found.is_empty() {
                let fix = format!("set {{path}} {word} ADDRESS");
                self.wrong(interface, "mode", &format!("site-to-site: {word} is not set"), &fix);
            }
            for is_v4 in [true, false] {
                let of_version = found.iter().filter(|it| it.is_ipv4() == is_v4).count();
                let version = if is_v4 { 4 } else { 6 };
                if of_version > 1 {
                    self.wrong(
                        interface,
                        word,
                        &format!("there are {of_version} of IPv{version}"),
                        "delete all but one",
                    );
                }
                if of_version == 1 && !other.is_empty() && !other.iter().any(|it| it.is_ipv4() == is_v4) {
                    let reason = format!("the other end has no IPv{version} address");
                    self.wrong(
                        interface,
                        word,
                        &reason,
                        "set {path} local-address and remote-address of one IP version",
                    );
                }
            }
        }
        if let Some(both) = local.iter().find(|address| remote.contains(address)) {
            let reason = format!("{both} is local-address, too");
            self.wrong(interface, "remote-address", &reason, "set the address of the other end");
        }
    }

    fn certificates(&mut self, interface: &Interface<'_>) {
        let empty = Tree::default();
        let tls = interface.tree.at(&["tls"]).unwrap_or(&empty);
        if !tls.has("ca-certificate") && !tls.has("peer-fingerprint") {
            let fix =
                "set {path} tls ca-certificate NAME, the authority that signed the certificate of the peer";
            self.wrong(interface, "tls", "neither ca-certificate nor peer-fingerprint is set", fix);
        }
        let has_password = interface.mode == Mode::Client && interface.tree.has("authentication");
        if !has_password && !tls.has("certificate") {
            self.wrong(interface, "tls", "certificate is not set", "set {path} tls certificate NAME");
        }
        if tls.has("auth-key") && tls.has("crypt-key") {
            self.wrong(interface, "tls auth-key", "crypt-key is set, too", DELETE);
        }
        let role = tls.value("role");
        let fits = match (interface.protocol(), role) {
            ("tcp-active", Some("passive")) | ("tcp-passive", Some("active")) => false,
            _ => interface.mode == Mode::SiteToSite || role.is_none(),
        };
        if !fits && interface.mode == Mode::SiteToSite {
            let reason = format!("it does not go with protocol {}", interface.protocol());
            self.wrong(interface, "tls role", &reason, "the end that connects is active");
        } else if !fits {
            self.wrong(interface, "tls role", "it is for mode site-to-site", DELETE);
        } else if interface.mode == Mode::SiteToSite && role.is_none() {
            let fix = "set {path} tls role active on one end, and passive on the other";
            self.wrong(interface, "tls", "role is not set", fix);
        }
    }

    fn server(&mut self, interface: &Interface<'_>) {
        let empty = Tree::default();
        let authentication = interface.tree.at(&["authentication"]).unwrap_or(&empty);
        for word in ["username", "password"].into_iter().filter(|word| authentication.has(word)) {
            let reason = "mode server: a client sends a name and a password, and no server does";
            self.wrong(interface, &format!("authentication {word}"), reason, DELETE);
        }
        let server = interface.tree.at(&["server"]).unwrap_or(&empty);
        let subnets: Vec<IpNet> = parsed(server.values("subnet"));
        if subnets.is_empty() {
            let fix = "set {path} server subnet 10.8.0.0/24";
            self.wrong(interface, "mode", "server: server subnet is not set", fix);
            return;
        }
        for is_v4 in [true, false] {
            let found: Vec<&IpNet> = subnets.iter().filter(|it| it.addr().is_ipv4() == is_v4).collect();
            let (version, smallest) = if is_v4 { (4, SMALLEST_V4) } else { (6, SMALLEST_V6) };
            if found.len() > 1 {
                let reason = format!("there are {} of IPv{version}", found.len());
                self.wrong(interface, "server subnet", &reason, "delete all but one");
            }
            if let Some(small) = found.iter().find(|it| it.prefix_len() > smallest) {
                let reason = format!("{small} is too small for a server and its clients");
                let fix = format!("set {{path}} server subnet with a length of up to {smallest}");
                self.wrong(interface, "server subnet", &reason, &fix);
            }
        }
        self.pool(interface, server, &subnets);
        self.clients(interface, server, &subnets);
        let is_exclusive = server.has("reject-unconfigured-clients");
        if is_exclusive && server.at(&["client"]).is_none() {
            let fix = "set {path} server client NAME ...";
            self.wrong(interface, "server reject-unconfigured-clients", "there is no server client", fix);
        }
    }

    fn pool(&mut self, interface: &Interface<'_>, server: &Tree, subnets: &[IpNet]) {
        let v6 = subnets.iter().any(|it| it.addr().is_ipv6());
        if server.has("client-ipv6-pool") && !v6 {
            let fix = "set {path} server subnet PREFIX of IPv6";
            self.wrong(interface, "server client-ipv6-pool", "there is no server subnet of IPv6", fix);
        }
        let Some(pool) = server.at(&["client-ip-pool"]).filter(|pool| !pool.has("disable")) else { return };
        let place = "server client-ip-pool";
        let own = subnets.iter().find_map(|it| if let IpNet::V4(it) = it { Some(*it) } else { None });
        let Some(own) = own else {
            let fix = "set {path} server subnet PREFIX of IPv4";
            return self.wrong(interface, place, "there is no server subnet of IPv4", fix);
        };
        let end = |word: &str| pool.value(word).and_then(|it| it.parse::<Ipv4Addr>().ok());
        let (Some(start), Some(stop)) = (end("start"), end("stop")) else {
            let fix = format!("set {{path}} {place} start ADDRESS, and stop ADDRESS, of IPv4");
            return self.wrong(interface, place, "start or stop is not set", &fix);
        };
        if let Some((reason, fix)) = wrong_pool(own, start, stop) {
            self.wrong(interface, place, &reason, &fix);
        }
    }

    fn clients(&mut self, interface: &Interface<'_>, server: &Tree, subnets: &[IpNet]) {
        let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for (name, client) in server.at(&["client"]).into_iter().flat_map(Tree::children) {
            let place = format!("server client {name} ip");
            let addresses: Vec<IpAddr> = parsed(client.values("ip"));
            for is_v4 in [true, false] {
                let count = addresses.iter().filter(|it| it.is_ipv4() == is_v4).count();
                if count > 1 {
                    let reason = format!("there are {count} of IPv{}", if is_v4 { 4 } else { 6 });
                    self.wrong(interface, &place, &reason, "delete all but one");
                }
            }
            for address in addresses {
                if !subnets.iter().any(|subnet| subnet.contains(&address)) {
                    let fix = format!("set {{path}} {place} to an address of the server subnet");
                    self.wrong(interface, &place, &format!("{address} is in no server subnet"), &fix);
                }
                if let Some(other) = owners.insert(address, name) {
                    let fix = format!("set {{path}} {place} to another one");
                    self.wrong(interface, &place, &format!("client {other} has {address}, too"), &fix);
                }
            }
        }
    }
}

fn wrong_pool(own: Ipv4Net, start: Ipv4Addr, stop: Ipv4Addr) -> Option<(String, String)> {
    let [first, last] = [start, stop].map(Ipv4Addr::to_bits);
    let fix = format!("set addresses of {own}, with start before stop");
    if !own.contains(&start) || !own.contains(&stop) {
        return Some((format!("{start} to {stop} is not in the server subnet {own}"), fix));
    }
    if first > last {
        return Some((format!("start {start} is behind stop {stop}"), fix));
    }
    (last - first >= MOST).then(|| (format!("more than {MOST} addresses"), "set fewer".to_owned()))
}
