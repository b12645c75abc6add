//! The settings of a server of TLS with one peer, site to site. The client of TLS is a client that pulls nothing.

use super::{
    Refusals, Sources, access, ciphers, client, control_packet, fallback, keys, routing, seconds, server,
    timing,
};
use crate::openvpn::settings::{self, ServerNetwork, ServerSettings, Site, remotes};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{
    CertificateOf, Connection, Role as SettingsRole, Server, TlsRole, Transport,
};
use tunnel::openvpn::ServerConfiguration;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::server::OnlyPeer;
use tunnel::openvpn::wrap::Role;

/// Refuses what two peers cannot do.
pub(super) fn check(settings: &OpenVpn, refusals: &mut Refusals) {
    if settings.role != SettingsRole::SiteToSite {
        return;
    }
    let is_server = settings.tls.role == TlsRole::Server;
    let has_remote = settings.connections.iter().any(|it| it.remote.is_some());
    if !is_server && !has_remote {
        let fix = "write remote HOST, or tls-server on this end and tls-client on the other";
        refusals.refuse("tls-client", "without remote: the client of TLS begins", fix);
    }
    let wrong = if is_server { Transport::TcpClient } else { Transport::TcpServer };
    if settings.connections.iter().any(|it| it.protocol.transport == wrong) {
        let fix = "write proto tcp-server beside tls-server, and proto tcp-client beside tls-client";
        refusals.refuse(
            "proto",
            "a client of TLS that waits for a TCP connection, or a server that opens it",
            fix,
        );
    }
}

/// Converts the server of TLS.
pub(super) fn site(
    settings: &OpenVpn,
    link: &Connection,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> Option<ServerSettings> {
    let own = Server::default();
    let mut access = access::access(settings, &own, link, refusals);
    let check = keys::check(settings, Role::Client, refusals);
    let identity = keys::identity(settings, refusals);
    let wrap = keys::server_wrap(settings, link, refusals);
    let required = CertificateOf::Required;
    let (tls, _) = server::tls(&keys::offer(settings), required, identity?, check?, refusals)?;
    access.renew = server::renew(settings, required);
    let names = if link.float { Vec::new() } else { client::names(settings, sources, refusals) };
    let addresses = (!link.float).then(|| settings::sources(&remotes(&names)));
    let site = Site { own: routing::own(settings, link, sources, refusals), follows: link.float, names };
    let core = ServerConfiguration {
        tls,
        wrap: wrap?,
        ciphers: ciphers(settings),
        fallback: fallback(settings),
        auth: keys::digest(settings).0,
        ends_compression: false,
        ping: seconds(settings.timers.ping_seconds),
        ping_restart: seconds(settings.timers.restart_seconds),
        max_clients: 1,
        features: OURS,
        timing: timing(settings),
        control_packet: control_packet(settings),
        new_sessions: None,
        answers: None,
        only: Some(OnlyPeer { addresses, mtu: link.tun_mtu }),
    };
    Some(ServerSettings { core, network: ServerNetwork::default(), access, site: Some(site) })
}
