//! The client: one server, one session at a time. The caller connects again after [`Action::Closed`].
//!
//! ```text
//! connect → reset → TLS, key exchange → PUSH_REQUEST → PUSH_REPLY → Install, Use, Configure, Connected
//! ```
//! With a peer that is no server ([`ClientConfiguration::pulls`]), the keys are installed after the key exchange.

use super::action::{Action, Cause, Outbox};
use super::channel::{Announcement, Channel, ChannelEvent, PacketError};
use super::data::Framing;
use super::keepalive::Keepalive;
use super::key_method::Credentials;
use super::key_method::KeyMethod;
use super::limits::PUSH_REQUEST_INTERVAL;
use super::negotiate::{self, DataCipher, NoCommonCipher, Suite};
use super::packet::SessionId;
use super::pair;
use super::peer::{Agreement, Peer, Timing};
use super::peer_address::PeerAddress;
use super::peer_info::PeerInfo;
use super::push::{CoreOptions, Reply, Unsupported};
use super::tls::{TlsConfig, WallClock};
use super::verify::PeerCheck;
use super::wrap::v2::ClientKey;
use super::wrap::{PacketId, Role, WrapKeys, Wrapper};
use crate::{Now, Time};
use crypto::cipher::Integrity;
use crypto::{Engine, Random};
use rustls::ClientConfig;
use rustls::pki_types::UnixTime;
use std::sync::Arc;
use std::time::Duration;

/// The client's wrap of control packets.
#[derive(Clone, Debug)]
pub enum ClientWrap {
    /// None, tls-auth or tls-crypt.
    Shared(WrapKeys),
    /// tls-crypt-v2.
    Own(ClientKey),
}

/// The first number of a client with tls-crypt-v2: it says that the client can send its wrapped key twice.
const EARLY_NEGOTIATION: u32 = 0x0f00_0000;

/// What a client needs to know.
pub struct ClientConfiguration {
    /// TLS, with the verifier of the server.
    pub tls: ClientConfig,
    /// The wrap of control packets.
    pub wrap: ClientWrap,
    /// Accepted data ciphers, in order.
    pub ciphers: Vec<DataCipher>,
    /// The cipher with a server that does not negotiate.
    pub fallback: Option<DataCipher>,
    /// The HMAC beside ciphers in CBC mode.
    pub auth: Integrity,
    /// The framing of compression, unless the server pushes other.
    pub framing: Option<Framing>,
    /// User name and password.
    pub credentials: Credentials,
    /// Further lines of peer information.
    pub peer_info: Vec<(String, String)>,
    /// The MTU of the tunnel interface.
    pub mtu: u16,
    /// Features to announce: bits of [`peer_info::proto`](super::peer_info::proto), usually
    /// [`peer_info::OURS`](super::peer_info::OURS).
    pub features: u32,
    /// Pings, and the end without an answer, unless the server pushes others.
    pub keepalive: Keepalive,
    /// The times.
    pub timing: Timing,
    /// The longest control packet that is sent, with its UDP and IP header (`max-packet-size`).
    pub control_packet: usize,
    /// Whether the server pushes options; not with a peer, site to site.
    pub pulls: bool,
}

/// Whether an option that the server pushes is taken; `None` ends the session.
pub type PullFilter = Box<dyn Fn(&str) -> Option<bool> + Send>;

/// A session until the server's options have come.
struct Waiting {
    reply: Reply,
    /// When to ask for the options (again).
    ask_at: Option<Time>,
    ends_at: Time,
}

/// A client.
pub struct Client {
    tls: TlsConfig,
    clock: Arc<WallClock>,
    wrap: ClientWrap,
    ciphers: Vec<DataCipher>,
    fallback: Option<DataCipher>,
    auth: Integrity,
    framing: Option<Framing>,
    announcement: Announcement,
    keepalive: Keepalive,
    timing: Timing,
    features: u32,
    control_packet: usize,
    pulls: bool,
    engine: Arc<dyn Engine>,
    random: Box<dyn Random>,
    session: Option<(Peer, Option<Waiting>)>,
    filter: PullFilter,
}

/// The session number of a client's only session.
const SESSION: u32 = 0;

impl Client {
    /// A client that is not connected.
    pub fn new(configuration: ClientConfiguration, engine: Arc<dyn Engine>, random: Box<dyn Random>) -> Self {
        let clock = Arc::new(WallClock::default());
        let ClientConfiguration {
            tls,
            wrap,
            ciphers,
            fallback,
            auth,
            framing,
            credentials,
            peer_info,
            mtu,
            features,
            keepalive,
            timing,
            control_packet,
            pulls,
        } = configuration;
        let peer_info = if pulls {
            PeerInfo::of_client(features, &DataCipher::list(&ciphers), mtu, &peer_info)
        } else {
            pair::announcement(features, &ciphers, mtu, &peer_info)
        };
        let cipher = ciphers.first().map_or("none", |cipher| cipher.name());
        let auth_name = negotiate::auth_name(auth);
        let compression = framing.map_or("", |_| ",comp-lzo");
        let options = format!(
            "V4,dev-type tun,tun-mtu {mtu}{compression},cipher {cipher},auth {auth_name},key-method 2,tls-client"
        );
        Self {
            tls: TlsConfig::client(tls, Arc::clone(&clock)),
            clock,
            wrap,
            ciphers,
            fallback,
            auth,
            framing,
            announcement: Announcement { options, credentials, peer_info },
            keepalive,
            timing,
            features,
            control_packet,
            pulls,
            engine,
            random,
            session: None,
            filter: Box::new(|_| Some(true)),
        }
    }

    /// Sets which options of the server are taken.
    pub fn set_filter(&mut self, filter: PullFilter) {
        self.filter = filter;
    }

    /// Sets the user name and the password of further keys and sessions.
    pub fn set_credentials(&mut self, credentials: Credentials) {
        if let Some((peer, _)) = &mut self.session {
            peer.channel.set_credentials(credentials.clone());
        }
        self.announcement.credentials = credentials;
    }

    /// Replaces the configuration of TLS, such as after a change of the revocation list: the next negotiation uses it. The session ends if
    /// the certificates of its server are now refused.
    pub fn renew_tls(&mut self, now: Now, config: ClientConfig, check: &PeerCheck, out: &mut Outbox) {
        self.tls = TlsConfig::client(config, Arc::clone(&self.clock));
        let Some((peer, _)) = &mut self.session else { return };
        peer.channel.set_tls(self.tls.clone());
        let time = UnixTime::since_unix_epoch(now.wall);
        // The same server has proved who it is in each negotiation.
        let mut shown = (0..8).map(|key_id| peer.channel.certificates(key_id));
        let refusal = shown
            .find_map(<[_]>::split_first)
            .and_then(|(own, between)| check.check(own, between, time).err());
        if let Some(refusal) = refusal {
            self.end(now, Cause::RefusedByUs(refusal.to_string()), out);
        }
    }

    /// Sets the wrap of further sessions.
    pub fn set_wrap(&mut self, wrap: ClientWrap) {
        self.wrap = wrap;
    }

    /// Begins a session with a server. An earlier one must have ended.
    pub fn connect(&mut self, now: Now, server: impl Into<PeerAddress>, out: &mut Outbox) {
        self.clock.set(now);
        let (keys, after, wrapped) = match &self.wrap {
            ClientWrap::Shared(keys) => (keys.clone(), 0, Vec::new()),
            ClientWrap::Own(own) => {
                (WrapKeys::tls_crypt(own.key.clone(), Role::Client), EARLY_NEGOTIATION, own.wrapped.clone())
            }
        };
        let wrapper = Wrapper::new(keys, PacketId { number: after, time: now.wall.as_secs() as u32 });
        let wrapper = wrapper.limited_to(self.control_packet);
        let local = SessionId::random(&mut *self.random);
        let mut channel = Channel::new(self.tls.clone(), wrapper, local, self.announcement.clone());
        channel.set_wrapped_key(wrapped);
        if !self.pulls {
            channel.keep_early_reset();
        }
        let begun = channel.send_reset(now, &mut *self.random);
        let engine = Arc::clone(&self.engine);
        let mut peer = Peer::new(now, SESSION, server.into(), channel, Role::Client, engine, self.timing);
        match begun {
            Ok(()) => {
                peer.flush(now, out);
                let ends_at = now.monotonic + self.timing.hand_window * 2;
                self.session = Some((peer, Some(Waiting { reply: Reply::default(), ask_at: None, ends_at })));
            }
            Err(error) => peer.close(Cause::Key(error.into()), out),
        }
    }

    /// Handles a control packet.
    pub fn handle_packet(
        &mut self,
        now: Now,
        from: impl Into<PeerAddress>,
        packet: &[u8],
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        self.clock.set(now);
        let Some((peer, _)) = &mut self.session else { return Err(PacketError::OtherSession) };
        if from.into() != peer.address {
            return Err(PacketError::OtherSession);
        }
        let mut events = Vec::new();
        peer.handle(now, packet, &mut *self.random, &mut events)?;
        for event in events {
            if let Err(cause) = self.handle_event(now, event, out) {
                self.end(now, cause, out);
                return Ok(());
            }
        }
        if let Some((peer, _)) = &mut self.session {
            peer.flush(now, out);
        }
        Ok(())
    }

    fn handle_event(&mut self, now: Now, event: ChannelEvent, out: &mut Outbox) -> Result<(), Cause> {
        let Some((peer, waiting)) = &mut self.session else { return Ok(()) };
        match peer.handle_event(now, event, out)? {
            Some(ChannelEvent::Exchanged { key_id: 0, theirs }) if !self.pulls => {
                self.agree(now, &theirs, out)
            }
            Some(ChannelEvent::Exchanged { key_id: 0, .. }) => {
                let certificates = peer.channel.certificates(0).to_vec();
                out.push(Action::Found { address: peer.address.socket, certificates });
                peer.channel.send_command("PUSH_REQUEST")?;
                if let Some(waiting) = waiting {
                    waiting.ask_at = Some(now.monotonic + PUSH_REQUEST_INTERVAL);
                }
                Ok(())
            }
            Some(ChannelEvent::Exchanged { key_id, .. }) => peer.install(now, key_id, &mut *self.random, out),
            Some(ChannelEvent::Command(command)) => self.handle_command(now, command, out),
            _ => Ok(()),
        }
    }

    /// Connects with a peer that pushes nothing.
    fn agree(&mut self, now: Now, theirs: &KeyMethod, out: &mut Outbox) -> Result<(), Cause> {
        let Some((peer, waiting)) = &mut self.session else { return Ok(()) };
        let own = pair::Own {
            role: Role::Client,
            ciphers: &self.ciphers,
            fallback: self.fallback,
            auth: self.auth,
            keepalive: self.keepalive,
        };
        let info = PeerInfo::parse(&theirs.peer_info).limited_to(self.features);
        let (agreement, dynamic_wrap) = pair::agree(&own, &info, &theirs.options, &peer.channel)?;
        *waiting = None;
        let certificates = peer.channel.certificates(0).to_vec();
        out.push(Action::Found { address: peer.address.socket, certificates });
        out.push(Action::Configure { options: Vec::new() });
        peer.connect(now, agreement, dynamic_wrap, &mut *self.random, out)
    }

    fn handle_command(&mut self, now: Now, command: String, out: &mut Outbox) -> Result<(), Cause> {
        let (word, rest) = command.split_once(',').unwrap_or((&command, ""));
        let Some((_, waiting)) = &mut self.session else { return Ok(()) };
        match word {
            // A peer that is no server has nothing to say about our network, nor about our end.
            _ if !self.pulls => {
                out.push(Action::Command { session: SESSION, command });
                Ok(())
            }
            "PUSH_REPLY" => {
                // A second reply may bring a token; addresses and keys stay.
                let Some(state) = waiting else {
                    out.push(Action::Command { session: SESSION, command });
                    return Ok(());
                };
                let reply = state.reply.take(&command).map_err(|_| Cause::BadPushReply)?;
                reply.map_or(Ok(()), |options| self.configure(now, options, out))
            }
            "AUTH_FAILED" => Err(Cause::Refused(rest.to_owned())),
            "RESTART" | "HALT" => Err(Cause::Told(command)),
            "AUTH_PENDING" => {
                let seconds =
                    rest.split(',').find_map(|part| part.strip_prefix("timeout ")?.parse::<u32>().ok());
                if let (Some(state), Some(seconds)) = (waiting, seconds) {
                    let ends_at = now.monotonic + Duration::from_secs(seconds.min(600).into());
                    state.ends_at = state.ends_at.max(ends_at);
                }
                out.push(Action::Command { session: SESSION, command });
                Ok(())
            }
            _ => {
                out.push(Action::Command { session: SESSION, command });
                Ok(())
            }
        }
    }

    fn configure(&mut self, now: Now, mut options: Vec<String>, out: &mut Outbox) -> Result<(), Cause> {
        if let Some(rejected) = options.iter().find(|option| (self.filter)(option).is_none()) {
            return Err(Cause::Rejected(rejected.clone()));
        }
        options.retain(|option| (self.filter)(option) == Some(true));
        let core = CoreOptions::parse(&options)?;
        let accepted = core.cipher.filter(|cipher| self.ciphers.contains(cipher));
        let assumed = || self.fallback.or(self.ciphers.first().copied()).filter(|_| core.cipher.is_none());
        let cipher = accepted.or_else(assumed).ok_or_else(|| NoCommonCipher {
            ours: DataCipher::list(&self.ciphers),
            theirs: core.cipher.map(|cipher| cipher.to_string()).unwrap_or_default(),
        })?;
        if core.epochs && !(cipher.is_aead() && core.peer_id.is_some()) {
            return Err(Unsupported(format!("protocol-flags aead-epoch with cipher {cipher}")).into());
        }
        let agreement = Agreement {
            suite: Suite {
                cipher,
                auth: self.auth,
                epochs: core.epochs,
                framing: core.framing.unwrap_or(self.framing),
            },
            export_keys: core.export_keys,
            peer_id: core.peer_id,
            lookup: SESSION,
            control_exit: core.control_exit,
            keepalive: self.keepalive.replaced_by(core.keepalive),
        };
        let Some((peer, waiting)) = &mut self.session else { return Ok(()) };
        *waiting = None;
        out.push(Action::Configure { options });
        peer.connect(now, agreement, core.dynamic_tls_crypt, &mut *self.random, out)
    }

    /// Handles what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        self.clock.set(now);
        let Some((peer, waiting)) = &mut self.session else { return };
        let mut result = Ok(());
        if let Some(waiting) = waiting {
            if waiting.ask_at.is_some_and(|at| now.monotonic >= at) {
                waiting.ask_at = Some(now.monotonic + PUSH_REQUEST_INTERVAL);
                result = peer.channel.send_command("PUSH_REQUEST").map_err(Cause::from);
            }
            if now.monotonic >= waiting.ends_at {
                result = Err(Cause::HandshakeTimeout);
            }
        }
        if let Err(cause) = result.and_then(|()| peer.handle_timeout(now, &mut *self.random, out)) {
            self.end(now, cause, out);
        }
    }

    /// When something is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let (peer, waiting) = self.session.as_ref()?;
        let waiting = waiting.iter().flat_map(|waiting| waiting.ask_at.into_iter().chain([waiting.ends_at]));
        peer.next_timeout().into_iter().chain(waiting).min()
    }

    /// Whether keys are agreed, and the server is asked for its options.
    pub fn is_configuring(&self) -> bool {
        let waiting = self.session.as_ref().and_then(|(_, waiting)| waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.ask_at.is_some())
    }

    /// Answers a challenge of the server; whether there is a session to do so.
    pub fn respond(&mut self, now: Now, text: &str, out: &mut Outbox) -> bool {
        self.clock.set(now);
        let Some((peer, _)) = &mut self.session else { return false };
        let sent = peer.channel.send_command(&format!("CR_RESPONSE,{text}"));
        match sent {
            Ok(()) => peer.flush(now, out),
            Err(error) => self.end(now, error.into(), out),
        }
        true
    }

    /// New keys are needed: a number of data packets is high, or many bytes were sent.
    pub fn handle_renewal(&mut self, now: Now, out: &mut Outbox) {
        self.clock.set(now);
        if let Some((peer, _)) = &mut self.session {
            peer.renew(now, &mut *self.random, out);
        }
    }

    /// An authentic data packet has come under an SA that was not confirmed.
    pub fn handle_confirmed(&mut self, now: Now, index: u32, out: &mut Outbox) {
        if let Some((peer, _)) = &mut self.session {
            peer.confirm(now.monotonic, index, out);
        }
    }

    /// An authentic data packet, which is not a replay, has come from another address: control packets go there too.
    pub fn handle_move(&mut self, address: impl Into<PeerAddress>) {
        if let Some((peer, _)) = &mut self.session {
            peer.address = address.into();
        }
    }

    /// The server has said in a data packet that it exits.
    pub fn handle_exit(&mut self, now: Now, out: &mut Outbox) {
        self.end(now, Cause::Exited, out);
    }

    /// The server has not answered in time: the attempt has failed.
    pub fn handle_silence(&mut self, now: Now, out: &mut Outbox) {
        self.end(now, Cause::HandshakeTimeout, out);
    }

    /// The TCP connection of the session has ended.
    pub fn handle_connection_end(&mut self, now: Now, out: &mut Outbox) {
        self.end(now, Cause::ConnectionEnded, out);
    }

    /// Ends the session, and tells the server.
    pub fn stop(&mut self, now: Now, out: &mut Outbox) {
        if let Some((peer, _)) = &mut self.session {
            peer.exit(now, out);
        }
        self.end(now, Cause::Stopped, out);
    }

    fn end(&mut self, now: Now, cause: Cause, out: &mut Outbox) {
        if let Some((mut peer, _)) = self.session.take() {
            // An alert of TLS tells the server why.
            peer.flush(now, out);
            peer.close(cause, out);
        }
    }
}
