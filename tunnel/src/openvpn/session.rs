//! The negotiation of one key: reset, TLS handshake, exchange of key method messages, then commands on the same TLS.
//!
//! ```text
//! received message → acknowledgments → in order → TLS → KeyEvent
//! TLS → chunks → send window → packet, with acknowledgments
//! ```

use super::key_method::{KeyMethod, KeySource};
use super::limits::{LEAST_CHUNK, MAX_ACKS, MAX_BACKLOG, MAX_CARRIED_ACKS};
use super::packet::{Body, Lead, Opcode, SessionId};
use super::reliable::{Received, Receiver, Sender, Transmission};
use super::tls::{Tls, TlsError};
use super::wrap::Role;
use crate::Time;
use std::collections::VecDeque;
use zeroize::Zeroizing;

/// What happened to a key.
pub enum KeyEvent {
    /// Both sides have sent their key method messages. This is the peer's.
    Exchanged(Box<KeyMethod>),
    /// A command of the peer.
    Command(Zeroizing<Vec<u8>>),
}

/// Why the negotiation of a key ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// TLS failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The peer's key method message is malformed.
    #[error("the peer's key exchange message is malformed, or not of key method 2")]
    BadKeyMethod,
    /// The peer does not acknowledge what is sent.
    #[error("more than {MAX_BACKLOG} bytes of control messages wait for the peer's acknowledgments")]
    TooMuchToSend,
    /// Our key method message is too long.
    #[error("user name, password and peer information are too long for one message")]
    TooMuchInformation,
}

/// How the negotiation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// With our reset, of this type.
    Reset(Opcode),
    /// The resets of both sides were exchanged without state.
    AfterResets,
}

/// The negotiation of one key.
pub struct KeySession {
    /// The key, 0 to 7.
    pub key_id: u8,
    /// When the negotiation began.
    pub began: Time,
    role: Role,
    tls: Tls,
    sender: Sender,
    receiver: Receiver,
    /// Bytes of TLS that do not fit the send window yet.
    backlog: VecDeque<u8>,
    /// The first packet after the reset carries the client's wrapped key of this length.
    with_key: Option<usize>,
    peer_reset: bool,
    ours: KeyMethod,
    /// Bytes of TLS in one packet.
    room: usize,
    is_sent: bool,
    their_source: Option<KeySource>,
    /// Whether data keys were installed, and the caller of a server has accepted them.
    pub is_installed: bool,
}

impl KeySession {
    /// Begins. `ours`: the message for the peer; `room`: the bytes of TLS in one packet.
    pub fn new(
        now: Time,
        key_id: u8,
        role: Role,
        tls: Tls,
        beginning: Beginning,
        ours: KeyMethod,
        room: usize,
    ) -> Self {
        let mut sender = Sender::after_reset();
        let mut receiver = Receiver::after_reset();
        if let Beginning::Reset(opcode) = beginning {
            (sender, receiver) = (Sender::default(), Receiver::default());
            sender.push(now, opcode, Vec::new());
        }
        Self {
            key_id,
            began: now,
            role,
            tls,
            sender,
            receiver,
            backlog: VecDeque::new(),
            with_key: None,
            peer_reset: beginning == Beginning::AfterResets,
            ours,
            room,
            is_sent: false,
            their_source: None,
            is_installed: false,
        }
    }

    /// The next packet with bytes of TLS must carry the wrapped key again.
    pub fn resend_key(&mut self, length: usize) {
        self.with_key = Some(length);
    }

    /// Whether both sides have sent their key method messages.
    pub fn is_established(&self) -> bool {
        self.their_source.is_some() && self.is_sent
    }

    /// Whether the peer has begun the negotiation, too.
    pub fn is_answered(&self) -> bool {
        self.peer_reset
    }

    /// TLS, for what it exports and the peer's certificates.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The random numbers of client and server, if both are known.
    pub fn sources(&self) -> Option<[&KeySource; 2]> {
        let theirs = self.their_source.as_ref()?;
        Some(match self.role {
            Role::Client => [&self.ours.source, theirs],
            Role::Server => [theirs, &self.ours.source],
        })
    }

    /// Takes the body of an authentic packet, and returns the first message's payload if it was the peer's reset.
    pub fn receive(
        &mut self,
        now: Time,
        opcode: Opcode,
        body: &Body<'_>,
        events: &mut Vec<KeyEvent>,
    ) -> Result<Option<Vec<u8>>, KeyError> {
        self.sender.acknowledge(now, &body.acks);
        let mut reset = None;
        if let Some(message) = body.message {
            let received = self.receiver.accept(message, opcode, body.payload);
            while let Some((opcode, payload)) =
                (received == Received::New).then(|| self.receiver.deliver()).flatten()
            {
                match opcode {
                    Opcode::Control | Opcode::ControlWithKey if self.peer_reset => {
                        self.tls.receive(&payload)?;
                    }
                    _ if self.peer_reset || !self.is_expected_reset(opcode) => {}
                    _ => {
                        self.peer_reset = true;
                        reset = Some(payload);
                    }
                }
            }
        }
        self.advance(events)?;
        self.take_records()?;
        Ok(reset)
    }

    fn is_expected_reset(&self, opcode: Opcode) -> bool {
        match (self.key_id, self.role) {
            (0, Role::Client) => opcode == Opcode::ServerReset,
            (0, Role::Server) => opcode.is_client_reset(),
            _ => opcode == Opcode::SoftReset,
        }
    }

    /// Sends a command, which gets its final NUL here.
    pub fn send_command(&mut self, command: &str) -> Result<(), KeyError> {
        self.tls.write(&[command.as_bytes(), &[0]].concat())?;
        self.take_records()
    }

    /// A peer that acknowledges nothing could otherwise occupy any amount of memory.
    fn take_records(&mut self) -> Result<(), KeyError> {
        self.backlog.extend(self.tls.transmit());
        if self.backlog.len() > MAX_BACKLOG { Err(KeyError::TooMuchToSend) } else { Ok(()) }
    }

    fn advance(&mut self, events: &mut Vec<KeyEvent>) -> Result<(), KeyError> {
        if self.tls.is_handshaking() {
            return Ok(());
        }
        if self.role == Role::Client {
            self.send_key_method()?;
        }
        // The receive window bounds their number, and TLS has decrypted them already.
        while let Some(message) = self.tls.read()? {
            if self.their_source.is_some() {
                events.push(KeyEvent::Command(message));
                continue;
            }
            let sender = if self.role == Role::Client { Role::Server } else { Role::Client };
            let theirs = KeyMethod::parse(sender, &message).map_err(|_| KeyError::BadKeyMethod)?;
            self.their_source = Some(theirs.source.clone());
            self.send_key_method()?;
            events.push(KeyEvent::Exchanged(Box::new(theirs)));
        }
        Ok(())
    }

    fn send_key_method(&mut self) -> Result<(), KeyError> {
        if self.is_sent {
            return Ok(());
        }
        let message = self.ours.emit(self.role).ok_or(KeyError::TooMuchInformation)?;
        self.tls.write(&message)?;
        self.is_sent = true;
        Ok(())
    }

    /// The next packet: its leading byte and its body. `receiver`: the peer's session ID, once it is known.
    pub fn transmit(&mut self, now: Time, receiver: Option<SessionId>) -> Option<(Lead, Vec<u8>)> {
        self.fill_window(now);
        let may_acknowledge = receiver.is_some();
        let (opcode, message, payload, most) = match self.sender.transmit(now) {
            Some(Transmission { opcode, message, payload }) => {
                (opcode, Some(message), payload, MAX_CARRIED_ACKS)
            }
            None if may_acknowledge && self.receiver.owes_acks() => (Opcode::Ack, None, Vec::new(), MAX_ACKS),
            None => return None,
        };
        let acks = self.receiver.take_acks(if may_acknowledge { most } else { 0 });
        let body = Body { acks, receiver, message, payload: &payload };
        Some((Lead { opcode, key_id: self.key_id }, body.emit()))
    }

    fn fill_window(&mut self, now: Time) {
        self.backlog.extend(self.tls.transmit());
        // TLS begins when the resets are exchanged.
        let is_begun = self.peer_reset && self.sender.is_acknowledged(0);
        while is_begun && self.sender.has_room() && !self.backlog.is_empty() {
            let key = self.with_key.take();
            let length = self.room.saturating_sub(key.unwrap_or(0)).max(LEAST_CHUNK).min(self.backlog.len());
            let opcode = if key.is_some() { Opcode::ControlWithKey } else { Opcode::Control };
            self.sender.push(now, opcode, self.backlog.drain(..length).collect());
        }
    }

    /// When a message is to be sent again.
    pub fn next_timeout(&self) -> Option<Time> {
        self.sender.next_timeout()
    }
}
