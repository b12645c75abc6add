//! Timers of a session, the role, and what a client alone has.

use crate::openvpn::draft::Draft;
use crate::openvpn::given::Given;
use crate::openvpn::row::{Row, harmless, served};
use crate::openvpn::settings::{AuthRetry, Credentials, Filter, FilterAction, Login, TlsRole};
use crate::openvpn::verdict::Wrong;
use zeroize::Zeroizing;

/// Rows of timers, of the role, and of a client.
pub(super) const ROWS: &[Row] = &[
    served("mode", "p2p|server", "role", |draft, given| {
        draft.is_server = given.choice(0, &[("p2p", false), ("server", true)])?;
        Ok(())
    }),
    served("client", "", "role, tls.role", |draft, _| {
        draft.pull = true;
        draft.tls_role = Some(TlsRole::Client);
        Ok(())
    }),
    served("pull", "", "role", |draft, _| {
        draft.pull = true;
        Ok(())
    }),
    served("tls-server", "", "tls.role", |draft, _| {
        draft.tls_role = Some(TlsRole::Server);
        Ok(())
    }),
    served("tls-client", "", "tls.role", |draft, _| {
        draft.tls_role = Some(TlsRole::Client);
        Ok(())
    }),
    served("keepalive", "SECONDS TIMEOUT", "timers.ping_seconds, restart_seconds", |draft, given| {
        let (ping, timeout) = (given.number(0, 1..=86_400)?, given.number(1, 1..=604_800)?);
        if timeout < 2 * ping {
            let reason = format!("{timeout} is less than twice {ping}: a lost ping would end the session");
            return Err(Wrong::new(reason, format!("write keepalive {ping} {}", 2 * ping)));
        }
        draft.keepalive = Some((ping, timeout));
        Ok(())
    }),
    served("ping", "SECONDS", "timers.ping_seconds", |draft, given| {
        draft.timers.ping_seconds = given.count(0)?;
        Ok(())
    }),
    served("ping-restart", "SECONDS", "timers.restart_seconds", |draft, given| {
        draft.timers.restart_seconds = given.count(0)?;
        draft.timers.exit_seconds = 0;
        Ok(())
    }),
    served("ping-exit", "SECONDS", "timers.exit_seconds", |draft, given| {
        draft.timers.exit_seconds = given.count(0)?;
        draft.timers.restart_seconds = 0;
        Ok(())
    }),
    served("ping-timer-rem", "", "timers.only_with_remote", |draft, _| {
        draft.timers.only_with_remote = true;
        Ok(())
    }),
    served("inactive", "SECONDS [BYTES]", "timers.inactive", |draft, given| {
        let bytes = if given.get(1).is_some() { given.number(1, 0..=u64::MAX)? } else { 0 };
        draft.timers.inactive = Some((given.count(0)?, bytes)).filter(|(seconds, _)| *seconds != 0);
        Ok(())
    }),
    served("session-timeout", "SECONDS", "timers.session_seconds", |draft, given| {
        draft.timers.session_seconds = given.count(0)?;
        Ok(())
    })
    .in_client_file(|client, given| {
        client.session_seconds = Some(given.count(0)?);
        Ok(())
    }),
    served("reneg-sec", "MOST [LEAST]", "timers.renegotiate_seconds", |draft, given| {
        draft.timers.renegotiate_seconds = given.count(0)?;
        draft.timers.renegotiate_least_seconds = given.get(1).map(|_| given.count(1)).transpose()?;
        Ok(())
    }),
    served("reneg-bytes", "BYTES", "timers.renegotiate_bytes", |draft, given| {
        draft.timers.renegotiate_bytes = Some(given.number(0, 0..=u64::MAX)?);
        Ok(())
    }),
    served("reneg-pkts", "PACKETS", "timers.renegotiate_packets", |draft, given| {
        draft.timers.renegotiate_packets = given.number(0, 0..=u64::MAX)?;
        Ok(())
    }),
    served("hand-window", "SECONDS", "timers.hand_window_seconds", |draft, given| {
        draft.timers.hand_window_seconds = given.number(0, 1..=86_400)?;
        Ok(())
    }),
    served("tran-window", "SECONDS", "timers.transition_seconds", |draft, given| {
        draft.timers.transition_seconds = given.count(0)?;
        Ok(())
    }),
    served("tls-timeout", "SECONDS", "timers.retransmit_seconds", |draft, given| {
        draft.timers.retransmit_seconds = given.number(0, 1..=3600)?;
        Ok(())
    }),
    served("auth-user-pass", "[FILE|username-only]", "client.user", auth_user_pass).block(),
    served("auth-retry", "none|nointeract|interact", "client.retry", |draft, given| {
        let known = [
            ("none", AuthRetry::None),
            ("nointeract", AuthRetry::NoInteract),
            ("interact", AuthRetry::Interact),
        ];
        draft.client.retry = given.choice(0, &known)?;
        Ok(())
    })
    .client(),
    served("auth-nocache", "", "client.forget", |draft, _| {
        draft.client.forget = true;
        draft.tls.forgets_key_password = true;
        Ok(())
    }),
    served("pull-filter", "accept|ignore|reject TEXT", "client.filters", |draft, given| {
        let known = [
            ("accept", FilterAction::Accept),
            ("ignore", FilterAction::Ignore),
            ("reject", FilterAction::Reject),
        ];
        let action = given.choice(0, &known)?;
        draft.client.filters.push(Filter { action, prefix: given.owned(1)? });
        Ok(())
    })
    .client(),
    served("route-nopull", "", "client.no_routes", |draft, _| {
        draft.client.no_routes = true;
        Ok(())
    })
    .client(),
    served("allow-pull-fqdn", "", "client.allow_names", |draft, _| {
        draft.client.allow_names = true;
        Ok(())
    })
    .client(),
    served("push-peer-info", "", "client.tells_about_itself", |draft, _| {
        draft.client.tells_about_itself = true;
        Ok(())
    })
    .client(),
    served("static-challenge", "TEXT ECHO [FORMAT]", "client.challenge", |draft, given| {
        let shown = given.choice(1, &[("0", false), ("1", true)])?;
        draft.client.challenge = Some((given.owned(0)?, shown));
        Ok(())
    })
    .client(),
    served("allow-recursive-routing", "", "client.allow_recursive", |draft, _| {
        draft.client.allow_recursive = true;
        Ok(())
    }),
    harmless("auth-token", "TOKEN", "a token is only taken from the server"),
    harmless("auth-token-user", "USER", "a name for a token is only taken from the server"),
    harmless("key-derivation", "METHOD", "it is only taken from the server"),
    harmless("protocol-flags", "FLAG...", "they are only taken from the server"),
    harmless("peer-id", "ID", "it is only taken from the server"),
    harmless("push-continuation", "NUMBER", "it is a part of pushed options"),
    harmless("parameter", "[ARGUMENT...]", "it has no effect in OpenVPN either"),
];

fn auth_user_pass(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let is_inline = given.directive.block.is_some();
    if given.is_announced() {
        return Ok(());
    }
    if !is_inline && matches!(given.get(0), None | Some("stdin" | "username-only")) {
        draft.client.user = Some(Login::Asked);
        return Ok(());
    }
    let content = given.content(0)?;
    let text = content.text().ok_or_else(|| given.wrong("user name and password are not UTF-8"))?;
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    let mut line = || lines.next().map(|line| Zeroizing::new(line.trim_end_matches('\r').to_owned()));
    let Some(user) = line().filter(|user| !user.is_empty()) else {
        let fix = "write the user name on the first line, and the password on the second";
        return Err(Wrong::new("there is no user name", fix));
    };
    let password = line().filter(|password| !password.is_empty());
    if password.is_none() {
        draft.warn("there is no password: the management interface is asked for it");
    }
    draft.client.user = Some(Login::Known(Credentials { user, password }));
    Ok(())
}
