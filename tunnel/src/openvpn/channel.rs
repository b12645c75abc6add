//! The control channel with one peer: its wrap, its session IDs, and the negotiations of its keys.
//!
//! ```text
//! packet → wrap → session ID → key ID → KeySession → ChannelEvent
//! ```
//! Key 0 is the first. A soft reset begins key 1, 2, ... 7, 1, ...; either side may send it, and the other answers with its
//! own, if the data keys before are installed: nothing is negotiated while a verdict is awaited. The sides of TLS stay as
//! they are. The key before the present one is kept, so that its last messages are acknowledged.

use super::early::EarlyReset;
use super::key_method::{Credentials, KeyMethod, KeySource};
use super::keys::{self, DataKeys};
use super::limits::{LONGEST_PACKET, RENEW_INTERVAL};
use super::packet::{Body, Lead, Malformed, Opcode, SessionId};
pub use super::packet_error::PacketError;
use super::session::{Beginning, KeyError, KeyEvent, KeySession};
use super::tls::{Tls, TlsConfig, TlsError};
use super::wrap::{Opened, PacketId, Role, WrapError, Wrapper};
use crate::{Now, Time};
use crypto::Random;
use rustls::pki_types::CertificateDer;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Keys kept at once: the one being negotiated, the present one, and the one before.
const KEYS: usize = 3;

/// What each key method message says.
#[derive(Clone, Debug, Default)]
pub struct Announcement {
    /// A summary of the options.
    pub options: String,
    /// The user's, of a client.
    pub credentials: Credentials,
    /// Of a client.
    pub peer_info: String,
}

/// What happened on a channel.
pub enum ChannelEvent {
    /// The key method messages were exchanged: data keys can be made.
    Exchanged {
        /// Which key.
        key_id: u8,
        /// The peer's message.
        theirs: Box<KeyMethod>,
    },
    /// A command of the peer, without its final NUL. It has no control characters.
    Command(String),
    /// A command with control characters was ignored.
    BadCommand,
    /// The peer began to negotiate a new key.
    Renewing,
    /// The negotiation of a key failed.
    Failed {
        /// Which key.
        key_id: u8,
        /// Why.
        error: KeyError,
    },
}

// A command may be a one-time password or a token.
impl fmt::Debug for ChannelEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchanged { key_id, theirs } => write!(f, "Exchanged({key_id}, {theirs:?})"),
            Self::Command(_) => f.write_str("Command(..)"),
            Self::BadCommand => f.write_str("BadCommand"),
            Self::Renewing => f.write_str("Renewing"),
            Self::Failed { key_id, error } => write!(f, "Failed({key_id}, {error})"),
        }
    }
}

/// The control channel with one peer.
pub struct Channel {
    role: Role,
    local: SessionId,
    remote: Option<SessionId>,
    wrapper: Wrapper,
    /// The wrap of keys after the first, with dynamic tls-crypt.
    renewed_wrapper: Option<Wrapper>,
    /// A client's wrapped key (tls-crypt-v2), which follows some of its packets.
    wrapped_key: Vec<u8>,
    early: EarlyReset,
    tls: TlsConfig,
    announcement: Announcement,
    /// The newest last.
    keys: VecDeque<KeySession>,
    /// The last key that was negotiated, even if it failed.
    last: u8,
    /// Whether data keys were installed.
    is_up: bool,
    wall_seconds: u32,
}

impl Channel {
    /// A channel without keys.
    pub fn new(tls: TlsConfig, wrapper: Wrapper, local: SessionId, announcement: Announcement) -> Self {
        Self {
            role: tls.role(),
            local,
            remote: None,
            wrapper,
            renewed_wrapper: None,
            wrapped_key: Vec::new(),
            early: EarlyReset::default(),
            tls,
            announcement,
            keys: VecDeque::new(),
            last: 0,
            is_up: false,
            wall_seconds: 0,
        }
    }

    /// Sets the client's wrapped key, which follows its first packet.
    pub fn set_wrapped_key(&mut self, wrapped: Vec<u8>) {
        self.wrapped_key = wrapped;
    }

    /// From now on, the reset of a peer that has not heard of us is kept: two peers may begin at once.
    pub fn keep_early_reset(&mut self) {
        self.early = EarlyReset::Awaited;
    }

    /// Replaces the user name and the password for further keys.
    pub fn set_credentials(&mut self, credentials: Credentials) {
        self.announcement.credentials = credentials;
    }

    /// Replaces the configuration of TLS for further keys.
    pub fn set_tls(&mut self, tls: TlsConfig) {
        self.tls = tls;
    }

    /// A client's first packet is to be sent.
    pub fn send_reset(&mut self, now: Now, random: &mut dyn Random) -> Result<(), TlsError> {
        let opcode = if self.wrapped_key.is_empty() { Opcode::ClientResetV2 } else { Opcode::ClientResetV3 };
        self.begin(now, 0, Beginning::Reset(opcode), random)
    }

    /// Continues after a client has returned our session ID.
    pub fn answer(&mut self, now: Now, remote: SessionId, random: &mut dyn Random) -> Result<(), TlsError> {
        self.remote = Some(remote);
        self.begin(now, 0, Beginning::AfterResets, random)
    }

    /// Continues after a client's first packet, in which its key came, without a cookie.
    pub fn answer_at_once(
        &mut self,
        now: Now,
        remote: SessionId,
        random: &mut dyn Random,
    ) -> Result<(), TlsError> {
        self.remote = Some(remote);
        self.begin(now, 0, Beginning::Reset(Opcode::ServerReset), random)
    }

    /// Begins to negotiate a new key, unless another is being negotiated or is not installed yet.
    pub fn renew(&mut self, now: Now, random: &mut dyn Random) -> Result<bool, TlsError> {
        if !self.may_renew() {
            return Ok(false);
        }
        let key_id = next_key_id(self.last);
        self.begin(now, key_id, Beginning::Reset(Opcode::SoftReset), random)?;
        Ok(true)
    }

    fn begin(
        &mut self,
        now: Now,
        key_id: u8,
        beginning: Beginning,
        random: &mut dyn Random,
    ) -> Result<(), TlsError> {
        let Announcement { options, credentials, peer_info } = self.announcement.clone();
        let source = KeySource::random(self.role, random);
        let ours = KeyMethod { source, options, credentials, peer_info };
        let tls = Tls::new(&self.tls)?;
        if self.keys.len() == KEYS {
            self.keys.pop_front();
        }
        let room = self.wrapper_of(key_id).room();
        self.keys.push_back(KeySession::new(now.monotonic, key_id, self.role, tls, beginning, ours, room));
        self.last = key_id;
        Ok(())
    }

    /// Our session ID.
    pub fn local(&self) -> SessionId {
        self.local
    }

    /// The peer's session ID, once it is known.
    pub fn remote(&self) -> Option<SessionId> {
        self.remote
    }

    /// The newest key.
    pub fn newest(&self) -> Option<&KeySession> {
        self.keys.back()
    }

    /// Notes that the data keys of a negotiation are installed: from now on, others may be negotiated.
    pub fn set_installed(&mut self, key_id: u8) {
        self.is_up = true;
        if let Some(key) = self.find(key_id) {
            key.is_installed = true;
        }
    }

    /// The peer's verified certificates in the negotiation of a key, its own first.
    pub fn certificates(&self, key_id: u8) -> &[CertificateDer<'static>] {
        let key = self.keys.iter().rev().find(|key| key.key_id == key_id);
        key.map(|key| key.tls().certificates()).unwrap_or_default()
    }

    /// Before the verdict about the newest key, a client could have any number of handshakes.
    fn may_renew(&self) -> bool {
        self.is_up && self.keys.iter().all(|key| key.is_installed)
    }

    /// Whether a key that is not the first is being negotiated.
    pub fn is_renewing(&self) -> bool {
        self.is_up && self.keys.back().is_some_and(|key| !key.is_established())
    }

    /// Gives up the negotiation of the newest key.
    pub fn abandon_renewal(&mut self) {
        if let Some(key_id) = self.keys.back().filter(|_| self.is_renewing()).map(|key| key.key_id) {
            self.remove(key_id);
        }
    }

    /// Gives up the control channel of a key; returns whether it was the newest. Its data keys stay.
    pub fn remove(&mut self, key_id: u8) -> bool {
        let Some(position) = self.keys.iter().rposition(|key| key.key_id == key_id) else { return false };
        let is_newest = position + 1 == self.keys.len();
        let key = self.keys.remove(position);
        // A peer that has begun it will not begin it again under this ID; one that has not expects this ID.
        if is_newest && key.is_some_and(|key| !key.is_answered()) {
            self.last = previous_key_id(key_id);
        }
        is_newest
    }

    /// Handles a packet.
    pub fn handle(
        &mut self,
        now: Now,
        packet: &[u8],
        random: &mut dyn Random,
        events: &mut Vec<ChannelEvent>,
    ) -> Result<(), PacketError> {
        if packet.len() > LONGEST_PACKET {
            return Err(PacketError::Wrap(WrapError::Malformed));
        }
        let lead = packet.first().copied().and_then(Lead::parse).ok_or(Malformed)?;
        if lead.opcode.is_data() {
            return Err(Malformed.into());
        }
        let opened = self.wrapper_of(lead.key_id).keys().open(packet)?;
        self.handle_opened(now, &opened, random, events)
    }

    /// Handles an authentic packet.
    pub fn handle_opened(
        &mut self,
        now: Now,
        opened: &Opened,
        random: &mut dyn Random,
        events: &mut Vec<ChannelEvent>,
    ) -> Result<(), PacketError> {
        let Lead { opcode, key_id } = opened.lead;
        let body = Body::parse(opcode, &opened.body)?;
        if body.receiver.is_some_and(|receiver| receiver != self.local) {
            return Err(PacketError::OtherSession);
        }
        match self.remote {
            Some(remote) if remote == opened.session => {}
            // The server proves with our session ID that it has received our packet.
            None if body.receiver.is_some() => match self.early.take_of(opened.session) {
                Some(reset) => {
                    self.remote = Some(opened.session);
                    // Its body was parsed before.
                    self.handle_opened(now, &reset, random, events)?;
                }
                None if opcode == Opcode::ServerReset => self.remote = Some(opened.session),
                None => return Err(PacketError::OtherSession),
            },
            None if opcode == Opcode::ServerReset && self.early.keep(opened) => return Ok(()),
            _ => return Err(PacketError::OtherSession),
        }
        // After the session IDs: a packet of another session under the same key, sent here again, would use up numbers.
        self.wrapper_of(key_id).accept(opened.id)?;
        if self.find(key_id).is_none() {
            self.answer_soft_reset(now, opened.lead, random, events)?;
        }
        let key = self.find(key_id).ok_or(PacketError::UnknownKey)?;
        let mut key_events = Vec::new();
        match key.receive(now.monotonic, opcode, &body, &mut key_events) {
            Ok(Some(payload)) if opcode == Opcode::ServerReset => self.read_reset(&payload),
            Ok(_) => {}
            Err(error) => events.push(ChannelEvent::Failed { key_id, error }),
        }
        for event in key_events {
            translate(key_id, event, events);
        }
        Ok(())
    }

    fn answer_soft_reset(
        &mut self,
        now: Now,
        lead: Lead,
        random: &mut dyn Random,
        events: &mut Vec<ChannelEvent>,
    ) -> Result<(), PacketError> {
        // The peer may have begun one that we have not heard of.
        let next = next_key_id(self.last);
        let is_next = [next, next_key_id(next)].contains(&lead.key_id);
        if lead.opcode != Opcode::SoftReset || !is_next || !self.may_renew() {
            return Err(PacketError::UnknownKey);
        }
        // The peer sends its reset again.
        if self.keys.back().is_some_and(|newest| now.monotonic < newest.began + RENEW_INTERVAL) {
            return Err(PacketError::TooSoon);
        }
        let begun = self.begin(now, lead.key_id, Beginning::Reset(Opcode::SoftReset), random);
        events.push(match begun {
            Ok(()) => ChannelEvent::Renewing,
            Err(error) => ChannelEvent::Failed { key_id: lead.key_id, error: error.into() },
        });
        Ok(())
    }

    /// TLVs in the server's reset: type 1, "early negotiation", with bit 0: send the wrapped key again.
    fn read_reset(&mut self, payload: &[u8]) {
        let resend =
            payload.first_chunk().is_some_and(|tlv| matches!(tlv, [0, 1, 0, 2, _, flags] if flags & 1 == 1));
        let length = self.wrapped_key.len();
        if let Some(key) = self.keys.back_mut().filter(|_| resend && length > 0) {
            key.resend_key(length);
        }
    }

    fn find(&mut self, key_id: u8) -> Option<&mut KeySession> {
        self.keys.iter_mut().rev().find(|key| key.key_id == key_id)
    }

    fn wrapper_of(&mut self, key_id: u8) -> &mut Wrapper {
        match &mut self.renewed_wrapper {
            Some(wrapper) if key_id > 0 => wrapper,
            _ => &mut self.wrapper,
        }
    }

    /// From now on, further keys are negotiated under a wrap with a key that the first one exports.
    pub fn use_dynamic_wrap(&mut self, now: Now) -> Result<(), TlsError> {
        let Some(first) = self.keys.iter().find(|key| key.key_id == 0) else { return Err(TlsError::Gone) };
        let exported = keys::export_wrap(first.tls())?;
        let keys = self.wrapper.keys().renewed(&exported, self.role);
        let wrapper = Wrapper::new(keys, PacketId { number: 0, time: now.wall.as_secs() as u32 });
        self.renewed_wrapper = Some(wrapper.limited_to(self.wrapper.longest()));
        Ok(())
    }

    /// What TLS exports in the negotiation of a key.
    pub fn exported<R>(
        &self,
        key_id: u8,
        export: impl FnOnce(&Tls) -> Result<R, TlsError>,
    ) -> Result<R, TlsError> {
        let key = self.keys.iter().rev().find(|key| key.key_id == key_id).ok_or(TlsError::Gone)?;
        export(key.tls())
    }

    /// The data keys of an established key: exported, or derived for peers that cannot.
    pub fn data_keys(&self, key_id: u8, export: bool) -> Result<DataKeys, TlsError> {
        if export {
            return self.exported(key_id, DataKeys::export);
        }
        let key = self.keys.iter().rev().find(|key| key.key_id == key_id).ok_or(TlsError::Gone)?;
        let (Some(sources), Some(remote)) = (key.sources(), self.remote) else { return Err(TlsError::Gone) };
        let sessions = if self.role == Role::Client { [self.local, remote] } else { [remote, self.local] };
        Ok(DataKeys::derive(sources, sessions))
    }

    /// Sends a command on the newest established key.
    pub fn send_command(&mut self, command: &str) -> Result<(), KeyError> {
        match self.keys.iter_mut().rev().find(|key| key.is_established()) {
            Some(key) => key.send_command(command),
            None => Ok(()),
        }
    }

    /// The next packet to send.
    pub fn transmit(&mut self, now: Now) -> Option<Vec<u8>> {
        self.wall_seconds = now.wall.as_secs() as u32;
        let (lead, body) = self.keys.iter_mut().find_map(|key| key.transmit(now.monotonic, self.remote))?;
        let (local, seconds) = (self.local, self.wall_seconds);
        let mut packet = self.wrapper_of(lead.key_id).seal(seconds, lead, local, &body);
        if matches!(lead.opcode, Opcode::ClientResetV3 | Opcode::ControlWithKey) {
            packet.extend_from_slice(&self.wrapped_key);
        }
        Some(packet)
    }

    /// When a packet is to be sent again, or the negotiation of the newest key must be complete.
    pub fn next_timeout(&self, hand_window: Duration) -> Option<Time> {
        let newest = self.keys.back().filter(|key| !key.is_established());
        let deadline = newest.map(|key| key.began + hand_window);
        self.keys.iter().filter_map(KeySession::next_timeout).chain(deadline).min()
    }

    /// Whether the negotiation of the newest key takes too long.
    pub fn is_late(&self, now: Time, hand_window: Duration) -> bool {
        self.keys.back().is_some_and(|key| !key.is_established() && now >= key.began + hand_window)
    }
}

fn next_key_id(key_id: u8) -> u8 {
    if key_id == 7 { 1 } else { key_id + 1 }
}

fn previous_key_id(key_id: u8) -> u8 {
    if key_id == 1 { 7 } else { key_id.saturating_sub(1) }
}

fn translate(key_id: u8, event: KeyEvent, events: &mut Vec<ChannelEvent>) {
    match event {
        KeyEvent::Exchanged(theirs) => events.push(ChannelEvent::Exchanged { key_id, theirs }),
        KeyEvent::Command(message) => {
            for command in message.split(|byte| *byte == 0).filter(|command| !command.is_empty()) {
                let command = String::from_utf8_lossy(command);
                // OpenVPN ends some commands with a line break (CVE-2024-5594: others are for programs that read lines).
                let command = command.trim_end_matches(['\r', '\n']);
                events.push(if command.contains(char::is_control) {
                    ChannelEvent::BadCommand
                } else {
                    ChannelEvent::Command(command.to_owned())
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_not_printed() {
        let event = ChannelEvent::Command(String::from("CR_RESPONSE,MTIzNDU2"));
        assert_eq!(format!("{event:?}"), "Command(..)");
    }
}
