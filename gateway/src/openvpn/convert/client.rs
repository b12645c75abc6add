//! The settings of a client.

use super::{Refusals, Sources, ciphers, fallback, keepalive, keys, routes, timing};
use crate::openvpn::login::{LoginSettings, Question};
use crate::openvpn::settings::{ClientSettings, Remote};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Connection, Family, Login, Transport};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tunnel::openvpn::ClientConfiguration;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::verify;
use tunnel::openvpn::wrap::Role;

/// Converts a client.
pub(super) fn client(
    settings: &OpenVpn,
    link: &Connection,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> Option<ClientSettings> {
    let remotes = remotes(settings, sources, refusals);
    if settings.connections.iter().any(|it| !keys::is_same(it.wrapping.as_ref(), link.wrapping.as_ref())) {
        let name = ["tls-crypt-v2", "tls-crypt", "tls-auth"].into_iter().find(|name| refusals.has(name));
        let fix = "write the key once, outside of the blocks";
        refusals.refuse(name.unwrap_or("remote"), "keys of blocks <connection>", fix);
    }
    let check = keys::check(settings, Role::Server, refusals);
    let login = login(settings, refusals);
    // A server may be content with user name and password.
    let has_identity = settings.tls.certificate.is_some() || settings.tls.key.is_some();
    let identity = if has_identity { keys::identity(settings, refusals).map(Some) } else { Some(None) };
    let wrap = keys::client_wrap(settings, link, refusals);
    let tls = match verify::client_config_of(&keys::offer(settings), identity?, check?) {
        Ok(tls) => tls,
        Err(error) => {
            refusals.wrong("cert", error.to_string(), "write the certificate of this key");
            return None;
        }
    };
    let core = ClientConfiguration {
        tls,
        wrap: wrap?,
        ciphers: ciphers(settings),
        fallback: fallback(settings),
        auth: keys::digest(settings).0,
        credentials: Credentials::default(),
        peer_info: Vec::new(),
        mtu: link.tun_mtu,
        features: OURS,
        keepalive: keepalive(settings, refusals),
        timing: timing(settings),
    };
    Some(ClientSettings { core, remotes, float: link.float, routes: routes(settings), login })
}

/// User name and password, and what the user is asked for.
fn login(settings: &OpenVpn, refusals: &mut Refusals) -> LoginSettings {
    let Some(client) = &settings.client else { return LoginSettings::default() };
    let challenge = client.challenge.clone();
    let (credentials, question) = match &client.user {
        None => {
            if challenge.is_some() {
                let reason = "there is no user name".to_owned();
                refusals.wrong("static-challenge", reason, "write auth-user-pass");
            }
            (None, None)
        }
        Some(Login::Asked) => (None, Some(Question { challenge, ..Question::default() })),
        Some(Login::Known(known)) => {
            let user = known.user.to_string();
            match &known.password {
                Some(password) if challenge.is_none() => {
                    (Some(Credentials { user, password: password.clone() }), None)
                }
                password => {
                    (None, Some(Question { user: Some(user), password: password.clone(), challenge }))
                }
            }
        }
    };
    // A response to a challenge is good once.
    let forget = client.forget || client.challenge.is_some();
    LoginSettings { credentials, question, forget, retry: client.retry, prompt: None }
}

/// The addresses of the servers, in the order in which they are tried.
fn remotes(settings: &OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) -> Vec<Remote> {
    let mut remotes = Vec::new();
    for it in &settings.connections {
        let Some(host) = &it.remote else { continue };
        let addresses = match host.parse() {
            Ok(address) => Ok(vec![address]),
            Err(_) => (sources.resolve)(host),
        };
        let fits = |address: &IpAddr| match it.protocol.family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        let addresses = addresses
            .map_err(|error| error.to_string())
            .map(|all| all.into_iter().filter(fits).collect::<Vec<IpAddr>>());
        match addresses {
            Ok(found) if !found.is_empty() => {
                let is_tcp = it.protocol.transport != Transport::Udp;
                let address = |ip| SocketAddr::new(ip, it.remote_port);
                let timeout = Duration::from_secs(it.timeout_seconds.into());
                remotes.extend(found.into_iter().map(|ip| Remote { address: address(ip), is_tcp, timeout }));
            }
            Ok(_) => {
                let reason = format!("{host} has no address of the IP version of proto");
                refusals.wrong("remote", reason, "write proto udp");
            }
            Err(error) => {
                let fix = "write its address, or start again when the name server answers";
                refusals.wrong("remote", format!("{host} has no address now: {error}"), fix);
            }
        }
    }
    remotes
}
