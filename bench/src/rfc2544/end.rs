//! What the tester does at a port that carries encrypted packets: it is the other end of a device that encrypts.
//!
//! ```text
//! send      frame of the template → seal → outer headers → port
//! receive   port → SA → open → inner packet, which the reader judges
//! ```

use super::esp::EspEnd;
use super::frame::Seen;
use super::wireguard::WireGuardPeer;
use packet::Batch;
use std::io;
use std::net::SocketAddr;

/// What a received frame is, before the reader looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not encrypted, and unchanged.
    Frame,
    /// A packet that was opened: the inner packet.
    Opened {
        /// Whether the sequence number has been seen before.
        is_repeated: bool,
        /// The place of the SA among those of the port.
        sa: u32,
    },
    /// An encrypted packet of ours that is not what was sealed.
    Corrupt,
    /// Dropped before, a dummy packet (RFC 4303 section 2.6), or a message of a handshake.
    Nothing,
    /// A packet that has yet to be opened, of the SA at this place, or of the session with this index.
    Sealed(u32),
}

/// The frames of a batch behind an end.
pub struct Opened<'a> {
    /// What each frame is.
    pub fates: &'a [Fate],
    /// By stream: the SA that its frames must come under; empty if any is right.
    pub expected: &'a [u32],
}

/// What seals the frames that leave by a port, and opens those that arrive there.
pub enum End {
    /// ESP with known keys.
    Esp(Box<EspEnd>),
    /// WireGuard.
    WireGuard(Box<WireGuardPeer>),
}

impl End {
    /// Seals all frames of a batch, of which the first has this sequence number. Returns whether they may leave: without a key they have to wait.
    #[inline]
    pub fn seal(&mut self, batch: &mut Batch, first: u64, now: u64) -> io::Result<bool> {
        match self {
            Self::Esp(esp) => esp.sealer.as_mut().map_or(Ok(()), |it| it.seal(batch, first)).map(|()| true),
            Self::WireGuard(peer) => peer.seal(batch, now),
        }
    }

    /// Opens what is encrypted in a batch. Opened packets are left without anything around them.
    #[inline]
    pub fn open(&mut self, batch: &mut Batch, now: u64) -> Opened<'_> {
        match self {
            Self::Esp(esp) => esp.opener.open(batch),
            Self::WireGuard(peer) => peer.open(batch, now),
        }
    }

    /// Serves timers; returns frames that have to be sent, of which ESP has none.
    #[inline]
    pub fn tick(&mut self, now: u64) -> Vec<Vec<u8>> {
        match self {
            Self::Esp(_) => Vec::new(),
            Self::WireGuard(peer) => {
                peer.tick(now);
                peer.take_outgoing()
            }
        }
    }

    /// Asks for a new key if that in use is old; returns who has to answer.
    pub fn renew(&mut self, now: u64) -> Option<SocketAddr> {
        match self {
            Self::WireGuard(peer) if !peer.is_ready(now) => {
                peer.renew(now);
                Some(peer.other())
            }
            _ => None,
        }
    }

    /// Whether a trial can begin.
    pub fn is_ready(&self, now: u64) -> bool {
        match self {
            Self::Esp(_) => true,
            Self::WireGuard(peer) => peer.is_ready(now),
        }
    }

    /// Sets the hardware addresses of the station behind the port and of the port.
    pub fn set_stations(&mut self, macs: [u8; 12]) {
        if let Self::WireGuard(peer) = self {
            peer.set_stations(macs);
        }
    }
}

/// What a frame of ours is that came as it is where it has to be encrypted.
pub fn unsealed(seen: Seen) -> Seen {
    if matches!(seen, Seen::Ours(_)) { Seen::Clear } else { seen }
}
