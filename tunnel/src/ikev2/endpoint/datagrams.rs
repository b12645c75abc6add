//! Datagrams that have arrived.

use super::{Endpoint, Phase};
use crate::Now;
use crate::ikev2::action::{Outbox, SessionId};
use crate::ikev2::job::{Finished, Whose};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Exchange, Header, Message, Notify, ParseError, Payload};
use crate::ikev2::nat::Path;
use crate::ikev2::setup::{Answer, Inbound, answer_init};

/// Why a datagram came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// It is no message.
    #[error("not an IKEv2 message: {0}")]
    Malformed(#[from] ParseError),
    /// No IKE SA of ours has its SPI.
    #[error("no IKE SA has this SPI")]
    UnknownSpi,
}

impl Endpoint {
    /// Handles a datagram, without the non-ESP marker.
    pub fn handle_datagram(
        &mut self,
        now: Now,
        path: Path,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Ignored> {
        let message =
            Message::parse(bytes).inspect_err(|error| self.refuse(now, path, bytes, *error, out))?;
        let header = message.header;
        let inbound = Inbound { path, bytes, message };
        if is_first(&header) {
            self.handle_first(now, &inbound, out);
            return Ok(());
        }
        let spi = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        let id = self.registry.owner(spi).ok_or(Ignored::UnknownSpi)?;
        self.step(now, id, out, |phase, context| phase.handle(spi, &inbound, context));
        Ok(())
    }

    /// Section 2.5: who begins with a critical payload that we do not know is told so, and who speaks a later version.
    fn refuse(&mut self, now: Now, path: Path, bytes: &[u8], error: ParseError, out: &mut Outbox) {
        let (kind, data, header) = match error {
            ParseError::UnsupportedCritical(kind) => {
                (notify::UNSUPPORTED_CRITICAL_PAYLOAD, vec![kind], Header::parse(bytes))
            }
            ParseError::MajorVersion(3..) => {
                (notify::INVALID_MAJOR_VERSION, Vec::new(), Header::parse_later(bytes))
            }
            _ => return,
        };
        let Ok((header, ..)) = header else { return };
        if is_first(&header) {
            let payload = Payload::Notify(Notify::new(kind, &data));
            let message = crate::ikev2::message::emit_clear(&header.response(), &[payload]);
            let (mut context, ..) = self.split(now, out);
            context.send(path, vec![message]);
        }
    }

    fn handle_first(&mut self, now: Now, inbound: &Inbound<'_>, out: &mut Outbox) {
        let (spi, source) = (inbound.message.header.initiator_spi, inbound.path.remote);
        let known = self.door.find(spi, source);
        let id = SessionId(self.next_id());
        let (mut context, phases, door) = self.split(now, out);
        match known.and_then(|known| phases.get_mut(&known)) {
            Some(Phase::HalfOpen(state)) => return state.answer_again(inbound, &mut context),
            Some(_) => return,
            None => {}
        }
        let gate = door.gate(now.monotonic, source.ip());
        match answer_init(id, inbound, gate, &mut context) {
            Answer::Done => {}
            Answer::Wasted => door.note_wasted(now.monotonic),
            Answer::Begun(phase) => {
                if let Some(guest) = phase.guest() {
                    door.enter(id, guest);
                }
                phases.insert(id, phase);
                self.reschedule(id);
            }
        }
    }

    /// A job is done: the state that it was for goes on.
    pub fn handle_finished(&mut self, now: Now, finished: Finished, out: &mut Outbox) {
        let Finished { session: id, then } = finished;
        let Some(Phase::Working(working)) = self.phases.get_mut(&id) else { return };
        let (waiting, was_guest) = (working.take_waiting(), matches!(working.whose, Whose::Guest(_)));
        self.step(now, id, out, |phase, context| match phase {
            Phase::Working(working) => then(working.meanwhile, context),
            other => Some(other),
        });
        if was_guest && !self.phases.contains_key(&id) {
            self.door.note_wasted(now.monotonic);
        }
        for (path, message) in waiting {
            // What makes no sense now would have made none before.
            let _ = self.handle_datagram(now, path, &message, out);
        }
    }
}

/// Whether a message asks for a new IKE SA.
fn is_first(header: &Header) -> bool {
    header.exchange == Exchange::IkeSaInit
        && header.from_initiator
        && !header.is_response
        && header.responder_spi == 0
        && header.message_id == 0
}
