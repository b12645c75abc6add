//! The syslog of the machine: a line for each alert that has changed, in the facility `daemon`.

use gateway::health::model::{AlertState, Severity};
use gateway::health::wire::Notification;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// Where the syslog of the machine listens.
pub(super) const SOCKET: &str = "/dev/log";
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// RFC 5424, table 1: the facility `daemon`.
const DAEMON: u8 = 3 << 3;
/// Characters of a message: RFC 3164 allows 1024 bytes.
const LONGEST: usize = 900;

/// Sends a message for each alert that has changed.
pub(super) fn send(socket: &Path, notification: &Notification) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", socket.display());
    let datagram = UnixDatagram::unbound().map_err(failed)?;
    datagram.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    datagram.connect(socket).map_err(failed)?;
    for alert in notification.changes() {
        let severity = match (alert.state, alert.severity) {
            (AlertState::Firing, Severity::Critical) => 2,
            (AlertState::Firing, Severity::Warning) => 4,
            _ => 5,
        };
        let (state, rule) = (alert.state, &alert.rule);
        let text: String = format!("{state} {} {rule}: {}", alert.severity, alert.sentence);
        let text: String = text.replace(char::is_control, " ").chars().take(LONGEST).collect();
        let fix = if state == AlertState::Firing { format!(" Fix: {}", alert.remedy) } else { String::new() };
        let line = format!("<{}>postern-health: {text}{fix}", DAEMON | severity);
        datagram.send(line.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::form::tests::notification;
    use super::*;

    #[test]
    fn each_alert_that_has_changed_is_a_line_with_its_priority() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("log");
        assert!(send(&socket, &notification()).expect_err("nobody listens").contains("No such file"));
        let log = UnixDatagram::bind(&socket).expect("a socket");
        let mut notification = notification();
        send(&socket, &notification).expect("it is sent");
        notification.changed_since = 0;
        send(&socket, &notification).expect("it is sent");
        let next = || {
            let mut bytes = [0; 2048];
            let count = log.recv(&mut bytes).expect("a line");
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        let resolved = "<29>postern-health: resolved critical tunnel-down: The tunnel wg0 \"rome\" is down.";
        assert_eq!(next(), resolved);
        let firing = next();
        assert!(firing.starts_with("<26>postern-health: firing critical tunnel-down: "), "{firing}");
        assert!(firing.ends_with("Fix: postern explain interfaces wireguard wg0 peer berlin"), "{firing}");
        assert_eq!(next(), resolved);
    }
}
