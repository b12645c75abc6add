//! What client and server have in common about one peer: its control channel, its data keys and its timers.

use super::action::{Action, Cause, Outbox, Report, SessionNumber};
use super::activity::Activity;
use super::channel::{Channel, ChannelEvent, PacketError};
use super::data::{Header, PING, exit_message};
use super::keepalive::Keepalive;
use super::keyring::Keyring;
use super::keys::DataKeyError;
use super::limits::{HAND_WINDOW, RENEGOTIATE, TRANSITION_WINDOW};
use super::negotiate::Suite;
use super::peer_address::PeerAddress;
use super::session;
use super::tls::TlsError;
use super::wrap::Role;
use crate::{Now, Time};
use crypto::{Engine, Random};
use std::sync::Arc;
use std::time::Duration;

/// The times of a session.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// `hand-window`: a negotiation ends after this time.
    pub hand_window: Duration,
    /// `reneg-sec`: new keys are negotiated after this time; `None` leaves that to the peer.
    pub renegotiate: Option<Duration>,
    /// `tran-window`: the replaced key opens packets for this time.
    pub transition: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { hand_window: HAND_WINDOW, renegotiate: Some(RENEGOTIATE), transition: TRANSITION_WINDOW }
    }
}

/// How data packets are protected, as client and server have agreed.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// The ciphers.
    pub suite: Suite,
    /// Whether data keys are exported from TLS.
    pub export_keys: bool,
    /// The peer ID of data packets; without one, they are of version 1.
    pub peer_id: Option<u32>,
    /// The number with which the data path looks up packets of version 1.
    pub lookup: u32,
    /// Whether `EXIT` is sent on the control channel.
    pub control_exit: bool,
    /// Pings, and the end without an answer.
    pub keepalive: Keepalive,
}

/// One peer.
pub struct Peer {
    /// The session.
    pub number: SessionNumber,
    /// Where the peer is.
    pub address: PeerAddress,
    /// The control channel.
    pub channel: Channel,
    role: Role,
    keyring: Keyring,
    timing: Timing,
    activity: Arc<Activity>,
    agreement: Option<Agreement>,
    /// When new keys are negotiated.
    renew_at: Option<Time>,
    /// When the session ends if no new keys were negotiated.
    keys_end: Option<Time>,
    /// Whether a command with control characters was reported.
    has_bad_command: bool,
}

impl Peer {
    /// A peer with this channel.
    pub fn new(
        now: Now,
        number: SessionNumber,
        address: PeerAddress,
        channel: Channel,
        role: Role,
        engine: Arc<dyn Engine>,
        timing: Timing,
    ) -> Self {
        let activity = Arc::new(Activity::default());
        activity.received(now.monotonic);
        let keyring = Keyring::new(number, role, engine);
        Self {
            number,
            address,
            channel,
            role,
            keyring,
            timing,
            activity,
            agreement: None,
            renew_at: None,
            keys_end: None,
            has_bad_command: false,
        }
    }

    /// The time in which a negotiation, and the decision about it, must be complete.
    pub fn hand_window(&self) -> Duration {
        self.timing.hand_window
    }

    /// Whether data keys are installed.
    pub fn is_up(&self) -> bool {
        !self.keyring.is_empty()
    }

    /// Handles a packet of the control channel.
    pub fn handle(
        &mut self,
        now: Now,
        packet: &[u8],
        random: &mut dyn Random,
        events: &mut Vec<ChannelEvent>,
    ) -> Result<(), PacketError> {
        self.channel.handle(now, packet, random, events)?;
        self.activity.received(now.monotonic);
        Ok(())
    }

    /// Handles what is the same at client and server; returns the other events.
    pub fn handle_event(
        &mut self,
        now: Now,
        event: ChannelEvent,
        out: &mut Outbox,
    ) -> Result<Option<ChannelEvent>, Cause> {
        match event {
            ChannelEvent::Renewing => {
                self.keyring.use_newest(now.monotonic, self.timing.transition, out);
                self.renew_at = None;
                Ok(None)
            }
            ChannelEvent::Failed { key_id, error } => self.handle_failure(now, key_id, error).map(|()| None),
            ChannelEvent::Command(command) if command == "EXIT" => Err(Cause::Exited),
            ChannelEvent::BadCommand => {
                // Once: a peer could otherwise fill the log.
                if !std::mem::replace(&mut self.has_bad_command, true) {
                    out.push(Action::Report { session: self.number, report: Report::BadCommand });
                }
                Ok(None)
            }
            other => Ok(Some(other)),
        }
    }

    /// Without a wrap, one forged packet breaks TLS. The data keys stay, and others are negotiated soon.
    fn handle_failure(&mut self, now: Now, key_id: u8, error: session::KeyError) -> Result<(), Cause> {
        // A peer that does not authenticate any more is not served with its old key.
        let is_refused = matches!(error, session::KeyError::Tls(TlsError::Refused(_)));
        if is_refused || !self.is_up() {
            return Err(error.into());
        }
        if self.channel.remove(key_id) {
            self.renew_soon(now);
        }
        Ok(())
    }

    /// Sends all packets that are due.
    pub fn flush(&mut self, now: Now, out: &mut Outbox) {
        while let Some(packet) = self.channel.transmit(now) {
            self.activity.sent(now.monotonic);
            out.push(Action::Transmit { session: Some(self.number), to: self.address, packet });
        }
    }

    /// Installs the first keys as agreed.
    pub fn connect(
        &mut self,
        now: Now,
        agreement: Agreement,
        dynamic_wrap: bool,
        random: &mut dyn Random,
        out: &mut Outbox,
    ) -> Result<(), Cause> {
        self.agreement = Some(agreement);
        if dynamic_wrap {
            self.channel.use_dynamic_wrap(now).map_err(DataKeyError::from)?;
        }
        let mut installed = Outbox::new();
        self.install(now, 0, random, &mut installed)?;
        let activity = Arc::clone(&self.activity);
        let (session, address) = (self.number, self.address);
        // An SA needs the caller's entry of its session.
        out.push(Action::Connected { session, address, cipher: agreement.suite.cipher, activity });
        out.append(&mut installed);
        Ok(())
    }

    /// Installs the keys of a negotiation.
    pub fn install(
        &mut self,
        now: Now,
        key_id: u8,
        random: &mut dyn Random,
        out: &mut Outbox,
    ) -> Result<(), Cause> {
        // No key is negotiated before the first one is installed.
        let agreement = self.agreement.ok_or(DataKeyError::Export(TlsError::Gone))?;
        let keys = self.channel.data_keys(key_id, agreement.export_keys).map_err(DataKeyError::from)?;
        let header = match agreement.peer_id {
            Some(peer_id) => Header::V2 { key_id, peer_id },
            None => Header::V1 { key_id, peer_id: agreement.lookup },
        };
        let began = self.channel.newest().map_or(now.monotonic, |key| key.began);
        let half = self.timing.renegotiate.map(|lifetime| lifetime / 2);
        let use_at = began + half.unwrap_or(Duration::MAX).min(self.timing.hand_window);
        self.keyring
            .install(&keys, agreement.suite, header, use_at, random, out)
            .map_err(DataKeyError::from)?;
        self.channel.set_installed(key_id);
        self.renew_at = self.timing.renegotiate.map(|lifetime| began + self.jitter(lifetime, random));
        let renewal = self.timing.renegotiate.map(|lifetime| lifetime + self.timing.transition);
        self.keys_end = renewal.map(|lifetime| began + lifetime);
        Ok(())
    }

    /// A server renews up to a tenth earlier, so that both sides rarely begin at once, nor all clients together.
    fn jitter(&self, lifetime: Duration, random: &mut dyn Random) -> Duration {
        if self.role == Role::Client {
            return lifetime;
        }
        let mut byte = [0];
        random.fill(&mut byte);
        lifetime.saturating_sub(lifetime / 10 * u32::from(byte[0]) / 255)
    }

    /// Begins to negotiate new keys: they are old, or a data packet's number is high.
    pub fn renew(&mut self, now: Now, random: &mut dyn Random, out: &mut Outbox) {
        self.renew_at = None;
        if !self.is_up() {
            return;
        }
        self.keyring.use_newest(now.monotonic, self.timing.transition, out);
        match self.channel.renew(now, random) {
            Ok(_) => self.flush(now, out),
            Err(_) => self.retry_renewal(now),
        }
    }

    fn retry_renewal(&mut self, now: Now) {
        self.channel.abandon_renewal();
        self.renew_soon(now);
    }

    /// Even if the renewal of old keys is left to the peer: this one may be for a number of packets.
    fn renew_soon(&mut self, now: Now) {
        let soon = now.monotonic + self.timing.hand_window / 4;
        self.renew_at = Some(self.renew_at.map_or(soon, |at| at.min(soon)));
    }

    /// An authentic data packet has come under the key with this index.
    pub fn confirm(&mut self, now: Time, index: u32, out: &mut Outbox) {
        self.keyring.confirm(now, index, self.timing.transition, out);
    }

    /// Handles what is due.
    pub fn handle_timeout(
        &mut self,
        now: Now,
        random: &mut dyn Random,
        out: &mut Outbox,
    ) -> Result<(), Cause> {
        let time = now.monotonic;
        self.keyring.handle_timeout(time, self.timing.transition, out);
        if self.channel.is_late(time, self.timing.hand_window) {
            if !self.channel.is_renewing() {
                return Err(Cause::HandshakeTimeout);
            }
            self.retry_renewal(now);
        }
        if self.keys_end.is_some_and(|end| time >= end) {
            return Err(Cause::HandshakeTimeout);
        }
        if self.renew_at.is_some_and(|renew| time >= renew) {
            self.renew(now, random, out);
        }
        let Keepalive { ping, silence } = self.keepalive();
        if let Some(silence) = silence
            && self.activity.gone(Some(silence.after)).is_some_and(|gone| time >= gone)
        {
            let seconds = silence.after.as_secs();
            return Err(if silence.exits { Cause::PingExit(seconds) } else { Cause::Gone(seconds) });
        }
        if self.activity.ping_due(ping).is_some_and(|due| time >= due) {
            self.activity.sent(time);
            out.push(Action::SendInner { session: self.number, inner: PING.to_vec() });
        }
        self.flush(now, out);
        Ok(())
    }

    /// When something is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let Keepalive { ping, silence } = self.keepalive();
        let times = [
            self.channel.next_timeout(self.timing.hand_window),
            self.keyring.next_timeout(),
            self.renew_at,
            self.keys_end,
            self.activity.gone(silence.map(|silence| silence.after)),
            self.activity.ping_due(ping),
        ];
        times.into_iter().flatten().min()
    }

    fn keepalive(&self) -> Keepalive {
        self.agreement.filter(|_| self.is_up()).map(|agreement| agreement.keepalive).unwrap_or_default()
    }

    /// Tells the peer that we exit, in the way that it understands.
    pub fn exit(&mut self, now: Now, out: &mut Outbox) {
        match self.agreement {
            Some(Agreement { control_exit: true, .. }) => {
                // The session ends in any case.
                let _ = self.channel.send_command("EXIT");
                self.flush(now, out);
            }
            Some(_) if self.is_up() => {
                out.push(Action::SendInner { session: self.number, inner: exit_message().to_vec() });
            }
            _ => {}
        }
    }

    /// Retires all keys: no more data is accepted.
    pub fn retire_keys(&mut self, out: &mut Outbox) {
        self.keyring.clear(out);
    }

    /// Retires all keys, and says why the session ended.
    pub fn close(&mut self, cause: Cause, out: &mut Outbox) {
        self.retire_keys(out);
        out.push(Action::Closed { session: self.number, address: self.address, cause });
    }
}
