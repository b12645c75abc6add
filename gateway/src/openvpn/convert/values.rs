//! Values that are not served yet, of directives that are.

use super::{Refusals, keys};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{
    Compression, Connection, DataCipher, Destination, Gateway, MssFix, Revocation, Role, Route, TlsRole,
    Wrapping,
};
use tunnel::replay;

/// Refuses all of them.
pub(super) fn check(settings: &OpenVpn, refusals: &mut Refusals) {
    connections(settings, refusals);
    tls(settings, refusals);
    data(settings, refusals);
    timers(settings, refusals);
    if settings.role == Role::Server {
        routes(settings, refusals);
        let check = settings.server.as_ref().and_then(|server| server.password_check.as_ref());
        if settings.scripts.client_response.is_some() && check.is_none() {
            let fix = "write auth-user-pass-verify, which challenges clients in auth_pending_file";
            let reason = "no client is asked without auth-user-pass-verify".to_owned();
            refusals.wrong("client-crresponse", reason, fix);
        }
    }
}

fn connections(settings: &OpenVpn, refusals: &mut Refusals) {
    for it in &settings.connections {
        if matches!(it.mssfix, MssFix::Fixed(_)) {
            refusals.refuse("mssfix", "fixed", "write mssfix BYTES mtu: packets outside have so many bytes");
        }
    }
    let of = |it: &Connection| it.tun_mtu;
    let mut values = settings.connections.iter().map(of);
    let first = values.next();
    if values.any(|other| Some(other) != first) {
        let fix = "write tun-mtu once, outside of the blocks";
        refusals.refuse("tun-mtu", "different values in blocks <connection>", fix);
    }
}

fn tls(settings: &OpenVpn, refusals: &mut Refusals) {
    let tls = &settings.tls;
    if matches!(tls.revocation, Some(Revocation::Directory(_))) && settings.role != Role::Server {
        refusals.refuse("crl-verify", "a directory", "write crl-verify FILE with a CRL");
    }
    let offer = keys::offer(settings);
    for (name, list) in [("tls-ciphersuites", &offer.suites_tls13), ("tls-groups", &offer.groups)] {
        if list.as_ref().is_some_and(Vec::is_empty) {
            refusals.refuse(name, "a list of which nothing is known", "delete the line");
        }
    }
    let (purpose, right) = match tls.role {
        TlsRole::Server => ("clientAuth", "write remote-cert-tls client"),
        TlsRole::Client => ("serverAuth", "write remote-cert-tls server"),
    };
    if tls.extended_key_usage.as_deref().is_some_and(|usage| usage != purpose) {
        for name in ["remote-cert-tls", "ns-cert-type", "remote-cert-eku"] {
            if refusals.has(name) {
                refusals.refuse(name, "another purpose than that of the peer", right);
            }
        }
    }
}

fn data(settings: &OpenVpn, refusals: &mut Refusals) {
    // AEAD ciphers and tls-crypt do not use it.
    let is_aead = |cipher: &DataCipher| {
        use DataCipher::{Aes128Gcm, Aes192Gcm, Aes256Gcm, ChaCha20Poly1305};
        matches!(cipher, Aes128Gcm | Aes192Gcm | Aes256Gcm | ChaCha20Poly1305)
    };
    let is_wrap = |it: &Connection| matches!(it.wrapping, Some(Wrapping::Auth(..)));
    let needs_digest = !settings.data.ciphers.iter().chain(&settings.data.fallback).all(is_aead)
        || settings.connections.iter().any(is_wrap);
    if settings.data.digest == config::openvpn::settings::Digest::None && needs_digest {
        refusals.refuse(
            "auth",
            "none",
            "write auth SHA256 on both ends, or data-ciphers with GCM alone and tls-crypt",
        );
    }
    let (packets, _) = settings.data.replay_window;
    if u64::from(packets) > replay::WIREGUARD {
        let fix =
            format!("write at most replay-window {}: packets may be as late at any value", replay::WIREGUARD);
        refusals.refuse("replay-window", "a larger window", &fix);
    }
    let is_framed = matches!(settings.data.compression, Compression::Before | Compression::Swapped);
    if settings.role == Role::SiteToSite && is_framed {
        let name = if refusals.has("compress") { "compress" } else { "comp-lzo" };
        refusals.refuse(name, "framing of compression between two peers", "delete the line on both ends");
    }
}

fn timers(settings: &OpenVpn, refusals: &mut Refusals) {
    let timers = &settings.timers;
    if timers.renegotiate_least_seconds.is_some() {
        refusals.refuse("reneg-sec", "a second number", "write reneg-sec SECONDS");
    }
    if timers.renegotiate_bytes.is_some_and(|bytes| bytes != 0) {
        refusals.refuse("reneg-bytes", "a number of bytes", "delete the line: keys are renewed in time");
    }
    if timers.renegotiate_packets != 0 {
        refusals.refuse("reneg-pkts", "a number of packets", "delete the line: keys are renewed in time");
    }
    if timers.retransmit_seconds != 2 {
        refusals.refuse("tls-timeout", "another time than 2", "delete the line");
    }
}

fn routes(settings: &OpenVpn, refusals: &mut Refusals) {
    for Route { destination, gateway, metric, table } in &settings.routing.routes {
        let name = match destination {
            Destination::Network(network) if network.addr().is_ipv6() => "route-ipv6",
            _ => "route",
        };
        if !matches!(destination, Destination::Network(_)) {
            refusals.refuse(name, "a host name or remote_host", "write its address");
        }
        if !matches!(gateway, None | Some(Gateway::Tunnel | Gateway::Address(_))) {
            refusals.refuse(name, "another gateway than the tunnel", "set the route with ip route");
        }
        if metric.is_some() || table.is_some() {
            refusals.refuse(name, "a metric or a table", "write route NETWORK NETMASK");
        }
    }
}
