//! The protected exchange of messages within one IKE SA: message IDs, repeated answers and fragmentation (RFC 7296
//! sections 2.1 to 2.3, RFC 7383).
//!
//! ```text
//! receive   authenticate → put together → compare numbers → Request, Response or nothing
//! request   number → seal → remember, to be sent again
//! respond   seal → remember, for when the request is sent again
//! ```
//! The window is 1 in both directions: a request waits for the answer to the one before it.

use super::config::Patience;
use super::fragments::{Fragment, Reassembly};
use super::keys::{Opener, Role, Sealer, Spis};
use super::limits::{FRAGMENT_SIZE, LONGEST_DATAGRAM};
use super::message::{Body, Envelope, Exchange, Header, Message, Payload, emit};
use super::retransmission::{Datagrams, Overdue, Retransmission};
use crate::Time;
use crypto::Random;

/// The outcome of a received datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Nothing to handle: a fragment of an incomplete message, an old message, or one that does not authenticate.
    Nothing,
    /// A request that was answered before: the answer is sent again.
    Again(Datagrams),
    /// A new request, to be answered by [`Channel::respond`].
    Request(Incoming),
    /// The answer to our request.
    Response(Incoming),
}

/// A message that is authentic and new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    pub(super) exchange: Exchange,
    pub(super) message_id: u32,
    /// The type of the first payload.
    pub(super) first: u8,
    /// The chain of payloads.
    pub(super) chain: Vec<u8>,
}

/// The keys and message IDs of one IKE SA.
pub(super) struct Channel {
    role: Role,
    spis: Spis,
    sealer: Sealer,
    opener: Opener,
    fragments: bool,
    next_request: u32,
    outstanding: Option<(Exchange, u32, Retransmission)>,
    /// When the next request is given up.
    limit: Option<Time>,
    expected: u32,
    answered: Option<Datagrams>,
    requests: Reassembly,
    responses: Reassembly,
}

impl Channel {
    /// Creates the channel of an IKE SA. `first` is the message ID of the initiator's next request: 1 after
    /// IKE_SA_INIT, 0 after rekeying. The responder's first request always has message ID 0 (section 2.2).
    pub(super) fn new(role: Role, spis: Spis, keys: (Sealer, Opener), fragments: bool, first: u32) -> Self {
        let (sealer, opener) = keys;
        let (next_request, expected) = match role {
            Role::Initiator => (first, 0),
            Role::Responder => (0, first),
        };
        Self {
            role,
            spis,
            sealer,
            opener,
            fragments,
            next_request,
            outstanding: None,
            limit: None,
            expected,
            answered: None,
            requests: Reassembly::default(),
            responses: Reassembly::default(),
        }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn spis(&self) -> Spis {
        self.spis
    }

    /// The local SPI, which identifies this SA in received messages.
    pub(super) fn local_spi(&self) -> u64 {
        self.spis.of(self.role)
    }

    /// Whether the peer supports fragmentation.
    pub(super) fn fragments(&self) -> bool {
        self.fragments
    }

    /// Bytes of the fragments held of an incomplete request.
    pub(super) fn held(&self) -> usize {
        self.requests.held()
    }

    /// Drops those fragments.
    pub(super) fn forget_fragments(&mut self) {
        self.requests.clear();
    }

    /// Whether a request is waiting for its answer.
    pub(super) fn is_busy(&self) -> bool {
        self.outstanding.is_some()
    }

    /// Whether that request was sent more than once.
    pub(super) fn is_unanswered(&self) -> bool {
        self.outstanding.as_ref().is_some_and(|(_, _, retransmission)| retransmission.sent > 1)
    }

    /// Reads a message of this SA.
    pub(super) fn receive(&mut self, message: &Message<'_>) -> Received {
        let header = &message.header;
        let from_initiator = self.role == Role::Responder;
        let spis = Spis { initiator: header.initiator_spi, responder: header.responder_spi };
        if spis != self.spis || header.from_initiator != from_initiator {
            return Received::Nothing;
        }
        if header.is_response { self.receive_response(message) } else { self.receive_request(message) }
    }

    fn receive_response(&mut self, message: &Message<'_>) -> Received {
        let header = &message.header;
        let is_expected = self
            .outstanding
            .as_ref()
            .is_some_and(|(exchange, id, _)| (*exchange, *id) == (header.exchange, header.message_id));
        if !is_expected {
            return Received::Nothing;
        }
        let Some((first, chain)) = open(&self.opener, message, &mut self.responses) else {
            return Received::Nothing;
        };
        self.outstanding = None;
        self.responses.clear();
        Received::Response(Incoming {
            exchange: header.exchange,
            message_id: header.message_id,
            first,
            chain,
        })
    }

    fn receive_request(&mut self, message: &Message<'_>) -> Received {
        let header = &message.header;
        if header.message_id.checked_add(1) == Some(self.expected) {
            return self.receive_again(message);
        }
        if header.message_id != self.expected {
            return Received::Nothing;
        }
        let Some((first, chain)) = open(&self.opener, message, &mut self.requests) else {
            return Received::Nothing;
        };
        self.requests.clear();
        Received::Request(Incoming { exchange: header.exchange, message_id: header.message_id, first, chain })
    }

    /// Handles a repetition of the last answered request. Only an authentic one is answered again, and of several
    /// fragments only the first (RFC 7383 section 2.6.1).
    fn receive_again(&mut self, message: &Message<'_>) -> Received {
        let (Body::Encrypted(sealed) | Body::Fragment { number: 1, sealed, .. }) = &message.body else {
            return Received::Nothing;
        };
        match &self.answered {
            Some(datagrams) if self.opener.open(sealed).is_ok() => Received::Again(datagrams.clone()),
            _ => Received::Nothing,
        }
    }

    /// Builds a request; the previous one must have been answered.
    pub(super) fn request(
        &mut self,
        (now, patience): (Time, Patience),
        exchange: Exchange,
        payloads: &[Payload<'_>],
        random: &mut dyn Random,
    ) -> Datagrams {
        debug_assert!(!self.is_busy(), "the window is 1");
        let message_id = self.next_request;
        self.next_request = self.next_request.saturating_add(1);
        let datagrams = self.seal(&self.header(exchange, message_id, false), payloads, random);
        let mut retransmission = Retransmission::new(now, patience, datagrams.clone());
        if let Some(limit) = self.limit.take() {
            retransmission.give_up_at(limit);
        }
        self.outstanding = Some((exchange, message_id, retransmission));
        datagrams
    }

    /// Limits the pending request to `most` transmissions.
    pub(super) fn hurry(&mut self, most: u32) {
        if let Some((_, _, retransmission)) = &mut self.outstanding {
            retransmission.hurry(most);
        }
    }

    /// Gives the pending request up at `time`, or earlier if an earlier time was set, but not before it was sent
    /// again once. If none is pending, this holds for the next one, which may still wait for its keys.
    pub(super) fn give_up_at(&mut self, time: Time) {
        match &mut self.outstanding {
            Some((_, _, retransmission)) => retransmission.give_up_at(time),
            None => self.limit = Some(self.limit.map_or(time, |limit| limit.min(time))),
        }
    }

    /// Sends the request that waits for its answer again at once, and then at the first intervals.
    pub(super) fn hasten(&mut self, now: Time) {
        if let Some((_, _, retransmission)) = &mut self.outstanding {
            retransmission.hasten(now);
        }
    }

    /// Answers the request that was just received.
    pub(super) fn respond(
        &mut self,
        incoming: &Incoming,
        payloads: &[Payload<'_>],
        random: &mut dyn Random,
    ) -> Datagrams {
        let header = self.header(incoming.exchange, incoming.message_id, true);
        let datagrams = self.seal(&header, payloads, random);
        self.expected = self.expected.saturating_add(1);
        self.answered = Some(datagrams.clone());
        datagrams
    }

    fn header(&self, exchange: Exchange, message_id: u32, is_response: bool) -> Header {
        Header {
            initiator_spi: self.spis.initiator,
            responder_spi: self.spis.responder,
            exchange,
            from_initiator: self.role == Role::Initiator,
            is_response,
            message_id,
        }
    }

    fn seal(&mut self, header: &Header, payloads: &[Payload<'_>], random: &mut dyn Random) -> Datagrams {
        let (first, chain) = emit(payloads);
        let length = self.sealer.datagram_length(chain.len());
        if !self.fragments && length > LONGEST_DATAGRAM {
            // The answer is too large for a peer without RFC 7383: it cannot be sent, and the peer will time out.
            return Datagrams::new();
        }
        if !self.fragments || length <= FRAGMENT_SIZE {
            return vec![self.sealer.seal(header, first, Envelope::Whole, &chain, random)];
        }
        let pieces = chain.chunks(self.sealer.fragment_room(FRAGMENT_SIZE));
        let total = pieces.len() as u16;
        let numbered = (1..=total).zip(pieces);
        let seal = |(number, piece)| {
            let first = if number == 1 { first } else { 0 };
            self.sealer.seal(header, first, Envelope::Fragment(number, total), piece, random)
        };
        numbered.map(seal).collect()
    }

    /// When [`Channel::handle_timeout`] has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.outstanding.as_ref().map(|(_, _, retransmission)| retransmission.next)
    }

    /// Sends the pending request again, or gives it up.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<Overdue> {
        self.outstanding.as_mut().and_then(|(_, _, retransmission)| retransmission.handle_timeout(now))
    }
}

/// Decrypts a message or a fragment; returns the chain of payloads when it is complete.
fn open(opener: &Opener, message: &Message<'_>, reassembly: &mut Reassembly) -> Option<(u8, Vec<u8>)> {
    match &message.body {
        Body::Clear(_) => None,
        Body::Encrypted(sealed) => opener.open(sealed).ok().map(|chain| (sealed.first, chain)),
        Body::Fragment { number, total, sealed } => {
            let (number, total, first) = (*number, *total, sealed.first);
            let bytes = opener.open(sealed).ok()?;
            let message_id = message.header.message_id;
            reassembly.add(Fragment { message_id, number, total, first, bytes })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ikev2::keys::{IkeKeys, Nonces};
    use crate::ikev2::message::Payloads;
    use crate::ikev2::message::numbers::payload;
    use crate::ikev2::proposal::{IkeSuite, MessageCipher};
    use crypto::SecretBytes;
    use crypto::cipher::Cipher;
    use crypto::exchange::Group;
    use crypto::prf::Prf;
    use crypto::random::System;
    use std::time::Duration;

    const NOW: Time = Time::from_nanoseconds(1_000_000_000);
    const SPIS: Spis = Spis { initiator: 1, responder: 2 };

    fn channel(role: Role) -> Channel {
        let protection = MessageCipher::Aead(Cipher::Aes128Gcm, 16);
        let suite = IkeSuite { protection, prf: Prf::HmacSha256, group: Group::X25519 };
        let nonces = Nonces { initiator: &[1; 32], responder: &[2; 32] };
        let keys = IkeKeys::first(&suite, role, SPIS, nonces, &SecretBytes::new(vec![3; 32]));
        Channel::new(role, SPIS, (keys.sealer, keys.opener), true, 1)
    }

    fn pair() -> (Channel, Channel) {
        (channel(Role::Initiator), channel(Role::Responder))
    }

    fn request(channel: &mut Channel, size: usize) -> Datagrams {
        let data = vec![7; size];
        let payloads = [Payload::VendorId(&data)];
        channel.request(
            (NOW, Patience::default()),
            Exchange::Informational,
            &payloads,
            &mut System::default(),
        )
    }

    fn receive(channel: &mut Channel, datagrams: &[Vec<u8>]) -> Received {
        let parse = |datagram: &Vec<u8>| channel.receive(&Message::parse(datagram).expect("ours"));
        let mut received: Vec<Received> = datagrams.iter().map(parse).collect();
        let last = received.pop().expect("a message has datagrams");
        assert!(received.iter().all(|one| *one == Received::Nothing), "{received:?}");
        last
    }

    fn taken(received: Received) -> Incoming {
        match received {
            Received::Request(incoming) | Received::Response(incoming) => incoming,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_handled_once_and_answered_alike_each_time() {
        let (mut a, mut b) = pair();
        let question = request(&mut a, 10);
        let incoming = taken(receive(&mut b, &question));
        assert_eq!((incoming.message_id, incoming.first), (1, payload::VENDOR_ID));
        assert_eq!(receive(&mut b, &question), Received::Request(incoming.clone()), "not answered yet");
        let answer = b.respond(&incoming, &[], &mut System::default());
        assert_eq!(receive(&mut b, &question), Received::Again(answer.clone()));
        let response = taken(receive(&mut a, &answer));
        assert_eq!((response.message_id, response.first), (1, payload::NONE));
        assert!(!a.is_busy());
        assert_eq!(receive(&mut a, &answer), Received::Nothing, "an answer to nothing");
    }

    /// strongSwan's charon counts so, and its requests were not answered.
    #[test]
    fn the_first_request_of_the_responder_has_the_number_0() {
        let (mut a, mut b) = pair();
        let question = request(&mut b, 1);
        assert_eq!(Message::parse(&question[0]).expect("ours").header.message_id, 0);
        let incoming = taken(receive(&mut a, &question));
        let answer = a.respond(&incoming, &[], &mut System::default());
        assert_eq!(taken(receive(&mut b, &answer)).message_id, 0);
    }

    #[test]
    fn numbers_beyond_the_window_and_answers_of_others_are_nothing() {
        let (mut a, mut b) = pair();
        let first = request(&mut a, 1);
        a.outstanding = None;
        let second = request(&mut a, 1);
        assert_eq!(receive(&mut b, &second), Received::Nothing, "the first is missing");
        let incoming = taken(receive(&mut b, &first));
        let answer = b.respond(&incoming, &[], &mut System::default());
        assert_eq!(receive(&mut a, &answer), Received::Nothing, "it is not that of the second");
        assert!(a.is_busy());
    }

    #[test]
    fn a_damaged_repetition_is_not_answered() {
        let (mut a, mut b) = pair();
        let mut question = request(&mut a, 10);
        let incoming = taken(receive(&mut b, &question));
        b.respond(&incoming, &[], &mut System::default());
        *question[0].last_mut().expect("not empty") ^= 1;
        assert_eq!(receive(&mut b, &question), Received::Nothing);
    }

    #[test]
    fn reflected_messages_are_nothing() {
        let (mut a, _) = pair();
        let question = request(&mut a, 10);
        assert_eq!(receive(&mut a, &question), Received::Nothing);
    }

    #[test]
    fn a_large_message_travels_in_fragments() {
        let (mut a, mut b) = pair();
        let question = request(&mut a, 5000);
        assert_eq!(question.len(), 5);
        assert!(question.iter().all(|datagram| datagram.len() <= FRAGMENT_SIZE));
        let incoming = taken(receive(&mut b, &question));
        let payloads = Payloads::parse(incoming.first, &incoming.chain).expect("whole");
        assert_eq!(payloads.vendor_ids, [&[7; 5000][..]]);
        let answer = b.respond(&incoming, &[Payload::VendorId(&[1; 3000])], &mut System::default());
        // A repeated request is answered once, not once for each fragment.
        assert_eq!(receive(&mut b, &question[..1]), Received::Again(answer.clone()));
        assert_eq!(receive(&mut b, &question[1..]), Received::Nothing);
        assert_eq!(taken(receive(&mut a, &answer)).first, payload::VENDOR_ID);
    }

    #[test]
    fn without_fragments_a_large_message_is_one_datagram() {
        let (mut a, _) = pair();
        a.fragments = false;
        assert_eq!(request(&mut a, 5000).len(), 1);
    }

    #[test]
    fn what_no_datagram_carries_is_not_sent() {
        let (mut a, _) = pair();
        a.fragments = false;
        assert_eq!(request(&mut a, 65_000).len(), 1);
        a.outstanding = None;
        assert_eq!(request(&mut a, 65_500).len(), 0);
    }

    #[test]
    fn a_request_is_repeated_ever_slower_and_then_given_up() {
        let (mut a, _) = pair();
        let question = request(&mut a, 1);
        let mut waits = Vec::new();
        let (mut now, mut last) = (NOW, NOW);
        loop {
            now = a.next_timeout().expect("under way").max(now);
            waits.push((now - last).as_millis());
            last = now;
            match a.handle_timeout(now).expect("due") {
                Overdue::Again(datagrams) => assert_eq!(datagrams, question, "the very same bytes"),
                Overdue::Dead => break,
            }
            assert_eq!(a.handle_timeout(now), None);
        }
        assert_eq!(waits, [1000, 1800, 3240, 5832, 10_497, 18_895, 34_012, 61_222]);
    }

    #[test]
    fn a_request_is_given_up_at_the_given_time() {
        let (mut a, _) = pair();
        let question = request(&mut a, 1);
        a.give_up_at(NOW + Duration::from_secs(2));
        let first = a.next_timeout().expect("under way");
        assert_eq!(a.handle_timeout(first), Some(Overdue::Again(question)));
        assert_eq!(a.next_timeout(), Some(NOW + Duration::from_secs(2)));
        assert_eq!(a.handle_timeout(NOW + Duration::from_secs(2)), Some(Overdue::Dead));
    }

    #[test]
    fn however_soon_it_is_to_be_given_up_it_is_sent_twice() {
        let (mut a, _) = pair();
        let question = request(&mut a, 1);
        a.give_up_at(NOW + Duration::from_millis(500));
        let first = a.next_timeout().expect("under way");
        assert_eq!(a.handle_timeout(first), Some(Overdue::Again(question)));
        assert_eq!(a.next_timeout(), Some(NOW + Duration::from_millis(2800)));
        assert_eq!(a.handle_timeout(NOW + Duration::from_millis(2799)), None);
        assert_eq!(a.handle_timeout(NOW + Duration::from_millis(2800)), Some(Overdue::Dead));
    }
}
