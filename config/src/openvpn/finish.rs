//! Settings of a draft: roles, peers and sockets, and checks of directives against each other.

use super::builder::Builder;
use super::draft::{Link, Local, Remote, Written};
use super::helper;
use super::row::For;
use super::settings::NULL;
use super::settings::{
    Addresses, CertificateOf, Connection, Family, Gateway, Listen, OpenVpn, Protocol, Role, TlsRole,
    Topology, Transport, Wrapping,
};
use super::table;
use super::{Loaded, Refusal};
use ipnet::Ipv4Net;
use std::net::IpAddr;

pub(super) fn finish(mut builder: Builder<'_>) -> (Loaded, Vec<Refusal>) {
    helper::expand(&mut builder);
    let role = role(&mut builder);
    check_roles(&mut builder, role);
    check_tls(&mut builder, role);
    check_compression(&mut builder, role);
    check_scripts(&mut builder);
    check_server(&mut builder, role);
    addresses(&mut builder, role);
    management(&mut builder);
    let listen = listen(&mut builder, role);
    let connections = connections(&mut builder, role);
    let Builder { draft, mut verdict, seen, .. } = builder;
    verdict.refusals.sort_by(|a, b| a.position.cmp(&b.position));
    let settings = OpenVpn {
        role,
        connections,
        listen,
        connecting: draft.connecting,
        device: draft.device,
        routing: draft.routing,
        dns: draft.dns,
        tls: draft.tls,
        data: draft.data,
        timers: draft.timers,
        server: (role == Role::Server).then_some(draft.server),
        client: (role == Role::Client).then_some(draft.client),
        scripts: draft.scripts,
        management: draft.management,
        log: draft.log,
        process: draft.process,
    };
    (Loaded { settings, remarks: verdict.remarks, given: seen }, verdict.refusals)
}

fn role(builder: &mut Builder<'_>) -> Role {
    let role = match (builder.draft.is_server, builder.draft.pull) {
        (true, false) => Role::Server,
        (false, true) => Role::Client,
        (false, false) => Role::SiteToSite,
        (true, true) => {
            if !builder.has("server") {
                let reason = "mode server and client exclude each other";
                builder.refuse("mode", reason, "delete one of them");
            }
            Role::Server
        }
    };
    match builder.draft.tls_role {
        Some(tls_role) => builder.draft.tls.role = tls_role,
        None if builder.was_refused(&["secret", "server", "server-bridge", "mode"]) => {}
        None => {
            let fix = "write client on a client, server NETWORK NETMASK on a server, or tls-server and tls-client on two peers";
            builder.refuse(
                "",
                "there is no TLS: neither client, server, tls-client nor tls-server is set",
                fix,
            );
        }
    }
    if role == Role::Server && builder.draft.tls.role == TlsRole::Client {
        builder.refuse("mode", "mode server needs tls-server", "write tls-server");
    }
    role
}

/// Refuses directives of a server on others; those of a client have no effect there.
fn check_roles(builder: &mut Builder<'_>, role: Role) {
    let names: Vec<&'static str> = builder.seen.keys().copied().collect();
    let is_known = !builder.was_refused(&["server", "server-bridge", "mode"]);
    for row in names.into_iter().filter_map(table::find) {
        if row.role == For::Server && role != Role::Server && is_known {
            builder.refuse(
                row.name,
                "it is for a server",
                "delete it, or write server NETWORK NETMASK or mode server",
            );
        }
        if row.role == For::Client && role != Role::Client {
            builder.warn(row.name, "it has no effect: it is for a client");
        }
    }
    if builder.has("auth-user-pass") && role != Role::Client {
        builder.refuse("auth-user-pass", "it is for a client", "write client, or delete it");
    }
    if builder.was_refused(&["dev"]) {
        return;
    }
    if builder.draft.device.name.is_empty() {
        builder.refuse("", "dev is not set", "write dev tun");
    } else if !builder.draft.device.name.starts_with("tun")
        && builder.draft.device.name != NULL
        && builder.draft.device_type.is_none()
    {
        let name = builder.draft.device.name.clone();
        builder.refuse("dev", format!("the type of {name} is not known"), "write dev-type tun");
    }
}

fn check_tls(builder: &mut Builder<'_>, role: Role) {
    let tls = &builder.draft.tls;
    let has_peers = tls.authority.is_some() || tls.authority_directory.is_some();
    let is_trusting =
        has_peers || !tls.peer_fingerprints.is_empty() || builder.has("ca") || builder.has("capath");
    let certificate = (tls.certificate.is_some(), tls.key.is_some());
    let (version_min, version_max) = (tls.version_min, tls.version_max);
    let has_no_suite = tls.suites.as_ref().is_some_and(Vec::is_empty);
    let is_tls12_only = version_max.is_some_and(|max| max < super::settings::TlsVersion::V1_3);
    // What was refused is not missing.
    let missing = |name: &str, builder: &Builder<'_>| !builder.was_refused(&[name, "pkcs12", "secret"]);
    if !is_trusting && missing("ca", builder) {
        builder.refuse("", "no authority is trusted", "write ca FILE, or peer-fingerprint HASH");
    }
    let needs = role != Role::Client || certificate.0 || certificate.1;
    if needs && !certificate.0 && missing("cert", builder) {
        builder.refuse("", "cert is not set", "write cert FILE");
    }
    if needs && !certificate.1 && missing("key", builder) {
        builder.refuse("", "key is not set", "write key FILE");
    }
    if role == Role::Client
        && !certificate.0
        && builder.draft.client.user.is_none()
        && missing("cert", builder)
    {
        let reason = "the client has neither a certificate nor a user name";
        builder.refuse("", reason, "write cert FILE and key FILE, or auth-user-pass");
    }
    if version_min.zip(version_max).is_some_and(|(min, max)| min > max) {
        builder.refuse("tls-version-max", "it is older than tls-version-min", "delete one of them");
    }
    if has_no_suite && is_tls12_only {
        let fix = "delete the line, or write TLS-ECDHE-RSA-WITH-AES-256-GCM-SHA384";
        builder.refuse("tls-cipher", "none of these suites is served, and TLS 1.3 is excluded", fix);
    }
}

/// Compression reveals what is encrypted (VORACLE): a server ends that of its clients, a client only its own.
fn check_compression(builder: &mut Builder<'_>, role: Role) {
    let Some(name) = builder.draft.compresses else { return };
    builder.warn(
        name,
        if role == Role::Server {
            "nothing is compressed: clients are told to stop it"
        } else {
            "nothing is compressed: packets that the peer compresses are dropped, so it must not (comp-lzo no there)"
        },
    );
}

fn check_scripts(builder: &mut Builder<'_>) {
    if !builder.has("script-security") {
        builder.draft.scripts.security = 1;
    }
    let security = builder.draft.scripts.security;
    let scripts = [
        "up",
        "down",
        "route-up",
        "route-pre-down",
        "ipchange",
        "client-connect",
        "client-disconnect",
        "client-crresponse",
        "learn-address",
        "tls-verify",
        "tls-crypt-v2-verify",
        "auth-user-pass-verify",
    ];
    for name in scripts {
        if builder.has(name) && security < 2 {
            let reason = "programs are not run without script-security 2";
            builder.refuse(name, reason, "write script-security 2");
        }
    }
    let by_environment = builder.draft.server.password_check.as_ref().is_some_and(|it| it.is_by_environment);
    if by_environment && security == 2 {
        let reason = "passwords are not handed over in the environment without script-security 3";
        builder.refuse(
            "auth-user-pass-verify",
            reason,
            "write script-security 3, or via-file in place of via-env",
        );
    }
}

fn check_server(builder: &mut Builder<'_>, role: Role) {
    if role != Role::Server {
        return;
    }
    let server = &builder.draft.server;
    let has_hashes = builder.has("auth-user-pass-hashes");
    let checks_password = server.password_check.is_some()
        || has_hashes
        || builder.has("management") && builder.has("management-client-auth");
    let is_external = server.token.as_ref().is_some_and(|token| token.is_external);
    let has_directory = server.client_directory.is_some();
    let is_optional = server.certificate != CertificateOf::Required;
    let no_plugin = !builder.verdict.refusals.iter().any(|refusal| refusal.directive == "plugin");
    if is_optional && !checks_password && no_plugin {
        let name =
            if builder.has("verify-client-cert") { "verify-client-cert" } else { "client-cert-not-required" };
        let fix = "write auth-user-pass-verify COMMAND via-file, or verify-client-cert require";
        builder.refuse(name, "clients would need neither a certificate nor a password", fix);
    }
    if builder.has("username-as-common-name") && !checks_password && no_plugin {
        let fix = "write auth-user-pass-verify COMMAND via-file";
        builder.refuse("username-as-common-name", "no user name is checked", fix);
    }
    if has_hashes && builder.has("auth-user-pass-verify") {
        let reason = "auth-user-pass-verify checks passwords, too";
        builder.refuse("auth-user-pass-hashes", reason, "delete one of them");
    }
    if has_hashes && is_external {
        let reason = "external-auth hands tokens to a program, and auth-user-pass-hashes is none";
        builder.refuse("auth-gen-token", reason, "delete external-auth");
    }
    if builder.has("ccd-exclusive") && !has_directory {
        builder.refuse("ccd-exclusive", "client-config-dir is not set", "write client-config-dir DIRECTORY");
    }
    if builder.draft.server.port_share.is_some() && !has_tcp(builder) {
        builder.refuse("port-share", "it needs TCP", "write proto tcp-server");
    }
}

/// Whether a server has a socket of TCP.
fn has_tcp(builder: &Builder<'_>) -> bool {
    let link = &builder.draft.link;
    let own = link.locals.iter().map(|local| local.protocol.unwrap_or(link.protocol).0);
    let protocols: Vec<Written> = if link.locals.is_empty() { vec![link.protocol.0] } else { own.collect() };
    protocols.iter().any(|protocol| *protocol != Written::Udp)
}

/// What `ifconfig` means by the role.
fn addresses(builder: &mut Builder<'_>, role: Role) {
    if let Some((local, second)) = builder.draft.ifconfig {
        let net = Ipv4Net::with_netmask(local, second).ok().filter(|net| net.prefix_len() > 0);
        let is_subnet = builder.draft.device.topology == Topology::Subnet;
        builder.draft.device.addresses = match net {
            Some(net) if is_subnet || role == Role::Server => Some(Addresses::Subnet(net)),
            None if !is_subnet => Some(Addresses::Peer(local, second)),
            Some(_) => {
                let fix = "write topology subnet, or the address of the other end";
                builder.refuse("ifconfig", format!("{second} is a netmask, and not the other end"), fix);
                None
            }
            None => {
                let fix = format!("write ifconfig {local} 255.255.255.0");
                builder.refuse("ifconfig", format!("{second} is not a netmask"), fix);
                None
            }
        };
    }
    if role == Role::Server && builder.draft.device.addresses.is_none() && builder.draft.device.ipv6.is_none()
    {
        builder.refuse("", "the server has no addresses", "write server 10.8.0.0 255.255.255.0");
    }
    if role != Role::Client
        && builder.draft.routing.gateway.is_none()
        && let Some(Addresses::Peer(_, remote)) = builder.draft.device.addresses
    {
        builder.draft.routing.gateway = Some(Gateway::Address(IpAddr::V4(remote)));
    }
}

fn management(builder: &mut Builder<'_>) {
    let draft = &mut builder.draft;
    if let Some(management) = &mut draft.management {
        for set in &draft.management_flags {
            set(management);
        }
        management.user = draft.management_user.take();
        management.group = draft.management_group.take();
        management.log_lines = draft.management_lines.unwrap_or(management.log_lines);
        return;
    }
    let names: Vec<&'static str> = builder.seen.keys().copied().collect();
    for name in names.into_iter().filter(|name| name.starts_with("management-")) {
        builder.warn(name, "it has no effect: management is not set");
    }
}

fn protocol((written, family): (Written, Family), is_server: bool) -> Protocol {
    Protocol { transport: written.transport(is_server), family }
}

/// The sockets of a server.
fn listen(builder: &mut Builder<'_>, role: Role) -> Vec<Listen> {
    let link = &builder.draft.link;
    if role != Role::Server {
        return Vec::new();
    }
    let any = [Local { host: None, port: None, protocol: None }];
    let locals = if link.locals.is_empty() { &any[..] } else { &link.locals[..] };
    let port = link.base.local_port.unwrap_or(super::settings::PORT);
    let sockets = locals.iter().map(|local| Listen {
        host: local.host.clone(),
        port: local.port.unwrap_or(port),
        protocol: protocol(local.protocol.unwrap_or(link.protocol), true),
    });
    let sockets: Vec<Listen> = sockets.collect();
    if sockets.iter().any(|socket| socket.protocol.transport == Transport::TcpClient) {
        builder.refuse("proto", "a server does not connect", "write proto tcp-server or proto udp");
    }
    for name in ["remote", "nobind"] {
        if builder.has(name) {
            builder.refuse(name, "it is not for a server", "delete the line");
        }
    }
    sockets
}

/// The peers in their order: those of blocks `<connection>`, or those of `remote`.
fn connections(builder: &mut Builder<'_>, role: Role) -> Vec<Connection> {
    let links = std::mem::take(&mut builder.draft.links);
    let global = std::mem::take(&mut builder.draft.link);
    if !links.is_empty() && !global.remotes.is_empty() {
        builder.warn("remote", "it has no effect beside blocks <connection>");
    }
    let mut found = Vec::new();
    let is_tls_server = builder.draft.tls.role == TlsRole::Server;
    let links = if links.is_empty() {
        vec![global]
    } else {
        links.into_iter().map(|link| with_keys_of(link, &global)).collect()
    };
    for link in links {
        if role != Role::Server && link.locals.len() > 1 {
            builder.refuse("local", "several addresses are for a server", "write one local");
        }
        let wrapping = wrapping(builder, &link);
        let none = [Remote { host: String::new(), port: None, protocol: None }];
        let remotes = if link.remotes.is_empty() { &none[..] } else { &link.remotes[..] };
        for remote in remotes {
            found.push(connection(&link, remote, role, is_tls_server, wrapping.clone()));
        }
    }
    if let Some(only) = builder.draft.connecting.only {
        let is_udp = only == Transport::Udp;
        found.retain(|it| (it.protocol.transport == Transport::Udp) == is_udp);
        if found.is_empty() {
            builder.refuse("proto-force", "no remote has this protocol", "delete the line, or add a remote");
        }
    }
    if role == Role::Client && found.iter().all(|it| it.remote.is_none()) && !builder.was_refused(&["remote"])
    {
        builder.refuse("client", "there is no remote", "write remote HOST [PORT] [PROTOCOL]");
    }
    if role == Role::Client && found.iter().any(|it| it.protocol.transport == Transport::TcpServer) {
        builder.refuse("proto", "a client does not listen", "write proto tcp-client");
    }
    let is_tcp = |it: &Connection| it.protocol.transport != Transport::Udp;
    if found.iter().any(|it| is_tcp(it) && it.exit_notify > 0) && found.iter().all(is_tcp) {
        builder.warn("explicit-exit-notify", "it has no effect over TCP: the end of the connection says it");
    }
    found
}

/// A block without keys of its own has those of the whole file, also from behind it.
fn with_keys_of(link: Link, global: &Link) -> Link {
    if link.auth.is_some() || link.crypt.is_some() || link.crypt_v2.is_some() {
        return Link { direction: link.direction.or(global.direction), ..link };
    }
    let Link { auth, crypt, crypt_v2, direction, .. } = global.clone();
    Link { auth, crypt, crypt_v2, direction, ..link }
}

fn connection(
    link: &Link,
    remote: &Remote,
    role: Role,
    is_tls_server: bool,
    wrapping: Option<Wrapping>,
) -> Connection {
    let protocol = protocol(
        remote.protocol.unwrap_or(link.protocol),
        role == Role::Server || role == Role::SiteToSite && is_tls_server,
    );
    let local = link.locals.first();
    // OpenVPN binds by default, but not where it connects over TCP.
    let bind = !link.nobind && (link.binds || protocol.transport != Transport::TcpClient);
    let local_port = local.and_then(|local| local.port).or(link.base.local_port);
    Connection {
        remote: Some(remote.host.clone()).filter(|host| !host.is_empty()),
        remote_port: remote.port.unwrap_or(link.base.remote_port),
        protocol,
        local: local.and_then(|local| local.host.clone()),
        local_port: local_port.filter(|_| bind),
        bind,
        // Without a remote, any peer that authenticates is the peer.
        float: link.base.float || remote.host.is_empty(),
        wrapping,
        ..link.base.clone()
    }
}

fn wrapping(builder: &mut Builder<'_>, link: &Link) -> Option<Wrapping> {
    let Link { auth, crypt, crypt_v2, direction, .. } = link;
    let is_server = builder.draft.tls.role == TlsRole::Server;
    let exclude = |builder: &mut Builder<'_>, one: &str, other: &str| {
        builder.refuse(
            one,
            format!("{other} and {one} exclude each other"),
            "delete one of them on both ends",
        );
    };
    if auth.is_some() && crypt.is_some() {
        exclude(builder, "tls-crypt", "tls-auth");
    }
    let others = match (auth, crypt) {
        (_, Some(key)) => Some(Wrapping::Crypt(key.clone())),
        (Some((Some(key), own)), None) => Some(Wrapping::Auth(key.clone(), own.or(*direction))),
        (Some((None, _)), None) => {
            let fix = "write the key between <tls-auth> and </tls-auth>";
            builder.refuse("tls-auth", "the block <tls-auth> is missing", fix);
            None
        }
        (None, None) => None,
    };
    let Some((key, force_cookie)) = crypt_v2 else { return others };
    let wanted = if is_server { "server" } else { "client" };
    let label = format!("-----BEGIN OpenVPN tls-crypt-v2 {wanted} key-----");
    if !key.text().is_some_and(|text| text.contains(&label)) {
        let fix = "the server has the server key, and each client a client key that was made with it";
        builder.refuse("tls-crypt-v2", format!("it is not a {wanted} key"), fix);
    }
    if others.is_some() && !is_server {
        exclude(builder, "tls-crypt-v2", "tls-auth or tls-crypt");
    }
    Some(Wrapping::CryptV2 { key: key.clone(), force_cookie: *force_cookie, others: others.map(Box::new) })
}
