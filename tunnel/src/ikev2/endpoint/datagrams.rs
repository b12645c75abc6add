//! Handling of received datagrams.

use super::{Endpoint, Phase};
use crate::Now;
use crate::ikev2::action::Outbox;
use crate::ikev2::cause::Cause;
use crate::ikev2::ids::SessionId;
use crate::ikev2::inbound::Inbound;
use crate::ikev2::job::Finished;
use crate::ikev2::limits::LONGEST_FIRST;
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Exchange, Header, Message, Notify, ParseError, Payload, emit_clear};
use crate::ikev2::nat::Path;
use crate::ikev2::setup::responder::{Answer, answer_init};

/// Bytes of a Notify payload without data.
const EMPTY_NOTIFY: usize = 8;

/// The reason why a datagram was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// It is not a valid message.
    #[error("not an IKEv2 message: {0}")]
    Malformed(#[from] ParseError),
    /// Its SPI belongs to no IKE SA.
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
        let header = match Header::parse(bytes) {
            Ok((header, ..)) => header,
            Err(error) => {
                self.refuse_version(now, path, bytes, error, out);
                return Err(error.into());
            }
        };
        if is_first(&header) {
            return self.handle_first(now, path, &header, bytes, out);
        }
        let inbound = Inbound { path, bytes, message: Message::parse(bytes)? };
        let spi = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        let id = self.registry.owner(spi).ok_or(Ignored::UnknownSpi)?;
        self.step(now, id, out, |phase, context| phase.handle(spi, &inbound, context));
        Ok(())
    }

    /// Parses a first message, and answers it if it is well-formed. One that exceeds the size limit is not parsed.
    fn handle_first(
        &mut self,
        now: Now,
        path: Path,
        header: &Header,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Ignored> {
        let read = if bytes.len() > LONGEST_FIRST { Err(ParseError::TooMany) } else { Message::parse(bytes) };
        match read {
            Ok(message) => self.answer_first(now, &Inbound { path, bytes, message }, out),
            Err(error) => {
                if let ParseError::UnsupportedCritical(kind) = error {
                    let kind = [kind];
                    let refusal = Notify::new(notify::UNSUPPORTED_CRITICAL_PAYLOAD, &kind);
                    self.refuse_first(now, path, &header.response(), refusal, out);
                } else {
                    self.half_open.note_wasted(now.monotonic, path.remote.ip(), false);
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Answers an unsupported version: a later one with the latest version that we support (section 2.5), IKEv1 with
    /// a refusal. Responses and messages after the first are ignored.
    fn refuse_version(&mut self, now: Now, path: Path, bytes: &[u8], error: ParseError, out: &mut Outbox) {
        let answer = match error {
            ParseError::MajorVersion(1) => answer_to_version_1(bytes),
            ParseError::MajorVersion(3..) => answer_to_later_version(bytes),
            _ => None,
        };
        let Some(answer) = answer else { return };
        self.refuse_first(now, path, &answer, Notify::new(notify::INVALID_MAJOR_VERSION, &[]), out);
        if error == ParseError::MajorVersion(1) {
            let (mut context, ..) = self.split(now, out);
            let candidates = context.connections.on(path);
            let connection = candidates.first().filter(|_| candidates.count() == 1).map(|(id, _)| id);
            context.suspect(connection, path, || Cause::Version1);
        }
    }

    /// Answers a first message that cannot be parsed, unless many are half open.
    fn refuse_first(&mut self, now: Now, path: Path, answer: &Header, refusal: Notify<'_>, out: &mut Outbox) {
        let source = path.remote.ip();
        let (mut context, _, half_open) = self.split(now, out);
        if !half_open.admission(now.monotonic, source).wants_cookie {
            context.send(path, vec![emit_clear(answer, &[Payload::Notify(refusal)])]);
        }
        half_open.note_wasted(now.monotonic, source, false);
    }

    fn answer_first(&mut self, now: Now, inbound: &Inbound<'_>, out: &mut Outbox) {
        let (spi, source) = (inbound.message.header.initiator_spi, inbound.path.remote);
        let known = self.half_open.find(spi, source);
        let id = SessionId(self.next_id());
        let (mut context, phases, half_open) = self.split(now, out);
        match known.and_then(|known| phases.get_mut(&known)) {
            Some(Phase::HalfOpen(state)) => return state.answer_again(inbound, &mut context),
            Some(_) => return,
            None => {}
        }
        let admission = half_open.admission(now.monotonic, source.ip());
        match answer_init(id, inbound, admission, &mut context) {
            Answer::Done => {}
            Answer::Wasted(is_proven) => half_open.note_wasted(now.monotonic, source.ip(), is_proven),
            Answer::Begun(state) => {
                half_open.enter(now.monotonic, id, state.entry());
                phases.insert(id, Phase::Answering(state));
                self.reschedule(id);
            }
        }
    }

    /// Resumes the state whose job has finished.
    pub fn handle_finished(&mut self, now: Now, finished: Finished, out: &mut Outbox) {
        let Finished { session: id, number, output } = finished;
        // What waited for it may have ended.
        let Some(phase) = self.phases.get_mut(&id) else { return };
        let (waiting, entry) = (phase.take_waiting(), phase.entry());
        self.step(now, id, out, |phase, context| phase.handle_finished(number, output, context));
        if let Some(entry) = entry.filter(|_| !self.phases.contains_key(&id)) {
            self.half_open.note_wasted_entry(now.monotonic, entry);
        }
        for (path, message) in waiting {
            // The messages that waited are handled now; an invalid one is ignored as usual.
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

/// The header of the answer to a first message of a later version, whose header has the same layout.
fn answer_to_later_version(bytes: &[u8]) -> Option<Header> {
    let (header, ..) = Header::parse_later(bytes).ok()?;
    is_first(&header).then(|| header.response())
}

/// The header of the answer to the first message of IKEv1's main or aggressive mode: the same SPIs, in an
/// INFORMATIONAL exchange (section 1.5). The answer is never larger than the message, as the source address may be
/// forged.
fn answer_to_version_1(bytes: &[u8]) -> Option<Header> {
    const MAIN_AND_AGGRESSIVE: [u8; 2] = [2, 4];
    let (header, ..) = Header::parse_version_1(bytes).ok()?;
    let begins = header.responder_spi == 0 && header.message_id == 0 && !header.is_response;
    let is_first = begins && MAIN_AND_AGGRESSIVE.contains(&header.exchange.number());
    let answer = Header { exchange: Exchange::Informational, ..header.response() };
    (is_first && bytes.len() >= Header::LENGTH + EMPTY_NOTIFY).then_some(answer)
}
