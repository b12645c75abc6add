//! One WireGuard peer: its sessions, its handshakes and its timers.
//!
//! ```text
//! timers, handshake messages, events of sealing and opening ──> Device ──> actions: frames to send, keys to use
//! ```

use super::seal::seal;
use crate::rfc2544::outer::{OuterAddresses, ROOM, finish_udp, prepend_ether, prepend_udp};
use crypto::{Engine, PublicKey, Secret, random};
use packet::Batch;
use packet::header::ip::UDP;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::limits::HANDSHAKE_DS_FIELD;
use tunnel::wireguard::{Activity, Device, DeviceAction, PeerId};
use tunnel::{InboundSa, Now, OutboundSa, Time};

/// A key of this age is renewed before a trial, so that a trial of a minute needs no other.
const RENEWED_BEFORE_TRIALS: Duration = Duration::from_secs(60);
/// Bytes of a batch for one message.
const ONE_MESSAGE: usize = 4096;

/// The keys and the addresses of both ends.
pub(super) struct Identity {
    pub private_key: Secret,
    pub preshared: Secret,
    /// The public key of the other end.
    pub public: PublicKey,
    /// Our address and port.
    pub own: SocketAddr,
    /// Those of the other end.
    pub remote: SocketAddr,
    /// Whether this end begins the first handshake.
    pub is_caller: bool,
}

/// A session to receive with.
pub(super) struct Receiving {
    pub sa: Arc<InboundSa>,
    /// What to send with once a packet has come under `sa`.
    next: Option<Arc<OutboundSa>>,
}

/// What a peer has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerCounts {
    /// Handshakes that gave a key.
    pub handshakes: u64,
    /// Packets opened.
    pub opened: u64,
}

/// The tester as a WireGuard peer at one port.
pub struct WireGuardPeer {
    device: Device,
    peer: PeerId,
    pub(super) activity: Arc<Activity>,
    is_caller: bool,
    pub(super) own: SocketAddr,
    /// Where the other end is: where its last handshake message came from.
    pub(super) remote: SocketAddr,
    /// Destination and source of outer frames.
    pub(super) macs: [u8; 12],
    /// By our index.
    pub(super) receiving: HashMap<u32, Receiving>,
    /// What to send with, and since when.
    pub(super) sending: Option<(Arc<OutboundSa>, Time)>,
    /// Frames of handshakes, and keepalives.
    outgoing: Vec<Vec<u8>>,
    pub(super) opening: super::open::Opening,
    pub(super) counts: PeerCounts,
    single: Batch,
}

/// The time of both clocks; that of the tester begins with 0, which means "never" in the protocol.
fn clock(nanoseconds: u64) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { monotonic: time(nanoseconds), wall }
}

pub(super) fn time(nanoseconds: u64) -> Time {
    Time::from_nanoseconds(nanoseconds + 1)
}

impl WireGuardPeer {
    /// A peer without a session.
    pub(super) fn new(identity: Identity, engine: &Arc<dyn Engine>) -> Self {
        let mut device = Device::new(Arc::clone(engine), Box::new(random::System::default()));
        // The tester's clock has not moved; there is no session that an action could end.
        let (begin, mut out) = (time(0), Outbox::new());
        device.set_private_key(begin, Some(identity.private_key), &mut out);
        let (peer, activity) = device.add_peer(identity.public);
        device.set_preshared_key(peer, identity.preshared);
        device.start(begin);
        device.set_reachable(begin, peer);
        Self {
            device,
            peer,
            activity,
            is_caller: identity.is_caller,
            own: identity.own,
            remote: identity.remote,
            macs: [0; 12],
            receiving: HashMap::new(),
            sending: None,
            outgoing: Vec::new(),
            opening: super::open::Opening::default(),
            counts: PeerCounts::default(),
            single: Batch::new(ONE_MESSAGE),
        }
    }

    /// Sets the hardware addresses of the other end and of this one.
    pub fn set_stations(&mut self, macs: [u8; 12]) {
        self.macs = macs;
    }

    /// What the peer has done.
    pub(super) fn counts(&self) -> PeerCounts {
        self.counts
    }

    /// Who does not answer, for an error.
    pub fn other(&self) -> SocketAddr {
        self.remote
    }

    /// Whether there is a key for a trial that begins now.
    pub fn is_ready(&self, now: u64) -> bool {
        self.sending.as_ref().is_some_and(|(_, since)| time(now) - *since < RENEWED_BEFORE_TRIALS)
    }

    /// Begins a handshake for the trial that follows.
    pub fn renew(&mut self, now: u64) {
        if self.is_caller {
            self.wants_key(now);
        }
    }

    /// Serves the timers that are due.
    #[inline]
    pub fn tick(&mut self, now: u64) {
        if self.device.next_timeout().is_some_and(|at| at <= time(now)) {
            let mut out = Outbox::new();
            self.device.handle_timeout(clock(now), &mut out);
            self.carry_out(out, None, now);
        }
    }

    /// The frames that have to be sent.
    pub fn take_outgoing(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.outgoing)
    }

    /// Asks for a new key, unless that was just done.
    pub(super) fn wants_key(&mut self, now: u64) {
        let mut out = Outbox::new();
        self.device.handle_renewal(clock(now), self.peer, &mut out);
        self.carry_out(out, None, now);
    }

    /// A first timer of the protocol was armed.
    pub(super) fn note_activity(&mut self, now: u64) {
        self.device.handle_activity(clock(now), self.peer);
    }

    /// The first packet has come under the session with this index: the other end has the keys.
    pub(super) fn confirmed(&mut self, index: u32, now: u64) {
        if let Some(next) = self.receiving.get_mut(&index).and_then(|session| session.next.take()) {
            self.send_with(next, now);
        }
        let mut out = Outbox::new();
        self.device.handle_confirmed(clock(now), index, &mut out);
        self.carry_out(out, None, now);
    }

    /// A message of a handshake.
    pub(super) fn handle(&mut self, source: SocketAddr, message: &[u8], now: u64) {
        let mut out = Outbox::new();
        // A message that is not authentic is ignored, as by any peer.
        let _ = self.device.handle_datagram(clock(now), source, message, false, &mut out);
        self.carry_out(out, Some(source), now);
    }

    fn carry_out(&mut self, out: Outbox, source: Option<SocketAddr>, now: u64) {
        for action in out {
            match action {
                DeviceAction::Send { message, .. } => self.send_message(&message, self.remote),
                DeviceAction::Reply { message, .. } => {
                    self.send_message(&message, source.unwrap_or(self.remote));
                }
                DeviceAction::Learn { .. } => self.remote = source.unwrap_or(self.remote),
                DeviceAction::Install { sa, next, .. } => {
                    self.receiving.insert(sa.index, Receiving { sa, next });
                }
                DeviceAction::Retire { index } => _ = self.receiving.remove(&index),
                DeviceAction::Use { sa: Some(sa), .. } => self.send_with(sa, now),
                DeviceAction::Use { sa: None, .. } => self.sending = None,
                DeviceAction::Flush { confirm: true, .. } | DeviceAction::Keepalive { .. } => {
                    self.send_keepalive(now);
                }
                // The tester holds no packets back, and the other end has one address and does not move.
                DeviceAction::Flush { .. }
                | DeviceAction::Purge { .. }
                | DeviceAction::ForgetSource { .. }
                | DeviceAction::Probe { .. }
                | DeviceAction::Redirect { .. }
                | DeviceAction::Report(_) => {}
            }
        }
    }

    fn send_with(&mut self, sa: Arc<OutboundSa>, now: u64) {
        let is_new = self.sending.as_ref().is_none_or(|(used, _)| !Arc::ptr_eq(used, &sa));
        if is_new {
            self.counts.handshakes += 1;
            self.sending = Some((sa, time(now)));
        }
    }

    /// Adds the frame of a handshake message.
    fn send_message(&mut self, message: &[u8], to: SocketAddr) {
        self.begin(message);
        prepend_udp(&mut self.single, 0, self.own.port(), to.port());
        let addresses = OuterAddresses { source: self.own.ip(), destination: to.ip() };
        addresses.prepend(&mut self.single, 0, UDP, HANDSHAKE_DS_FIELD);
        finish_udp(self.single.packet_mut(0));
        prepend_ether(&mut self.single, 0, self.macs);
        self.outgoing.push(self.single.packet(0).to_vec());
    }

    /// Adds the frame of an empty packet, which proves that we have the key.
    fn send_keepalive(&mut self, now: u64) {
        let Some((sa, _)) = self.sending.clone() else { return };
        self.begin(&[]);
        if seal(&sa, &mut self.single, time(now)).is_ok() {
            super::seal::wrap(&mut self.single, 0, [self.own, self.remote], self.macs);
            self.outgoing.push(self.single.packet(0).to_vec());
            self.activity.sent(time(now));
        }
    }

    /// Makes a packet of these bytes the only one of the batch, with room for all headers.
    fn begin(&mut self, bytes: &[u8]) {
        self.single.clear();
        let packet = self.single.append(ROOM + bytes.len()).expect("a batch has room for a message");
        packet[ROOM..].copy_from_slice(bytes);
        self.single.shrink(0, ROOM, bytes.len());
    }
}
