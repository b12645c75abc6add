//! The journal's own protocol (systemd's docs/JOURNAL_NATIVE_PROTOCOL.md): one datagram an event, with priority, interface and peer as fields.

use super::event::Fields;
use super::{prioritized, priority};
use gateway::log::{Subsystem, is_on};
use std::io::{self, Write, stderr};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

const SOCKET: &str = "/run/systemd/journal/socket";
/// The identifier for `journalctl -t`.
const IDENTIFIER: &str = "postern";
/// Characters of a message: what is longer than a datagram would need a file.
const LONGEST: usize = 32_768;

/// The layer, with its connection.
pub(crate) struct Journald {
    socket: UnixDatagram,
    /// Lines that the journal did not take.
    lost: AtomicU64,
}

impl Journald {
    /// Connects, before the process gives up its rights.
    pub(crate) fn connect() -> io::Result<Self> {
        Self::to(Path::new(SOCKET))
    }

    fn to(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        // A journal that hangs must not stop packets.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, lost: AtomicU64::new(0) })
    }

    /// Sends a line, or counts it: standard error is the journal's too, and writing to it would wait.
    fn send(&self, level: Level, subsystem: Subsystem, fields: &Fields) {
        match self.socket.send(&datagram(level, subsystem, fields)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                // The journal reads standard error, too, but knows no fields of it.
                let _ = stderr().write_all(prioritized(level, &fields.message).as_bytes());
            }
        }
    }

    /// Reports lost lines before the next one.
    fn tell_of_lost(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let message = format!("{lost} lines were lost, as the journal did not take them");
            self.send(Level::WARN, Subsystem::Daemon, &Fields { message, ..Fields::default() });
        }
    }
}

impl<S: Subscriber> Layer<S> for Journald {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if !is_on(metadata) {
            return;
        }
        self.tell_of_lost();
        self.send(*metadata.level(), Subsystem::of(metadata.target()), &Fields::of(event));
    }
}

/// The fields of an event.
fn datagram(level: Level, subsystem: Subsystem, fields: &Fields) -> Vec<u8> {
    let mut datagram = Vec::new();
    let message: String = fields.message.chars().take(LONGEST).collect();
    add(&mut datagram, "MESSAGE", &message);
    add(&mut datagram, "PRIORITY", &priority(level).to_string());
    add(&mut datagram, "SYSLOG_IDENTIFIER", IDENTIFIER);
    add(&mut datagram, "SYSLOG_PID", &std::process::id().to_string());
    add(&mut datagram, "POSTERN_SUBSYSTEM", subsystem.name());
    if let Some(interface) = &fields.interface {
        add(&mut datagram, "POSTERN_INTERFACE", interface);
    }
    if let Some(peer) = &fields.peer {
        add(&mut datagram, "POSTERN_PEER", peer);
    }
    datagram
}

/// `NAME=value`, or where the value has several lines, its length before it: a name of another machine adds no field.
fn add(datagram: &mut Vec<u8>, name: &str, value: &str) {
    datagram.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        datagram.push(b'\n');
        datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        datagram.push(b'=');
    }
    datagram.extend_from_slice(value.as_bytes());
    datagram.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_priority_interface_and_peer() {
        let fields = Fields {
            message: "is up".to_owned(),
            interface: Some("ipsec0".to_owned()),
            peer: Some("berlin".to_owned()),
        };
        let text = String::from_utf8(datagram(Level::WARN, Subsystem::Ipsec, &fields)).expect("text");
        let id = std::process::id();
        assert_eq!(
            text,
            format!(
                "MESSAGE=is up\nPRIORITY=4\nSYSLOG_IDENTIFIER=postern\nSYSLOG_PID={id}\nPOSTERN_SUBSYSTEM=ipsec\n\
                 POSTERN_INTERFACE=ipsec0\nPOSTERN_PEER=berlin\n"
            )
        );
    }

    #[test]
    fn an_event_is_a_datagram_to_the_journal() {
        use tracing_subscriber::layer::SubscriberExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let journal = UnixDatagram::bind(&path).expect("a socket");
        let layer = Journald::to(&path).expect("it listens");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::error!(interface = "wg0", peer = "berlin", "interface wg0: peer berlin is up");
        });
        let mut bytes = [0; 1024];
        let length = journal.recv(&mut bytes).expect("it was sent");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        assert!(text.starts_with("MESSAGE=interface wg0: peer berlin is up\nPRIORITY=3\n"), "{text}");
        assert!(
            text.ends_with("POSTERN_SUBSYSTEM=daemon\nPOSTERN_INTERFACE=wg0\nPOSTERN_PEER=berlin\n"),
            "{text}"
        );
    }

    #[test]
    fn no_name_adds_a_field() {
        let fields = Fields {
            message: "a\n  fix: b".to_owned(),
            interface: None,
            peer: Some("x\nPRIORITY=0".to_owned()),
        };
        let bytes = datagram(Level::INFO, Subsystem::Daemon, &fields);
        assert!(bytes.starts_with(b"MESSAGE\n\x0a\0\0\0\0\0\0\0a\n  fix: b\nPRIORITY=6\n"));
        assert!(bytes.ends_with(b"POSTERN_PEER\n\x0c\0\0\0\0\0\0\0x\nPRIORITY=0\n"));
    }

    #[test]
    fn a_long_message_is_cut() {
        let fields = Fields { message: "x".repeat(LONGEST + 9), ..Fields::default() };
        assert!(datagram(Level::INFO, Subsystem::Daemon, &fields).len() < LONGEST + 200);
    }

    #[test]
    fn lines_that_a_hung_journal_loses_are_counted_and_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let journal = UnixDatagram::bind(&path).expect("a socket");
        journal.set_nonblocking(true).expect("it can");
        let layer = Journald::to(&path).expect("it listens");
        let line = || Fields { message: "is up".to_owned(), ..Fields::default() };
        for _ in 0..10_000 {
            layer.send(Level::INFO, Subsystem::Ipsec, &line());
        }
        let mut bytes = [0; 1024];
        let taken = std::iter::from_fn(|| journal.recv(&mut bytes).ok()).count();
        assert!(taken > 0 && taken < 10_000, "{taken}");
        layer.tell_of_lost();
        let length = journal.recv(&mut bytes).expect("it was sent");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        assert!(text.starts_with(&format!("MESSAGE={} lines were lost", 10_000 - taken)), "{text}");
    }
}
