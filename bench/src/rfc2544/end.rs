//! What the tester does at a port that carries encrypted packets: it is the other end of a device that encrypts.
//!
//! ```text
//! send      frame of the template → seal → outer headers → port
//! receive   port → SA → open → inner packet, which the reader judges
//! ```

use super::esp::{Opener, Sealer};
use super::frame::Seen;
use packet::Batch;
use std::io;

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
    /// A packet of this SA that has yet to be opened.
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
#[derive(Default)]
pub struct End {
    /// What seals.
    pub sealer: Option<Sealer>,
    /// What opens.
    pub opener: Option<Opener>,
}

impl End {
    /// Seals all frames of a batch, of which the first has this sequence number.
    pub fn seal(&mut self, batch: &mut Batch, first: u64) -> io::Result<()> {
        self.sealer.as_mut().map_or(Ok(()), |sealer| sealer.seal(batch, first))
    }

    /// Opens what is encrypted in a batch. Opened packets are left without anything around them. None if nothing is opened here.
    pub fn open(&mut self, batch: &mut Batch) -> Option<Opened<'_>> {
        self.opener.as_mut().map(|opener| opener.open(batch))
    }
}

/// What a frame of ours is that came as it is where it has to be encrypted.
pub fn unsealed(seen: Seen) -> Seen {
    if matches!(seen, Seen::Ours(_)) { Seen::Clear } else { seen }
}
