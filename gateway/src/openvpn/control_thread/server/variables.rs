//! What programs are told about a client: OpenVPN's variables.

use super::ServerSide;
use super::deciding::Deciding;
use crate::openvpn::certificates::{self, Tracked};
use crate::openvpn::scripts::Environment;
use crate::openvpn::scripts::environment::{OF_PEER, printable};
use crypto::pki::Certificate;
use rustls_pki_types::CertificateDer;
use std::net::{IpAddr, SocketAddr};
use tunnel::Now;
use tunnel::openvpn::action::{Request, SessionNumber};
use tunnel::openvpn::name_fields::NameFields;

/// The common name of clients that have neither a certificate nor a user name, as in OpenVPN.
const UNDEFINED: &str = "UNDEF";

impl ServerSide {
    /// Variables about a client that has not authenticated.
    pub(super) fn about(&self, request: &Request, chain: &[Certificate]) -> Environment {
        let mut environment = self.access.environment.clone();
        let fields = &self.access.name_fields;
        environment.extend(&about_peer(
            request.address,
            &request.certificates,
            chain,
            fields,
            &self.access.tracked,
        ));
        if !request.credentials.user.is_empty() {
            environment.set("username", &request.credentials.user);
        }
        // Other names could be those that the loader or a shell reads.
        let lines = request.info.lines.iter();
        for (name, value) in lines.filter(|(name, _)| name.starts_with("IV_") || name.starts_with("UV_")) {
            environment.set(name, value);
        }
        environment
    }

    /// Variables about the only peer, site to site, for programs about the interface.
    pub(in super::super) fn about_site(&self, session: SessionNumber, peer: SocketAddr) -> Environment {
        let admitted = self.admitted.get(&session);
        let mut environment =
            admitted.map(|admitted| admitted.environment.only(&OF_PEER)).unwrap_or_default();
        authenticated(&mut environment, peer);
        environment
    }

    /// Variables about its addresses.
    pub(super) fn addressed(&self, now: Now, deciding: &mut Deciding) {
        let Deciding { environment, lease, own: settings, .. } = deciding;
        for own in self.network.own() {
            match own.addr() {
                IpAddr::V4(own) => environment.set("ifconfig_pool_local_ip", own),
                IpAddr::V6(local) => {
                    environment.set("ifconfig_pool_local_ip6", local);
                    environment.set("ifconfig_pool_ip6_netbits", own.prefix_len());
                }
            }
        }
        if let (Some(address), Some(network)) = (lease.v4, self.network.v4) {
            environment.set("ifconfig_pool_remote_ip", address);
            match self.network.second(address, settings.second).filter(|_| self.network.line.is_some()) {
                Some(other_end) => environment.set("ifconfig_pool_local_ip", other_end),
                None => environment.set("ifconfig_pool_netmask", network.netmask()),
            }
        }
        if let Some(address) = lease.v6 {
            environment.set("ifconfig_pool_remote_ip6", address);
        }
        environment.set("time_unix", now.wall.as_secs());
        environment.set("time_ascii", ascii_time(now.wall.as_secs()));
    }
}

/// A peer's certificate, and those above it up to an authority. Peers may send more, which nothing has verified.
pub(in super::super) fn chain(
    sent: &[CertificateDer<'static>],
    authorities: &[Certificate],
) -> Vec<Certificate> {
    let mut sent: Vec<Certificate> = sent.iter().filter_map(|der| Certificate::from_der(der).ok()).collect();
    let mut chain: Vec<Certificate> = sent.drain(..sent.len().min(1)).collect();
    while let Some(last) = chain.last() {
        // A peer can write any name into a certificate of its own.
        let issued = |it: &Certificate| it.subject() == last.issuer() && last.is_signed_by(it);
        if let Some(authority) = authorities.iter().find(|it| issued(it)) {
            if authority.to_der() != last.to_der() {
                chain.push(authority.clone());
            }
            break;
        }
        let Some(index) = sent.iter().position(issued) else { break };
        chain.push(sent.swap_remove(index));
    }
    chain
}

/// Variables about a peer: its address, and its certificates.
pub(in super::super) fn about_peer(
    from: SocketAddr,
    sent: &[CertificateDer<'static>],
    chain: &[Certificate],
    fields: &NameFields,
    tracked: &Tracked,
) -> Environment {
    let mut environment = Environment::default();
    address(&mut environment, "untrusted", from);
    environment.set("common_name", certificate_name(sent, fields));
    for (depth, certificate) in chain.iter().enumerate() {
        certificates::tell(&mut environment, depth, certificate, tracked);
    }
    environment
}

/// The name in a peer's certificate, which the protocol has verified. An authority may have signed one with line
/// ends, which would forge lines of the log.
pub(in super::super) fn certificate_name(
    certificates: &[CertificateDer<'static>],
    fields: &NameFields,
) -> String {
    let own = certificates.first().and_then(|der| Certificate::from_der(der).ok());
    let name = own.and_then(|own| fields.name(&own).ok()).filter(|name| !name.is_empty());
    printable(name.as_deref().unwrap_or(UNDEFINED))
}

/// Variables about a peer that has authenticated.
pub(in super::super) fn authenticated(environment: &mut Environment, from: SocketAddr) {
    address(environment, "trusted", from);
}

fn address(environment: &mut Environment, kind: &str, address: SocketAddr) {
    let ip = address.ip().to_canonical();
    let name = if ip.is_ipv4() { format!("{kind}_ip") } else { format!("{kind}_ip6") };
    environment.set(&name, ip);
    environment.set(&format!("{kind}_port"), address.port());
}

/// A time as `YYYY-MM-DD HH:MM:SS`, in UTC.
fn ascii_time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from the first of March of year 0, so that a leap day is the last of its year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_openvpn_writes_them() {
        assert_eq!(ascii_time(0), "1970-01-01 00:00:00");
        assert_eq!(ascii_time(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(ascii_time(1_709_164_801), "2024-02-29 00:00:01");
    }
}
