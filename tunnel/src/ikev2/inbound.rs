//! A received datagram.

use super::message::Message;
use super::nat::Path;

/// A datagram with a parsed message, and its path.
pub(super) struct Inbound<'a> {
    pub(super) path: Path,
    pub(super) bytes: &'a [u8],
    pub(super) message: Message<'a>,
}
