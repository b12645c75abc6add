//! Packets of no session: first packets are answered without state, and third packets begin a session.

use super::begins::source;
use super::session::{Session, Stage};
use super::{Server, ServerWrap};
use crate::Now;
use crate::openvpn::action::{Action, Cause, Outbox};
use crate::openvpn::channel::{Announcement, Channel, PacketError};
use crate::openvpn::packet::{Body, Lead, Opcode, SessionId};
use crate::openvpn::pair;
use crate::openvpn::peer::Peer;
use crate::openvpn::peer_address::PeerAddress;
use crate::openvpn::wrap::v2::Metadata;
use crate::openvpn::wrap::{Opened, PacketId, Role, WrapError, WrapKeys, Wrapper};
use arrayvec::ArrayVec;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// In the number of a client's first packet: it can send its wrapped key twice.
const EARLY_NEGOTIATION: u32 = 0x0f;
/// TLV in our reset: send the wrapped key again.
const RESEND_KEY: [u8; 6] = [0, 1, 0, 2, 0, 1];

/// How the packets of a client without a session are wrapped.
struct FirstKeys<'a> {
    keys: WrapKeys,
    /// The packet without the client's wrapped key.
    packet: &'a [u8],
    /// Of the client's key.
    metadata: Option<Metadata>,
}

impl Server {
    pub(super) fn handle_unknown(
        &mut self,
        now: Now,
        from: PeerAddress,
        lead: Lead,
        packet: &[u8],
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        if lead.key_id != 0 {
            return Err(PacketError::OtherSession);
        }
        let FirstKeys { keys, packet, metadata } = self.first_keys(now, lead, packet)?;
        let opened = keys.open(packet)?;
        let body = Body::parse(lead.opcode, &opened.body)?;
        if lead.opcode.is_client_reset() {
            // With no wrap here, a client with tls-auth or tls-crypt is told by the form of its packet only.
            if body.message != Some(0) || !body.acks.is_empty() {
                return Err(PacketError::Wrap(WrapError::Malformed));
            }
            return self.answer_first(now, from, &opened, (keys, metadata), out);
        }
        let may_begin = matches!(lead.opcode, Opcode::Control | Opcode::ControlWithKey | Opcode::Ack)
            && body.message.is_none_or(|message| message <= 1)
            && body.acks.iter().all(|ack| *ack <= 1);
        let cookie = body.receiver.filter(|_| may_begin).ok_or(PacketError::OtherSession)?;
        if !self.cookie.verify(now.monotonic, opened.session, from, cookie) {
            return Err(PacketError::OtherSession);
        }
        self.begin(now, from, cookie, &opened, (keys, metadata), out)
    }

    /// The keys of a client without a session, and the packet without its wrapped key.
    fn first_keys<'a>(&self, now: Now, lead: Lead, packet: &'a [u8]) -> Result<FirstKeys<'a>, PacketError> {
        let has_key = matches!(lead.opcode, Opcode::ClientResetV3 | Opcode::ControlWithKey);
        match &self.wrap {
            ServerWrap::Shared(keys) if !has_key => {
                Ok(FirstKeys { keys: keys.clone(), packet, metadata: None })
            }
            ServerWrap::PerClient { key, max_age, .. } if has_key => {
                let (packet, client, metadata) = key.unwrap(packet)?;
                if max_age.is_some_and(|max_age| is_older(metadata.as_ref(), now, max_age)) {
                    return Err(PacketError::OldKey);
                }
                Ok(FirstKeys { keys: WrapKeys::tls_crypt(client, Role::Server), packet, metadata })
            }
            // A client with another wrap, or a later packet of a session that has ended.
            _ => Err(PacketError::Wrap(WrapError::NotAuthentic)),
        }
    }

    fn answer_first(
        &mut self,
        now: Now,
        from: PeerAddress,
        opened: &Opened,
        (keys, metadata): (WrapKeys, Option<Metadata>),
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        if !self.may_answer(now.monotonic) {
            return Err(PacketError::TooMany);
        }
        let is_v3 = opened.lead.opcode == Opcode::ClientResetV3;
        let can_resend = opened.id.is_some_and(|id| id.number >> 24 == EARLY_NEGOTIATION);
        if let (true, false, ServerWrap::PerClient { allow_without_cookie, .. }) =
            (is_v3, can_resend, &self.wrap)
        {
            if !allow_without_cookie {
                return Err(PacketError::NoCookie);
            }
            let local = SessionId::random(&mut *self.random);
            return self.begin(now, from, local, opened, (keys, metadata), out);
        }
        let local = self.cookie.create(now.monotonic, opened.session, from);
        let acks = ArrayVec::from_iter([0]);
        let payload: &[u8] = if is_v3 { &RESEND_KEY } else { &[] };
        let body = Body { acks, receiver: Some(opened.session), message: Some(0), payload };
        let lead = Lead { opcode: Opcode::ServerReset, key_id: 0 };
        let id = PacketId { number: 1, time: now.wall.as_secs() as u32 };
        let packet = keys.seal(lead, local, id, &body.emit());
        out.push(Action::Transmit { session: None, to: from, packet });
        Ok(())
    }

    /// Begins a session with its first packet that is not answered without state.
    fn begin(
        &mut self,
        now: Now,
        from: PeerAddress,
        local: SessionId,
        opened: &Opened,
        (keys, metadata): (WrapKeys, Option<Metadata>),
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        let source = source(from);
        let has_cookie = !opened.lead.opcode.is_client_reset();
        let proof = if has_cookie { local } else { opened.session };
        let crowd = self.begins.admit(now.monotonic, source, proof)?;
        // Number 1 was the answer without state.
        let wrapper = Wrapper::new(keys, PacketId { number: 1, time: now.wall.as_secs() as u32 });
        let wrapper = wrapper.limited_to(self.control_packet);
        let options = String::from("V4,dev-type tun,key-method 2,tls-server");
        let peer_info = match &self.only {
            Some(only) => pair::announcement(self.features, &self.ciphers, only.mtu, &[]),
            None => String::new(),
        };
        let announcement = Announcement { options, peer_info, ..Announcement::default() };
        let mut channel = Channel::new(self.tls.clone(), wrapper, local, announcement);
        let begun = if has_cookie {
            channel.answer(now, opened.session, &mut *self.random)
        } else {
            channel.answer_at_once(now, opened.session, &mut *self.random)
        };
        let mut events = Vec::new();
        let handled = match begun {
            Ok(()) => channel.handle_opened(now, opened, &mut *self.random, &mut events),
            Err(_) => Err(PacketError::NoTls),
        };
        if has_cookie && let Some(answers) = &mut self.answers {
            // The limit is about answers to forged addresses, and this one is not.
            answers.put_back();
        }
        if let Err(error) = handled {
            self.begins.no_longer_pending(Some(source));
            return Err(error);
        }
        if let Some(most) = crowd {
            self.make_room(now, source, most, out);
        }
        let number = self.new_number();
        let engine = Arc::clone(&self.engine);
        let peer = Peer::new(now, number, from, channel, Role::Server, engine, self.timing);
        self.sessions.insert(
            number,
            Session {
                peer,
                stage: Stage::Handshake,
                is_admitted: false,
                identity: None,
                pending: Some(source),
                begun: now.monotonic,
                key_metadata: metadata,
            },
        );
        self.by_remote.insert((from, opened.session), number);
        self.handle_events(now, number, events, out);
        Ok(())
    }

    /// Ends the oldest session that has not authenticated, of the sources with so many of them, but not of this one.
    fn make_room(&mut self, now: Now, but: IpAddr, most: usize, out: &mut Outbox) {
        let pending = self
            .sessions
            .iter()
            .filter_map(|(number, session)| Some((session.begun, *number, session.pending?)));
        let of_crowd =
            pending.filter(|(.., source)| *source != but && self.begins.of_source(*source) == most);
        if let Some((_, number, _)) = of_crowd.min() {
            self.end(now, number, Cause::Crowd, out);
        }
    }
}

/// Whether a client's key is older than this, or does not say when it was made. One from the future is not: clocks differ.
fn is_older(metadata: Option<&Metadata>, now: Now, max_age: Duration) -> bool {
    match metadata {
        Some(Metadata::Made(time)) => now.wall.saturating_sub(*time) > max_age,
        Some(Metadata::User(_) | Metadata::Other(..)) | None => true,
    }
}
