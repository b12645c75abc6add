//! Scripts and the management interface.

use crate::openvpn::draft::Draft;
use crate::openvpn::given::Given;
use crate::openvpn::row::{Row, harmless, refused, served};
use crate::openvpn::settings::{Command, Management, ManagementAddress, Scripts};
use crate::openvpn::verdict::Wrong;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Rows of scripts and of the management interface.
pub(super) const ROWS: &[Row] = &[
    served("script-security", "LEVEL [METHOD]", "scripts.security", |draft, given| {
        draft.scripts.security = given.number(0, 0..=3)?;
        if given.get(1).is_some() {
            draft.warn("the method has no effect, as since OpenVPN 2.3");
        }
        Ok(())
    }),
    served("up", "COMMAND", "scripts.up", |draft, given| set(draft, given, |it| &mut it.up)),
    served("down", "COMMAND", "scripts.down", |draft, given| set(draft, given, |it| &mut it.down)),
    served("down-pre", "", "scripts.down_pre", |draft, _| {
        draft.scripts.down_pre = true;
        Ok(())
    }),
    served("up-delay", "", "scripts.up_delay", |draft, _| {
        draft.scripts.up_delay = true;
        Ok(())
    }),
    served("up-restart", "", "scripts.up_restart", |draft, _| {
        draft.scripts.up_restart = true;
        Ok(())
    }),
    served("route-up", "COMMAND", "scripts.route_up", |draft, given| {
        set(draft, given, |it| &mut it.route_up)
    }),
    served("route-pre-down", "COMMAND", "scripts.route_pre_down", |draft, given| {
        set(draft, given, |it| &mut it.route_pre_down)
    }),
    served("ipchange", "COMMAND", "scripts.ip_change", |draft, given| {
        set(draft, given, |it| &mut it.ip_change)
    }),
    served("dns-updown", "COMMAND|disable|force", "scripts.dns", |draft, given| match given.at(0)? {
        "disable" => {
            draft.dns.is_off = true;
            Ok(())
        }
        "force" => {
            draft.dns.is_forced = true;
            Ok(())
        }
        _ => set(draft, given, |it| &mut it.dns),
    }),
    served("client-connect", "COMMAND", "scripts.client_connect", |draft, given| {
        set(draft, given, |it| &mut it.client_connect)
    })
    .server(),
    served("client-disconnect", "COMMAND", "scripts.client_disconnect", |draft, given| {
        set(draft, given, |it| &mut it.client_disconnect)
    })
    .server(),
    served("client-crresponse", "COMMAND", "scripts.client_response", |draft, given| {
        set(draft, given, |it| &mut it.client_response)
    })
    .server(),
    served("learn-address", "COMMAND", "scripts.learn_address", |draft, given| {
        set(draft, given, |it| &mut it.learn_address)
    })
    .server(),
    served("tls-verify", "COMMAND", "scripts.tls_verify", |draft, given| {
        set(draft, given, |it| &mut it.tls_verify)
    }),
    served("tls-export-cert", "DIRECTORY", "scripts.certificates", |draft, given| {
        draft.scripts.certificates = Some(given.path(0)?);
        Ok(())
    }),
    served("tls-crypt-v2-verify", "COMMAND", "scripts.tls_crypt_v2_verify", |draft, given| {
        set(draft, given, |it| &mut it.tls_crypt_v2_verify)
    }),
    served("setenv", "NAME [VALUE]", "scripts.environment", |draft, given| {
        if given.at(0)? != "FORWARD_COMPATIBLE" {
            variable(draft, given, "")?;
        }
        Ok(())
    }),
    served("setenv-safe", "NAME [VALUE]", "scripts.environment", |draft, given| {
        variable(draft, given, "OPENVPN_")
    }),
    served("management", "ADDRESS PORT|unix [FILE]", "management", management),
    served("management-hold", "", "management.hold", |draft, _| {
        flag(draft, |it| it.hold = true);
        Ok(())
    }),
    served("management-signal", "", "management.signal", |draft, _| {
        flag(draft, |it| it.signal = true);
        Ok(())
    }),
    served("management-forget-disconnect", "", "management.forget", |draft, _| {
        flag(draft, |it| it.forget = true);
        Ok(())
    }),
    served("management-up-down", "", "management.up_down", |draft, _| {
        flag(draft, |it| it.up_down = true);
        Ok(())
    }),
    served("management-query-passwords", "", "management.query_passwords", |draft, _| {
        flag(draft, |it| it.query_passwords = true);
        Ok(())
    }),
    served("management-query-remote", "", "management.query_remote", |draft, _| {
        flag(draft, |it| it.query_remote = true);
        Ok(())
    }),
    served("management-client-auth", "", "management.client_auth", |draft, _| {
        flag(draft, |it| it.client_auth = true);
        Ok(())
    }),
    served("management-log-cache", "LINES", "management.log_lines", |draft, given| {
        draft.management_lines = Some(given.number(0, 1..=100_000)?);
        Ok(())
    }),
    served("management-client-user", "USER", "management.user", |draft, given| {
        draft.management_user = Some(given.owned(0)?);
        Ok(())
    }),
    served("management-client-group", "GROUP", "management.group", |draft, given| {
        draft.management_group = Some(given.owned(0)?);
        Ok(())
    }),
    harmless("management-query-proxy", "", "there is no proxy to ask for"),
    harmless("management-client-pf", "", "packet filters of clients ended with OpenVPN 2.5"),
    served("management-client", "", "management.connects", |draft, _| {
        flag(draft, |it| it.connects = true);
        Ok(())
    }),
    refused(
        "management-external-key",
        "a private key outside of this machine is not served",
        "write key FILE",
    ),
    refused(
        "management-external-cert",
        "a certificate outside of this machine is not served",
        "write cert FILE",
    ),
];

/// The address may stand behind it.
fn flag(draft: &mut Draft, set: fn(&mut Management)) {
    draft.management_flags.push(set);
}

fn set(
    draft: &mut Draft,
    given: &Given<'_>,
    field: fn(&mut Scripts) -> &mut Option<Command>,
) -> Result<(), Wrong> {
    *field(&mut draft.scripts) = Some(given.command(0)?);
    Ok(())
}

fn variable(draft: &mut Draft, given: &Given<'_>, prefix: &str) -> Result<(), Wrong> {
    let name = given.at(0)?;
    // The environment has NAME=VALUE.
    if name.is_empty() || name.contains(|c: char| c == '=' || c.is_whitespace() || c.is_control()) {
        return Err(given.wrong(format!("{name} is not a name of a variable")));
    }
    let value = given.get(1).unwrap_or_default().to_owned();
    draft.scripts.environment.push((format!("{prefix}{name}"), value));
    Ok(())
}

fn management(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let address = match (given.at(0)?, given.at(1)?) {
        (_, "unix") => ManagementAddress::Unix(given.path(0)?),
        ("tunnel", _) => ManagementAddress::Tunnel(given.port(1)?),
        ("localhost", _) => {
            ManagementAddress::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), given.port(1)?))
        }
        _ => {
            let host: IpAddr =
                given.parse(0, "an IP address, or the path of a socket with unix behind it")?;
            ManagementAddress::Tcp(SocketAddr::new(host, given.port(1)?))
        }
    };
    let password = match given.get(2) {
        Some("stdin") => {
            return Err(Wrong::new("the password is not read from standard input", "name a file"));
        }
        Some(_) => Some(given.content(2)?),
        None => None,
    };
    if password.is_none()
        && let ManagementAddress::Tcp(address) = address
        && !address.ip().is_loopback()
    {
        draft.warn("each host that reaches this address controls the tunnel: name a file with a password");
    }
    draft.management = Some(Management {
        address,
        password,
        connects: false,
        hold: false,
        signal: false,
        forget: false,
        up_down: false,
        query_passwords: false,
        query_remote: false,
        client_auth: false,
        log_lines: 250,
        user: None,
        group: None,
    });
    Ok(())
}
