//! The nodes of an interface as directives of OpenVPN.

use super::profile::{CLIENTS, File, Profile};
use super::{Interface, Mode, Reader};
use crate::tree::Tree;
use ipnet::{IpNet, Ipv4Net};
use std::net::IpAddr;
use zeroize::Zeroizing;

impl Reader {
    pub(super) fn directives(&mut self, interface: &Interface<'_>) -> Profile {
        let mut profile = Profile::default();
        let file = profile.main();
        file.line(&interface.path, &["dev", interface.name]);
        file.line(&interface.path, &["dev-type", "tun"]);
        sockets(interface, file);
        match interface.mode {
            Mode::Server => server(interface, &mut profile),
            Mode::Client => client(interface, file),
            Mode::SiteToSite => site_to_site(interface, file),
        }
        let file = profile.main();
        session(interface, file);
        self.tls(interface, file);
        let origin = interface.at("openvpn-option");
        for option in interface.tree.values("openvpn-option") {
            // VyOS keeps a quotation mark as the entity of XML.
            let line = option.trim().replace("&quot;", "\"");
            file.raw(&origin, line.strip_prefix("--").unwrap_or(&line));
        }
        profile
    }
}

/// The sockets, and where the peers are.
fn sockets(interface: &Interface<'_>, file: &mut File) {
    let tree = interface.tree;
    let version = match tree.value("ip-version") {
        Some("ipv4") => "4",
        Some("ipv6" | "dual-stack") => "6",
        _ => "",
    };
    let transport = match interface.protocol() {
        "tcp-passive" => format!("tcp{version}-server"),
        "tcp-active" => format!("tcp{version}-client"),
        _ => format!("udp{version}"),
    };
    let origin = if tree.has("protocol") { "protocol" } else { "ip-version" };
    file.line(&interface.at(origin), &["proto", &transport]);
    for (word, directive) in [("local-host", "local"), ("local-port", "lport"), ("remote-port", "rport")] {
        if let Some(value) = tree.value(word) {
            file.line(&interface.at(word), &[directive, value]);
        }
    }
    for host in tree.values("remote-host") {
        file.line(&interface.at("remote-host"), &["remote", host]);
    }
}

fn server(interface: &Interface<'_>, profile: &mut Profile) {
    let empty = Tree::default();
    let server = interface.tree.at(&["server"]).unwrap_or(&empty);
    let at = |word: &str| interface.at(&format!("server {word}"));
    let subnets: Vec<IpNet> = super::super::parsed(server.values("subnet"));
    let file = profile.main();
    let topology = match server.value("topology") {
        Some("point-to-point") => "p2p",
        Some("net30") => "net30",
        _ => "subnet",
    };
    file.line(&at("topology"), &["topology", topology]);
    for subnet in &subnets {
        match subnet {
            IpNet::V4(subnet) => server_v4(server, *subnet, &at, file),
            IpNet::V6(subnet) => {
                file.line(&at("subnet"), &["server-ipv6", &subnet.to_string()]);
                if let Some(base) = server.at(&["client-ipv6-pool"]).and_then(|pool| pool.value("base")) {
                    file.line(&at("client-ipv6-pool base"), &["ifconfig-ipv6-pool", base]);
                }
            }
        }
    }
    for (prefix, route) in server.at(&["push-route"]).into_iter().flat_map(Tree::children) {
        let metric = route.value("metric").filter(|metric| *metric != "0");
        file.line(&at(&format!("push-route {prefix}")), &["push", &pushed_route(prefix, metric)]);
    }
    for name_server in server.values("name-server") {
        file.line(&at("name-server"), &["push", &format!("dhcp-option DNS {name_server}")]);
    }
    if let Some(domain) = server.value("domain-name") {
        file.line(&at("domain-name"), &["push", &format!("dhcp-option DOMAIN {domain}")]);
    }
    let authentication = interface.tree.at(&["authentication"]);
    if let Some(hashes) = authentication.and_then(|given| given.value("password-hash-file")) {
        let origin = interface.at("authentication password-hash-file");
        file.line(&origin, &["auth-user-pass-hashes", hashes]);
    }
    if let Some(count) = server.value("max-connections") {
        file.line(&at("max-connections"), &["max-clients", count]);
    }
    if let Some(default) = interface.tree.at(&["replace-default-route"]) {
        let local = if default.has("local") { " local" } else { "" };
        let push = format!("redirect-gateway def1{local}");
        file.line(&interface.at("replace-default-route"), &["push", &push]);
    }
    let is_exclusive = server.has("reject-unconfigured-clients");
    if is_exclusive || server.at(&["client"]).is_some() {
        file.line(&at("client"), &["client-config-dir", CLIENTS]);
    }
    if is_exclusive {
        file.line(&at("reject-unconfigured-clients"), &["ccd-exclusive"]);
    }
    for (name, client) in server.at(&["client"]).into_iter().flat_map(Tree::children) {
        client_file(&at(&format!("client {name}")), name, client, &subnets, profile);
    }
}

fn server_v4(server: &Tree, subnet: Ipv4Net, at: &dyn Fn(&str) -> String, file: &mut File) {
    let [network, mask] = [subnet.network(), subnet.netmask()].map(|it| it.to_string());
    let pool = server.at(&["client-ip-pool"]);
    let words = ["server", &network, &mask, "nopool"];
    let Some(pool) = pool else { return file.line(&at("subnet"), &words[..3]) };
    file.line(&at("subnet"), &words);
    if let (Some(start), Some(stop), false) = (pool.value("start"), pool.value("stop"), pool.has("disable")) {
        let mask = pool.value("subnet-mask").unwrap_or(&mask);
        file.line(&at("client-ip-pool"), &["ifconfig-pool", start, stop, mask]);
    }
}

/// The file of one client.
fn client_file(path: &str, name: &str, client: &Tree, subnets: &[IpNet], profile: &mut Profile) {
    let at = |word: &str| format!("{path} {word}");
    let behind: Vec<IpNet> = super::super::parsed(client.values("subnet"));
    for network in &behind {
        let file = profile.main();
        match network {
            IpNet::V4(it) => {
                file.line(&at("subnet"), &["route", &it.network().to_string(), &it.netmask().to_string()]);
            }
            IpNet::V6(it) => file.line(&at("subnet"), &["route-ipv6", &it.to_string()]),
        }
    }
    let file = profile.client(name);
    if client.has("disable") {
        file.line(&at("disable"), &["disable"]);
    }
    for address in super::super::parsed::<IpAddr>(client.values("ip")) {
        let own = subnets.iter().find(|subnet| subnet.contains(&address));
        let address = address.to_string();
        match own {
            Some(IpNet::V4(own)) => {
                file.line(&at("ip"), &["ifconfig-push", &address, &own.netmask().to_string()]);
            }
            Some(IpNet::V6(own)) => {
                file.line(&at("ip"), &["ifconfig-ipv6-push", &format!("{address}/{}", own.prefix_len())]);
            }
            // It was refused.
            None => {}
        }
    }
    for network in behind {
        match network {
            IpNet::V4(it) => {
                file.line(&at("subnet"), &["iroute", &it.network().to_string(), &it.netmask().to_string()]);
            }
            IpNet::V6(it) => file.line(&at("subnet"), &["iroute-ipv6", &it.to_string()]),
        }
    }
    for prefix in client.values("push-route") {
        file.line(&at("push-route"), &["push", &pushed_route(prefix, None)]);
    }
}

/// A route as a server pushes it.
fn pushed_route(prefix: &str, metric: Option<&str>) -> String {
    match (prefix.parse(), metric) {
        (Ok(IpNet::V4(it)), None) => format!("route {} {}", it.network(), it.netmask()),
        (Ok(IpNet::V4(it)), Some(metric)) => {
            format!("route {} {} vpn_gateway {metric}", it.network(), it.netmask())
        }
        (_, None) => format!("route-ipv6 {prefix}"),
        (_, Some(metric)) => format!("route-ipv6 {prefix} default {metric}"),
    }
}

fn client(interface: &Interface<'_>, file: &mut File) {
    let tree = interface.tree;
    file.line(&interface.at("mode"), &["client"]);
    if !tree.has("local-port") && !tree.has("local-host") {
        file.line(&interface.at("mode"), &["nobind"]);
    }
    if let Some(default) = tree.at(&["replace-default-route"]) {
        let words = ["redirect-gateway", "def1", "local"];
        let count = if default.has("local") { 3 } else { 2 };
        file.line(&interface.at("replace-default-route"), &words[..count]);
    }
    let given = tree.at(&["authentication"]);
    let given = given.and_then(|given| Some((given.value("username")?, given.value("password")?)));
    if let Some((name, password)) = given {
        let text = Zeroizing::new(format!("{name}\n{password}\n"));
        file.block(&interface.at("authentication"), "auth-user-pass", &text);
        file.line(&interface.at("authentication"), &["auth-retry", "nointeract"]);
    }
}

fn site_to_site(interface: &Interface<'_>, file: &mut File) {
    let tree = interface.tree;
    let tls = tree.at(&["tls"]);
    let is_active = tls.and_then(|tls| tls.value("role")) == Some("active");
    file.line(&interface.at("tls role"), &[if is_active { "tls-client" } else { "tls-server" }]);
    file.line(&interface.at("mode"), &["topology", "p2p"]);
    let local: Vec<IpAddr> = tree
        .at(&["local-address"])
        .into_iter()
        .flat_map(Tree::children)
        .filter_map(|(address, _)| address.parse().ok())
        .collect();
    let remote: Vec<IpAddr> = super::super::parsed(tree.values("remote-address"));
    for local in local {
        let Some(remote) = remote.iter().find(|it| it.is_ipv4() == local.is_ipv4()) else { continue };
        let (own, other) = (local.to_string(), remote.to_string());
        if local.is_ipv4() {
            file.line(&interface.at("local-address"), &["ifconfig", &own, &other]);
        } else {
            file.line(&interface.at("local-address"), &["ifconfig-ipv6", &format!("{own}/64"), &other]);
        }
    }
}

/// Ciphers, timers and sizes.
fn session(interface: &Interface<'_>, file: &mut File) {
    let tree = interface.tree;
    if let Some(encryption) = tree.at(&["encryption"]) {
        for word in ["data-ciphers", "ncp-ciphers"] {
            let names: Vec<&str> = encryption.values(word).into_iter().map(cipher).collect();
            if !names.is_empty() {
                let origin = interface.at(&format!("encryption {word}"));
                file.line(&origin, &["data-ciphers", &names.join(":")]);
            }
        }
        if let Some(name) = encryption.value("cipher") {
            file.line(&interface.at("encryption cipher"), &["cipher", cipher(name)]);
        }
    }
    if let Some(hash) = tree.value("hash") {
        file.line(&interface.at("hash"), &["auth", &hash.to_uppercase()]);
    }
    keep_alive(interface, file);
    if let Some(mtu) = tree.value("mtu") {
        file.line(&interface.at("mtu"), &["tun-mtu", mtu]);
    }
    // As VyOS writes it.
    if tree.has("use-lzo-compression") {
        file.line(&interface.at("use-lzo-compression"), &["compress", "lzo"]);
    }
    if tree.has("persistent-tunnel") {
        file.line(&interface.at("persistent-tunnel"), &["persist-tun"]);
    }
}

fn keep_alive(interface: &Interface<'_>, file: &mut File) {
    let empty = Tree::default();
    let own = interface.tree.at(&["keep-alive"]);
    // A client has it from its server.
    if own.is_none() && interface.mode == Mode::Client {
        return;
    }
    let own = own.unwrap_or(&empty);
    let parent = "interfaces openvpn <interface> keep-alive";
    let number = |word| super::super::set_or_default::<u32>(own, parent, word);
    let interval = number("interval");
    let timeout = interval * number("failure-count");
    let origin = interface.at("keep-alive");
    match interface.mode {
        Mode::Server if interval > 0 && timeout > 0 => {
            file.line(&origin, &["keepalive", &interval.to_string(), &timeout.to_string()]);
        }
        _ => {
            if interval > 0 {
                file.line(&origin, &["ping", &interval.to_string()]);
            }
            if timeout > 0 {
                file.line(&origin, &["ping-restart", &timeout.to_string()]);
            }
        }
    }
}

/// OpenVPN's name of a cipher.
pub fn cipher(word: &str) -> &str {
    match word {
        "3des" => "DES-EDE3-CBC",
        "aes128" => "AES-128-CBC",
        "aes128gcm" => "AES-128-GCM",
        "aes192" => "AES-192-CBC",
        "aes192gcm" => "AES-192-GCM",
        "aes256" => "AES-256-CBC",
        "aes256gcm" => "AES-256-GCM",
        other => other,
    }
}
