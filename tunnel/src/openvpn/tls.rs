//! TLS without I/O: bytes of the control channel in and out, and one message in each record.
//!
//! OpenVPN writes each message with one call, hence as one record, and expects the same of its peer. rustls keeps the
//! boundaries of records, and draws its random numbers from the system.

use super::limits::LONGEST_MESSAGE;
use super::wrap::Role;
use crate::Now;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroizing;

/// The wall clock of certificate checks, which the core sets: TLS reads no clock of the system.
#[derive(Debug, Default)]
pub struct WallClock(AtomicU64);

impl WallClock {
    /// Sets the time.
    pub fn set(&self, now: Now) {
        self.0.store(now.wall.as_secs(), Ordering::Relaxed);
    }
}

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

/// The configuration of one side.
#[derive(Clone)]
pub enum TlsConfig {
    /// Of a client.
    Client(Arc<ClientConfig>),
    /// Of a server.
    Server(Arc<ServerConfig>),
}

impl TlsConfig {
    /// A client's configuration as OpenVPN needs it: no tickets, no resumption, no server name.
    pub fn client(mut config: ClientConfig, clock: Arc<WallClock>) -> Self {
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        config.time_provider = clock;
        Self::Client(Arc::new(config))
    }

    /// A server's configuration as OpenVPN needs it: no tickets, no resumption.
    pub fn server(mut config: ServerConfig, clock: Arc<WallClock>) -> Self {
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.time_provider = clock;
        Self::Server(Arc::new(config))
    }

    /// The side.
    pub fn role(&self) -> Role {
        match self {
            Self::Client(_) => Role::Client,
            Self::Server(_) => Role::Server,
        }
    }
}

/// Why TLS ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// TLS failed, or the peer sent an alert.
    #[error("{0}")]
    Failed(String),
    /// The peer's certificate is refused, or it has none.
    #[error("{0}")]
    Refused(String),
    /// The peer closed TLS.
    #[error("the peer closed TLS")]
    Closed,
    /// The peer sent a message that is too long.
    #[error("the peer sent a control message of more than {LONGEST_MESSAGE} bytes")]
    TooLong,
    /// The TLS connection of these keys is gone.
    #[error("the negotiation of these keys is no longer kept")]
    Gone,
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        let sentence = super::refusals::sentence(&error);
        match error {
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                Self::Refused(sentence)
            }
            _ => Self::Failed(sentence),
        }
    }
}

/// One TLS connection.
pub struct Tls(Box<Connection>);

impl Tls {
    /// A connection, on which a client has its first message to send.
    pub fn new(config: &TlsConfig) -> Result<Self, TlsError> {
        let connection = match config {
            TlsConfig::Client(config) => {
                // The name is neither sent nor compared: OpenVPN compares others.
                let name = ServerName::try_from("openvpn").expect("a valid name");
                Connection::from(ClientConnection::new(Arc::clone(config), name)?)
            }
            TlsConfig::Server(config) => Connection::from(ServerConnection::new(Arc::clone(config))?),
        };
        Ok(Self(Box::new(connection)))
    }

    /// Takes bytes of the peer.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), TlsError> {
        while !bytes.is_empty() {
            let taken = self.0.read_tls(&mut bytes).map_err(|error| TlsError::Failed(error.to_string()))?;
            let state = self.0.process_new_packets()?;
            if taken == 0 || state.plaintext_bytes_to_read() > 4 * LONGEST_MESSAGE {
                return Err(TlsError::TooLong);
            }
        }
        Ok(())
    }

    /// Bytes for the peer.
    pub fn transmit(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.0.wants_write() {
            // Writing to a vector does not fail.
            if self.0.write_tls(&mut bytes).is_err() {
                break;
            }
        }
        bytes
    }

    /// Whether the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Encrypts a message as one record.
    pub fn write(&mut self, message: &[u8]) -> Result<(), TlsError> {
        let written = self.0.writer().write(message).map_err(|error| TlsError::Failed(error.to_string()))?;
        if written == message.len() { Ok(()) } else { Err(TlsError::TooLong) }
    }

    /// The next message: one record.
    pub fn read(&mut self) -> Result<Option<Zeroizing<Vec<u8>>>, TlsError> {
        let length = match self.0.reader().into_first_chunk() {
            Ok([]) => return Err(TlsError::Closed),
            Ok(chunk) => chunk.len(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return Err(TlsError::Closed),
        };
        let mut message = Zeroizing::new(vec![0; length]);
        self.0.reader().read_exact(&mut message).map_err(|error| TlsError::Failed(error.to_string()))?;
        Ok(Some(message))
    }

    /// Key material of RFC 5705 for a label, without a context.
    pub fn export<const LENGTH: usize>(&self, label: &[u8]) -> Result<Zeroizing<[u8; LENGTH]>, TlsError> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        self.0.export_keying_material(&mut bytes[..], label, None)?;
        Ok(bytes)
    }

    /// The peer's certificates, its own first. They are verified.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        self.0.peer_certificates().unwrap_or_default()
    }
}
