//! OpenVPN interfaces: `show interfaces openvpn`, `show openvpn`, `reset openvpn` and `explain openvpn`.

use crate::Failure;
use crate::answer::Answer;
use crate::client;
use crate::host::interfaces::{self, Row};
use crate::output::{NOT_UP, ago, timestamp};
use crate::request::Request;
use crate::tabulate::tabulate;
use config::schema::nearest;
use gateway::openvpn::model::{
    Explanation, Explanations, Failed, Interface, Interfaces, Mode, Reset, Session, Transport,
};
use std::fmt::Write as _;
use std::path::PathBuf;

const LIST: &str = "postern show interfaces openvpn";
/// A value that is not known, in VyOS's words.
const NOTHING: &str = "N/A";

/// The interface that the request names, or all.
fn found(request: &Request) -> Result<Interfaces, Failure> {
    let answers: Vec<Interfaces> = request.ask()?;
    let mut interfaces: Vec<Interface> = answers.into_iter().flat_map(|answer| answer.interfaces).collect();
    if let Some(name) = request.value("INTERFACE") {
        interfaces.retain(|interface| interface.name == *name);
        if interfaces.is_empty() {
            return Err(no_interface(name));
        }
    }
    Ok(Interfaces { interfaces })
}

fn no_interface(name: &str) -> Failure {
    format!("there is no OpenVPN interface {name}\n  fix: {LIST}").into()
}

pub(crate) fn interfaces(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(found(request)?, |found| list(&found.interfaces)))
}

pub(crate) fn interface(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(found(request)?, |found| found.interfaces.iter().map(details).collect()))
}

/// The sessions of interfaces of a mode.
pub(crate) fn sessions(request: &Request, mode: Mode) -> Result<Answer, Failure> {
    let Interfaces { mut interfaces } = found(request)?;
    interfaces.retain(|interface| interface.mode == mode);
    Ok(Answer::new(Interfaces { interfaces }, |found| match &found.interfaces[..] {
        [] => "no such interface is configured\n".to_owned(),
        interfaces => interfaces.iter().map(table).collect::<Vec<_>>().join("\n"),
    }))
}

fn list(found: &[Interface]) -> String {
    let row = |interface: &Interface| Row {
        name: interface.name.clone(),
        addresses: interface.addresses.clone(),
        state: if interface.up { "u/u" } else { "A/D" },
        description: interface.description.clone().unwrap_or_default(),
    };
    interfaces::table(&found.iter().map(row).collect::<Vec<_>>())
}

fn details(interface: &Interface) -> String {
    let none = || "(none)".to_owned();
    let addresses = if interface.addresses.is_empty() { none() } else { interface.addresses.join(", ") };
    let mut lines = vec![
        format!("interface: {}", interface.name),
        format!("  description: {}", interface.description.clone().unwrap_or_else(none)),
        format!("  mode: {}", interface.mode),
        format!("  address: {addresses}"),
        format!("  state: {}", if interface.up { "up" } else { "down" }),
        format!("  port: {}", interface.port),
        format!("  sessions: {}", interface.sessions.len()),
    ];
    lines.extend(interface.failure.as_ref().map(|failure| format!("  failure: {failure}")));
    lines.join("\n") + "\n"
}

/// The sessions of an interface in the columns of VyOS.
fn table(interface: &Interface) -> String {
    let head =
        ["Client CN", "Remote Host", "Tunnel IP", "Local Host", "TX bytes", "RX bytes", "Connected Since"];
    let rows: Vec<Vec<String>> = interface.sessions.iter().map(row).collect();
    format!("OpenVPN status on {}\n\n{}", interface.name, tabulate(&head, &rows))
}

fn row(session: &Session) -> Vec<String> {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| NOTHING.to_owned());
    let addresses = &session.tunnel_ips;
    vec![
        known(&session.common_name),
        known(&session.remote_host) + if session.protocol == Transport::Tcp { " (TCP)" } else { "" },
        if addresses.is_empty() { NOTHING.to_owned() } else { addresses.join(", ") },
        known(&session.local_host),
        short(session.sent_bytes),
        short(session.received_bytes),
        timestamp(session.connected_since).replace('T', " ").trim_end_matches('Z').to_owned(),
    ]
}

/// A number of bytes as VyOS writes it here.
fn short(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KB", "MB", "GB"] {
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TB")
}

pub(crate) fn reset(request: &Request) -> Result<Answer, Failure> {
    let [interface, client] = ["INTERFACE", "CLIENT"].map(|name| request.value(name).map(str::to_owned));
    let order = Reset { interface, client };
    let daemons: Vec<(PathBuf, Interfaces)> = request.ask_each()?;
    let mut known = false;
    for (socket, _) in &daemons {
        known |= client::tell::<bool>(socket, "/v1/interfaces/openvpn/reset", &order)?;
    }
    if !known {
        return Err(match (&order.client, &order.interface) {
            (Some(client), _) => no_client(client, &daemons),
            (None, Some(interface)) => no_interface(interface),
            (None, None) => client::no_daemon().into(),
        });
    }
    Ok(Answer::new(order, |order| match (&order.client, &order.interface) {
        (Some(client), _) => format!("client {client}: its sessions are ended; it may connect again\n"),
        (None, interface) => {
            format!("{}: its sessions are begun again\n", interface.as_deref().unwrap_or_default())
        }
    }))
}

fn no_client(name: &str, daemons: &[(PathBuf, Interfaces)]) -> Failure {
    let interfaces = daemons.iter().flat_map(|(_, answer)| &answer.interfaces);
    let names: Vec<&str> =
        interfaces.flat_map(|it| &it.sessions).filter_map(|it| it.common_name.as_deref()).collect();
    let fix = nearest(name, &names)
        .map_or_else(|| "postern show openvpn server".to_owned(), |near| format!("did you mean {near}?"));
    format!("no client {name} is connected\n  fix: {fix}").into()
}

pub(crate) fn explain(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<Explanations> = request.ask()?;
    let mut found: Vec<Explanation> = answers.into_iter().flat_map(|answer| answer.interfaces).collect();
    if found.is_empty() {
        return Err(no_interface(request.value("INTERFACE").unwrap_or_default()));
    }
    let client = request.value("CLIENT");
    if let Some(client) = client {
        for it in &mut found {
            it.sessions.retain(|session| session.common_name.as_deref() == Some(client));
            it.failed.retain(|failed| is_of(failed, client));
        }
    }
    let is_down = |it: &Explanation| !it.up || it.failure.is_some() || is_lonely(it, client.is_some());
    let status = if found.iter().any(is_down) { NOT_UP } else { 0 };
    let text = |answer: &Explanations| answer.interfaces.iter().map(explanation).collect();
    Ok(Answer::new(Explanations { interfaces: found }, text).with_status(status))
}

/// A failure of a client: of its name, or of its address where it has shown no certificate.
fn is_of(failed: &Failed, client: &str) -> bool {
    let host = failed.address.rsplit_once(':');
    failed.common_name.as_deref() == Some(client) || host.is_some_and(|(host, _)| host == client)
}

/// Whether a session is missing: a server alone may have none.
fn is_lonely(it: &Explanation, names_client: bool) -> bool {
    it.sessions.is_empty() && (it.mode != Mode::Server || names_client)
}

fn explanation(it: &Explanation) -> String {
    let state = if it.up { "up" } else { "down" };
    let mut text = format!("interfaces openvpn {}: mode {}, {state}", it.interface, it.mode);
    let _ = match it.sessions.len() {
        1 => writeln!(text, ", 1 session"),
        count => writeln!(text, ", {count} sessions"),
    };
    if let Some(failure) = &it.failure {
        let _ = writeln!(text, "  {}", failure.replace("\n  fix:", "\n    fix:"));
    }
    for session in &it.sessions {
        let name = session.common_name.as_deref().unwrap_or("the peer");
        let at = session.remote_host.as_deref().unwrap_or("an unknown address");
        let over = if session.protocol == Transport::Tcp { " over TCP" } else { "" };
        let _ = writeln!(
            text,
            "  {name} at {at}{over}: connected {}, {}",
            ago(session.connected_since),
            session.cipher
        );
    }
    for failed in &it.failed {
        let name = failed.common_name.as_deref().unwrap_or("a peer without a certificate that is accepted");
        let at = &failed.address;
        let times = if failed.count == 1 { "once".to_owned() } else { format!("{} times", failed.count) };
        let _ = writeln!(text, "  {name} at {at}: {} ({times}, last {})", failed.reason, ago(failed.latest));
        if let Some(offered) = &failed.offered {
            let _ = writeln!(text, "    it offered {offered}");
        }
        for (at, line) in failed.fix.iter().enumerate() {
            let _ = writeln!(text, "    {} {line}", if at == 0 { "fix:" } else { "    " });
        }
    }
    if it.sessions.is_empty() && it.failed.is_empty() && it.failure.is_none() {
        let _ = writeln!(
            text,
            "  no packet of a peer has arrived: see the port, the protocol, and the firewall on the way"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            common_name: Some("anna".to_owned()),
            remote_host: Some("192.0.2.7:5000".to_owned()),
            local_host: Some("198.51.100.1:1194".to_owned()),
            tunnel_ips: vec!["10.8.0.2".to_owned()],
            cipher: "AES-256-GCM".to_owned(),
            connected_since: 951_782_400,
            received_bytes: 1536,
            sent_bytes: 12,
            ..Session::default()
        }
    }

    fn failed() -> Failed {
        Failed {
            address: "192.0.2.8:5".to_owned(),
            common_name: Some("bert".to_owned()),
            offered: Some("IV_VER=2.6.14".to_owned()),
            reason: "refused: it is disabled".to_owned(),
            fix: vec!["delete interfaces openvpn vtun0 server client bert disable".to_owned()],
            count: 2,
            latest: 0,
        }
    }

    #[test]
    fn the_sessions_have_the_columns_of_vyos() {
        let interface = Interface {
            name: "vtun0".to_owned(),
            description: None,
            mode: Mode::Server,
            addresses: vec!["10.8.0.1/24".to_owned()],
            up: true,
            port: 1194,
            sessions: vec![session()],
            failure: None,
        };
        assert_eq!(
            table(&interface),
            "OpenVPN status on vtun0\n\n\
             Client CN    Remote Host     Tunnel IP    Local Host         TX bytes    RX bytes    Connected Since\n\
             -----------  --------------  -----------  -----------------  ----------  ----------  -------------------\n\
             anna         192.0.2.7:5000  10.8.0.2     198.51.100.1:1194  12.0 B      1.5 KB      2000-02-29 00:00:00\n"
        );
        let over_tcp = Session { protocol: Transport::Tcp, ..session() };
        assert_eq!(row(&over_tcp)[1], "192.0.2.7:5000 (TCP)");
        assert!(list(std::slice::from_ref(&interface)).contains("vtun0            10.8.0.1/24"));
        assert!(details(&interface).contains("  mode: server\n"));
    }

    #[test]
    fn a_refusal_comes_with_what_was_offered_and_the_line_that_mends_it() {
        let it = Explanation {
            interface: "vtun0".to_owned(),
            mode: Mode::Server,
            up: true,
            sessions: Vec::new(),
            failure: None,
            failed: vec![failed()],
        };
        let text = explanation(&it);
        assert!(text.contains("bert at 192.0.2.8:5: refused: it is disabled (2 times, last "), "{text}");
        assert!(
            text.contains("    it offered IV_VER=2.6.14\n    fix: delete interfaces openvpn vtun0"),
            "{text}"
        );
        assert!(is_of(&failed(), "bert") && is_of(&failed(), "192.0.2.8") && !is_of(&failed(), "anna"));
        assert!(!is_lonely(&it, false) && is_lonely(&it, true));
    }
}
