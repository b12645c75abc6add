//! The journal's own protocol (systemd's docs/JOURNAL_NATIVE_PROTOCOL.md): one datagram an event, with its priority and whose it is as fields.

use super::event::Fields;
use super::{prioritized, priority};
use gateway::log::{Subsystem, is_on};
use std::io::{self, Write, stderr};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

const SOCKET: &str = "/run/systemd/journal/socket";
/// What `journalctl -t` finds.
const IDENTIFIER: &str = "postern";
/// Characters of a message: what is longer than a datagram would need a file.
const LONGEST: usize = 32_768;

/// The layer, with its connection.
pub(crate) struct Journald(UnixDatagram);

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
        Ok(Self(socket))
    }
}

impl<S: Subscriber> Layer<S> for Journald {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if !is_on(metadata) {
            return;
        }
        let (level, fields) = (*metadata.level(), Fields::of(event));
        let datagram = datagram(level, Subsystem::of(metadata.target()), &fields);
        if self.0.send(&datagram).is_err() {
            // The journal reads standard error, too, but knows no fields of it.
            let _ = stderr().write_all(prioritized(level, &fields.message).as_bytes());
        }
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
    fn an_event_has_its_priority_and_whose_it_is() {
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
}
