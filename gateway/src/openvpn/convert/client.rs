//! The settings of a client.

use super::{Refusals, Sources, ciphers, control_packet, fallback, keepalive, keys, routing, timing};
use crate::openvpn::login::{LoginSettings, Question};
use crate::openvpn::names::Name;
use crate::openvpn::settings::{ClientLink, ClientSettings, RenewClient, remotes};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Compression, Connection, Family, Login, Retry, Revocation, Role, Transport};
use std::collections::BTreeMap;
use std::time::Duration;
use tunnel::openvpn::ClientConfiguration;
use tunnel::openvpn::data::Framing;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::of_own_certificate;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::verify;
use tunnel::openvpn::wrap::Role as TlsEnd;

/// Converts a client.
pub(super) fn client(
    settings: &OpenVpn,
    link: &Connection,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> Option<ClientSettings> {
    let names = names(settings, sources, refusals);
    let remotes = remotes(&names);
    let check = keys::check(settings, TlsEnd::Server, refusals);
    let login = login(settings, refusals);
    // A server may be content with user name and password.
    let has_identity = settings.tls.certificate.is_some() || settings.tls.key.is_some();
    let identity = if has_identity { keys::identity(settings, refusals).map(Some) } else { Some(None) };
    let mut links = Vec::new();
    for it in &settings.connections {
        let wrap = keys::client_wrap(settings, it, refusals)?;
        links.push(ClientLink { wrap, float: it.float });
    }
    let wrap = links.first().map(|link| link.wrap.clone());
    let tls = match verify::client_config_of(&keys::offer(settings), identity?, check?) {
        Ok(tls) => tls,
        Err(error) => return keys::wrong_certificate(of_own_certificate(&error), refusals),
    };
    if settings.scripts.dns.is_some() {
        refusals.refuse("dns-updown", "a program", "delete the line: name servers are set without one");
    }
    let authorities = settings.tls.authority.as_ref().and_then(|it| keys::authorities(it, refusals));
    let mut own = routing::own(settings, link, sources, refusals);
    // As in OpenVPN 2.7: `up` is there for dhcp-option.
    own.dns.is_left = settings.scripts.up.is_some() && !settings.dns.is_forced;
    let max_rounds = match settings.connecting.attempts {
        Retry::Infinite => None,
        Retry::Limited(times) => Some(times),
    };
    let is_random = settings.connecting.random;
    let core = ClientConfiguration {
        tls,
        wrap: wrap?,
        ciphers: ciphers(settings),
        fallback: fallback(settings),
        auth: keys::digest(settings).0,
        framing: framing(settings),
        credentials: Credentials::default(),
        peer_info: peer_info(settings),
        mtu: link.tun_mtu,
        features: OURS,
        keepalive: keepalive(settings, refusals),
        timing: timing(settings),
        control_packet: control_packet(settings),
        pulls: settings.role == Role::Client,
    };
    Some(ClientSettings {
        core,
        remotes,
        names,
        links,
        own,
        name_servers: None,
        is_random,
        retry: retry(settings, link),
        max_rounds,
        ends_on_failure: settings.tls.exit_on_failure,
        login,
        renew: renew(settings),
        authorities: authorities.unwrap_or_default(),
        name_fields: keys::name_fields(settings, refusals),
        tracked: keys::tracked(settings, refusals),
        is_managed: settings.management.is_some(),
        asks_remote: settings.management.as_ref().is_some_and(|management| management.query_remote),
    })
}

/// The first pause before an attempt, and the longest: those of the slowest connection.
fn retry(settings: &OpenVpn, link: &Connection) -> (Duration, Duration) {
    let of = settings.connections.iter().map(|it| it.retry_seconds);
    let (first, longest) = of.max().unwrap_or(link.retry_seconds);
    (Duration::from_secs(first.into()), Duration::from_secs(longest.into()))
}

/// `migrate` is for a server.
fn framing(settings: &OpenVpn) -> Option<Framing> {
    match settings.data.compression {
        Compression::Before => Some(Framing::Before),
        Compression::Swapped => Some(Framing::Swapped),
        Compression::Off | Compression::StubV2 | Compression::Migrate => None,
    }
}

/// Makes the configuration of TLS again, when the revocation list has changed.
fn renew(settings: &OpenVpn) -> Option<RenewClient> {
    let is_file = matches!(&settings.tls.revocation, Some(Revocation::List(list)) if list.file.is_some());
    let settings = is_file.then(|| settings.clone())?;
    Some(Box::new(move |list| {
        let mut refusals = Refusals { given: BTreeMap::new(), found: Vec::new() };
        let mut check = || keys::check_with(&settings, TlsEnd::Server, Some(list), &mut refusals);
        let checks = check().zip(check());
        let has_identity = settings.tls.certificate.is_some();
        let identity = has_identity.then(|| keys::identity(&settings, &mut refusals)).flatten();
        let made = checks.and_then(|(one, other)| {
            Some((verify::client_config_of(&keys::offer(&settings), identity, one).ok()?, other))
        });
        made.ok_or_else(|| refusals.found.iter().map(|refusal| refusal.reason.clone()).collect())
    }))
}

/// What the server is told about the user of this machine: variables `UV_` of `setenv`, with `push-peer-info`.
fn peer_info(settings: &OpenVpn) -> Vec<(String, String)> {
    let tells = settings.client.as_ref().is_some_and(|client| client.tells_about_itself);
    let variables = settings.scripts.environment.iter();
    variables
        .filter(|(name, value)| tells && name.starts_with("UV_") && !value.contains(char::is_control))
        .cloned()
        .collect()
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
                password => (
                    None,
                    Some(Question { user: Some(user), password: password.clone(), challenge, state: None }),
                ),
            }
        }
    };
    // A response to a challenge is good once.
    let forget = client.forget || client.challenge.is_some();
    LoginSettings { credentials, question, forget, retry: client.retry, prompt: None }
}

/// The servers, in the order in which they are tried. A name without an address is looked up again later. `resolv-retry SECONDS` says when
/// the next server is tried, which happens at once here.
pub(super) fn names(settings: &OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) -> Vec<Name> {
    let mut names = Vec::new();
    for (connection, it) in settings.connections.iter().enumerate() {
        let Some(host) = it.remote.clone() else { continue };
        let only_v4 = match it.protocol.family {
            Family::Any => None,
            family => Some(family == Family::V4),
        };
        let is_tcp = it.protocol.transport != Transport::Udp;
        let timeout = Duration::from_secs(it.timeout_seconds.into());
        let mut name = Name {
            host,
            port: it.remote_port,
            is_tcp,
            connection,
            timeout,
            only_v4,
            has_random_label: settings.connecting.random_hostname,
            known: Vec::new(),
        };
        if let Err(error) = name.look_up(|host| (sources.resolve)(host))
            && !name.is_host_name()
        {
            let fix = "write its address, or start again when the name server answers";
            refusals.wrong("remote", format!("{} has no address now: {error}", name.host), fix);
        }
        names.push(name);
    }
    names
}
