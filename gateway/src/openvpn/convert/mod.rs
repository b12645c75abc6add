//! OpenVPN's own configuration, as the settings of an interface.
//!
//! ```text
//! config::openvpn::Loaded ──> not_served, values: refusals ──> keys, server, client ──> Settings
//! ```
//! Nothing is left out silently: a setting that an interface does not serve yet is refused with its directive.

mod access;
mod client;
mod environment;
mod keys;
mod material;
mod not_served;
mod programs;
mod routing;
mod server;
mod sites;
mod sockets;
#[cfg(test)]
pub(super) mod tests;
mod values;

use super::limits::Limits;
use super::scripts::{Programs, Scripts};
use super::settings::{DEFAULT_MSSFIX, DEFAULT_MTU, Role as SettingsRole, Settings};
use config::import::Files;
use config::openvpn::settings::{
    Connection, Log, Management, ManagementAddress, MssFix, Process, Role, TlsRole,
};
use config::openvpn::{Loaded, OpenVpn, Position, Refusal, Remark};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;
use tunnel::openvpn::keepalive::{Keepalive, Silence};
use tunnel::openvpn::limits::CONTROL_PACKET;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;
use zeroize::Zeroizing;

/// The headers of UDP over IPv4.
const HEADERS: u16 = 28;
/// OpenVPN's default for `ping-restart` on a client.
const RESTART_SECONDS: u32 = 120;

/// An interface that is to be served.
pub struct Plan {
    /// Its name; `tun` stands for the first free `tunN`.
    pub name: String,
    /// Its settings.
    pub settings: Settings,
    /// The process: its user, its files, its signals.
    pub process: Process,
    /// Its log.
    pub log: Log,
    /// Its management interface.
    pub management: Option<Management>,
    /// Directives without an effect, and warnings.
    pub remarks: Vec<Remark>,
    /// The programs that it names; [`Settings::scripts`] has none until their process is started.
    pub programs: Programs,
    /// Whether the private key is locked until its password is known: nothing can be served before.
    pub is_key_locked: bool,
    /// Whether that password is erased after use (`auth-nocache`).
    pub forgets_key_password: bool,
}

/// Where addresses and files come from.
pub struct Sources<'a> {
    /// Files of clients.
    pub files: &'a dyn Files,
    /// The addresses of a host name.
    pub resolve: &'a dyn Fn(&str) -> io::Result<Vec<IpAddr>>,
    /// The password of the private key, asked for; an error says why there is none. With `true`, the management interface asks for it, and
    /// without an answer yet there is none: the key stays locked.
    pub key_password: &'a dyn Fn(bool) -> Result<Option<Zeroizing<Vec<u8>>>, String>,
}

/// The reason of a refusal of the private key, with which the user may be asked again.
pub const WRONG_PASSWORD: &str = "its password is wrong, or it is encrypted in a way that is not supported";

/// Refusals, with the places of the directives.
struct Refusals {
    given: BTreeMap<&'static str, Position>,
    found: Vec<Refusal>,
}

impl Refusals {
    fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    fn position(&self, name: &str) -> Position {
        let found = self.given.get(name).or_else(|| self.given.values().min()).cloned();
        found.unwrap_or_else(|| Position { file: "command line".into(), line: 0 })
    }

    /// Refuses a value of a directive.
    fn refuse(&mut self, name: &str, what: &str, fix: &str) {
        self.wrong(name, format!("not served yet: {what}"), fix);
    }

    /// Refuses what is wrong with a directive.
    fn wrong(&mut self, name: &str, reason: String, fix: &str) {
        let refusal = Refusal {
            position: self.position(name),
            directive: name.to_owned(),
            reason,
            fix: fix.to_owned(),
        };
        if !self.found.contains(&refusal) {
            self.found.push(refusal);
        }
    }

    fn listed(&mut self, rows: &[not_served::Row]) {
        for (name, fix) in rows {
            if self.has(name) {
                self.wrong(name, "not served yet".to_owned(), fix);
            }
        }
    }
}

/// Converts a configuration.
///
/// # Errors
/// All settings that are not served yet, and files that cannot be used, in the order of the files.
pub fn convert(loaded: Loaded, sources: &Sources<'_>) -> Result<Plan, Vec<Refusal>> {
    let Loaded { mut settings, mut remarks, given } = loaded;
    let mut refusals = Refusals { given, found: Vec::new() };
    let is_tls_server = settings.tls.role == TlsRole::Server;
    refusals.listed(not_served::NOT_SERVED);
    refusals.listed(match settings.role {
        Role::Server => not_served::OF_CLIENT,
        Role::SiteToSite if is_tls_server => not_served::NOT_OF_SITES,
        Role::Client | Role::SiteToSite => not_served::OF_SERVER,
    });
    values::check(&settings, &mut refusals);
    material::prepare(&mut settings, sources, &mut refusals);
    sites::check(&settings, &mut refusals);
    let address = settings.management.as_ref().map(|management| &management.address);
    if matches!(address, Some(ManagementAddress::Tunnel(_))) {
        let fix = "write an address of this machine, or a path with unix behind it";
        refusals.refuse("management", "the address tunnel", fix);
    }
    let sockets = sockets::sockets(&settings, sources, &mut refusals);
    // A connection is there unless it was refused.
    let none = Connection::default();
    let link = settings.connections.first().unwrap_or(&none);
    let role = match settings.role {
        Role::Server => {
            server::server(&settings, link, sources, &mut refusals).map(Box::new).map(SettingsRole::Server)
        }
        Role::SiteToSite if is_tls_server => {
            sites::site(&settings, link, sources, &mut refusals).map(Box::new).map(SettingsRole::Server)
        }
        Role::Client | Role::SiteToSite => {
            client::client(&settings, link, sources, &mut refusals).map(Box::new).map(SettingsRole::Client)
        }
    };
    let Some(role) = role.filter(|_| refusals.found.is_empty()) else {
        refusals.found.sort_by(|a, b| a.position.cmp(&b.position));
        return Err(refusals.found);
    };
    remark(&settings, &refusals, &mut remarks);
    let scripts = Scripts::default();
    // The smallest of all connections fits each of them.
    let mssfix = settings.connections.iter().filter_map(mssfix).min();
    let mtu = link.tun_mtu.into();
    let sockets::Sockets { port, udp, tcp } = sockets;
    let is_null = settings.device.name == config::openvpn::settings::NULL;
    let queue = (settings.device.queue != 0).then_some(settings.device.queue);
    let programs = environment::programs(&settings, link, &refusals);
    let copies_dscp = settings.device.copy_ds_field;
    let timers = &settings.timers;
    let limits = Limits {
        inactive: timers.inactive.map(|(time, bytes)| (Duration::from_secs(time.into()), bytes)),
        session: seconds(timers.session_seconds),
    };
    let converted = Settings {
        role,
        port,
        udp,
        mtu,
        mssfix,
        is_null,
        queue,
        scripts,
        programs,
        limits,
        copies_dscp,
        shaper: settings.process.shaper.and_then(NonZeroU32::new),
        tcp,
    };
    let programs = programs::programs(&settings);
    let OpenVpn { device, process, log, management, tls, .. } = settings;
    Ok(Plan {
        name: device.name,
        settings: converted,
        process,
        log,
        management,
        remarks,
        programs,
        is_key_locked: tls.asks_key_password,
        forgets_key_password: tls.forgets_key_password,
    })
}

/// Warns of what differs from OpenVPN.
fn remark(settings: &OpenVpn, refusals: &Refusals, remarks: &mut Vec<Remark>) {
    let mut warn = |directive: &str, text: &str| {
        let (position, directive, text) =
            (refusals.position(directive), directive.to_owned(), text.to_owned());
        remarks.push(Remark { position, directive, text, is_warning: true });
    };
    if settings.process.root.is_some() {
        let text = "paths are below it, but the process is not confined to it: a filter of system calls and user take its rights";
        warn("chroot", text);
    }
    if settings.tls.revocation.is_some() && settings.tls.role == TlsRole::Client {
        warn("crl-verify", "the list was read now, and is not read again: restart after a change");
    }
}

/// The outer packets that TCP segments fit in, with their IP header.
fn mssfix(link: &Connection) -> Option<u16> {
    match link.mssfix {
        // The interface's MTU limits segments then.
        MssFix::Standard => (u32::from(link.tun_mtu) <= DEFAULT_MTU).then_some(DEFAULT_MSSFIX),
        MssFix::Off | MssFix::Fixed(_) => None,
        MssFix::Mtu(bytes) => Some(bytes),
        MssFix::Payload(bytes) => Some(bytes.saturating_add(HEADERS)),
    }
}

/// The longest control packet that is sent.
fn control_packet(settings: &OpenVpn) -> usize {
    settings.tls.packet.map_or(CONTROL_PACKET, usize::from)
}

fn timing(settings: &OpenVpn) -> Timing {
    let timers = &settings.timers;
    Timing {
        hand_window: Duration::from_secs(timers.hand_window_seconds.into()),
        renegotiate: seconds(timers.renegotiate_seconds),
        transition: Duration::from_secs(timers.transition_seconds.into()),
    }
}

/// A client's own times, unless its server pushes others. A peer, site to site, has no others.
fn keepalive(settings: &OpenVpn, refusals: &Refusals) -> Keepalive {
    let timers = &settings.timers;
    let is_given = ["keepalive", "ping-restart", "ping-exit"].iter().any(|name| refusals.has(name));
    let exits = timers.exit_seconds != 0;
    let after = match (is_given, exits) {
        (false, _) if settings.role == Role::SiteToSite => None,
        (false, _) => seconds(RESTART_SECONDS),
        (true, true) => seconds(timers.exit_seconds),
        (true, false) => seconds(timers.restart_seconds),
    };
    Keepalive { ping: seconds(timers.ping_seconds), silence: after.map(|after| Silence { after, exits }) }
}

/// 0 is none.
fn seconds(seconds: u32) -> Option<Duration> {
    (seconds != 0).then(|| Duration::from_secs(seconds.into()))
}

/// Unknown ones were refused.
fn ciphers(settings: &OpenVpn) -> Vec<DataCipher> {
    settings.data.ciphers.iter().filter_map(|cipher| DataCipher::by_name(cipher.name())).collect()
}

/// An unknown one was refused.
fn fallback(settings: &OpenVpn) -> Option<DataCipher> {
    settings.data.fallback.and_then(|cipher| DataCipher::by_name(cipher.name()))
}

/// The networks that are routed into the tunnel; other destinations were refused.
fn routes(settings: &OpenVpn) -> Vec<IpNet> {
    use config::openvpn::settings::Destination;
    let network = |destination: &Destination| match destination {
        Destination::Network(network) => Some(network.trunc()),
        _ => None,
    };
    settings.routing.routes.iter().filter_map(|route| network(&route.destination)).collect()
}
