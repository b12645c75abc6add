//! Received handshake messages.

use super::{Device, DeviceAction, Outbox, PeerId, new_index, retire, static_static};
use crate::Now;
use crate::wireguard::cookie::{Authenticated, Proof};
use crate::wireguard::limits::{ERASE_AFTER_TIME, INITIATION_INTERVAL};
use crate::wireguard::noise::{self, SessionKeys};
use crate::wireguard::peer::{Role, Session};
use crate::wireguard::report::Event;
use packet::DropReason;
use packet::header::wireguard::{CookieReply, Initiation, Message, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use zerocopy::IntoBytes;

impl Device {
    /// Handles a handshake message or cookie reply from `source`; returns the peer that sent it.
    ///
    /// With `under_load`, senders must prove their addresses first.
    pub fn handle_datagram(
        &mut self,
        now: Now,
        source: SocketAddr,
        bytes: &[u8],
        under_load: bool,
        out: &mut Outbox,
    ) -> Result<PeerId, DropReason> {
        let message = Message::parse(bytes).filter(|_| self.running).ok_or(DropReason::NotOurs)?;
        let peer = match message {
            Message::Initiation(message) => {
                self.admit(now, source, message, under_load, out)?;
                self.handle_initiation(now, source, message, out)
            }
            Message::Response(message) => {
                self.admit(now, source, message, under_load, out)?;
                self.handle_response(now, source, message, out)
            }
            Message::CookieReply(message) => self.handle_cookie_reply(now, message),
            Message::Data(..) => Err(DropReason::NotOurs),
        }?;
        self.reschedule(now.monotonic, peer);
        Ok(peer)
    }

    /// Applies the cheap checks: the MACs, and under load also the proof of address and the rate limit of the source.
    fn admit(
        &mut self,
        now: Now,
        source: SocketAddr,
        message: &impl Authenticated,
        under_load: bool,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let identity = self.identity.as_mut().ok_or(DropReason::BadMac)?;
        match identity.checker.check(message, source, now.monotonic) {
            Proof::Nothing => {
                out.push(DeviceAction::Report(Event::NotForUs));
                Err(DropReason::BadMac)
            }
            _ if !under_load => Ok(()),
            Proof::OwnsAddress if self.limiter.allow(source.ip(), now.monotonic) => Ok(()),
            Proof::OwnsAddress => Err(DropReason::RateLimited),
            Proof::KnowsKey => {
                let reply = identity.checker.create_reply(message, source, now.monotonic, &mut *self.random);
                out.push(DeviceAction::Reply { peer: None, message: reply.as_bytes().to_vec() });
                Err(DropReason::CookieRequired)
            }
        }
    }

    fn handle_initiation(
        &mut self,
        now: Now,
        source: SocketAddr,
        message: &Initiation,
        out: &mut Outbox,
    ) -> Result<PeerId, DropReason> {
        let identity = self.identity.as_ref().ok_or(DropReason::BadMac)?;
        let received =
            noise::consume_initiation(&identity.key, message).map_err(|_| DropReason::BadHandshake)?;
        let Some(&id) = self.by_key.get(&received.claimed) else {
            out.push(DeviceAction::Report(Event::UnknownPeer(received.claimed)));
            return Err(DropReason::BadHandshake);
        };
        let peer = self.peers.get_mut(&id).expect("every key in by_key has its peer");
        let static_static = static_static(peer, &identity.key)?;
        let initiation = received.authenticate(static_static).map_err(|_| DropReason::BadHandshake)?;
        if peer.newest.is_some_and(|newest| initiation.timestamp <= newest) {
            peer.trouble.stale += 1;
            return Err(DropReason::ReplayedHandshake);
        }
        if peer.consumed.is_some_and(|last| now.monotonic - last < INITIATION_INTERVAL) {
            return Err(DropReason::RateLimited);
        }
        peer.newest = Some(initiation.timestamp);
        peer.consumed = Some(now.monotonic);
        peer.learned(now.monotonic);
        let elsewhere = peer.failover.called(now.monotonic, source);
        out.push(DeviceAction::Learn { peer: id });

        let index = new_index(&mut self.indices, &mut *self.random, id, self.receivers);
        let (mut response, keys) = initiation
            .create_response(&peer.preshared, index, &mut *self.random)
            .map_err(|_| DropReason::BadHandshake)
            .inspect_err(|_| _ = self.indices.remove(&index))?;
        peer.trouble.unconfirmed += 1;
        peer.cookies.stamp(&mut response, now.monotonic);
        peer.activity.sent(now.monotonic);
        // A response counts as a handshake message: an initiation may only follow after the timeout.
        peer.initiated = Some(now.monotonic);
        self.install(now, id, &keys, Role::Responder, out);
        out.push(DeviceAction::Reply { peer: Some(id), message: response.as_bytes().to_vec() });
        if let Some(remote) = elsewhere {
            self.redirect(id, remote, out);
            self.send_initiation(now, id, out);
        }
        Ok(id)
    }

    fn handle_response(
        &mut self,
        now: Now,
        source: SocketAddr,
        message: &Response,
        out: &mut Outbox,
    ) -> Result<PeerId, DropReason> {
        let identity = self.identity.as_ref().ok_or(DropReason::BadMac)?;
        let index = message.receiver.get();
        let id = *self.indices.get(&index).ok_or(DropReason::UnknownSa)?;
        let peer = self.peers.get_mut(&id).expect("every index has its peer");
        let awaiting = peer.awaiting.as_ref().filter(|awaiting| awaiting.local_index() == index);
        let awaiting = awaiting.ok_or(DropReason::BadHandshake)?;
        let keys = awaiting
            .consume_response(&identity.key, &peer.preshared, message)
            .map_err(|_| DropReason::BadHandshake)
            .inspect_err(|_| peer.trouble.bad_responses += 1)?;
        // The index is kept as that of the session.
        peer.awaiting = None;
        peer.learned(now.monotonic);
        let has_returned = peer.failover.answered(now.monotonic, source);
        self.install(now, id, &keys, Role::Initiator, out);
        // After the key: until then packets under the older one would move the endpoint back.
        out.push(DeviceAction::Learn { peer: id });
        if has_returned {
            out.push(DeviceAction::Report(Event::Returned(id)));
        }
        self.finished(now, id, out);
        out.push(DeviceAction::Flush { peer: id, confirm: true });
        Ok(id)
    }

    fn handle_cookie_reply(&mut self, now: Now, message: &CookieReply) -> Result<PeerId, DropReason> {
        let id = *self.indices.get(&message.receiver.get()).ok_or(DropReason::UnknownSa)?;
        let peer = self.peers.get_mut(&id).expect("every index has its peer");
        // The retransmission timer repeats the handshake, then with the cookie.
        if peer.cookies.consume_reply(message, now.monotonic) {
            Ok(id)
        } else {
            Err(DropReason::BadHandshake)
        }
    }

    /// Creates a session from the keys and passes it to the data path.
    fn install(&mut self, now: Now, id: PeerId, keys: &SessionKeys, role: Role, out: &mut Outbox) {
        self.settle(now, id, out);
        let session = Session::new(keys, role, now.monotonic, &*self.engine);
        let (inbound, outbound) = (Arc::clone(&session.inbound), Arc::clone(&session.outbound));
        let peer = self.peers.get_mut(&id).expect("the caller holds its id");
        peer.erase = Some(now.monotonic + ERASE_AFTER_TIME);
        let next = (role == Role::Responder).then(|| Arc::clone(&outbound));
        out.push(DeviceAction::Install { peer: id, sa: inbound, next });
        let ended = match role {
            Role::Initiator => {
                out.push(DeviceAction::Use { peer: id, sa: Some(outbound) });
                peer.sessions.initiated(session)
            }
            Role::Responder => peer.sessions.responded(session),
        };
        retire(&mut self.indices, ended, out);
    }
}
