//! One client's session at a server, and how far it is.

use crate::openvpn::action::{Action, Cause, Outbox, Request};
use crate::openvpn::key_method::KeyMethod;
use crate::openvpn::peer::Peer;
use crate::openvpn::peer_info::PeerInfo;
use crate::openvpn::push;
use crate::openvpn::wrap::v2::Metadata;
use crate::{Now, Time};
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use std::time::Duration;

/// The time in which a refused client can receive the reason.
pub(super) const REFUSAL_TIME: Duration = Duration::from_secs(5);

/// What the caller has decided about a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Admit it, and push these options, to which the core adds peer ID, cipher and protocol flags.
    Accept {
        /// Options such as `ifconfig 10.8.0.2 255.255.255.0`.
        push: Vec<String>,
    },
    /// Refuse it. The client is told the reason.
    Refuse {
        /// The reason; it may be empty.
        reason: String,
    },
}

/// How far a session is.
pub(super) enum Stage {
    /// Keys are being exchanged.
    Handshake,
    /// The verdict is awaited, until this time.
    AwaitingVerdict(Box<Exchange>, Time),
    /// Admitted, but the client has not asked for its options yet. It must until this time.
    Admitted(Box<Exchange>, Vec<String>, Time),
    /// Up. A verdict about the keys with this ID may be awaited.
    Up(Option<u8>),
    /// The client is refused, and gets the reason until this time.
    Ending(Time, Cause),
}

impl Stage {
    /// The key whose verdict is awaited.
    pub(super) fn asked_about(&self) -> Option<u8> {
        match self {
            Self::AwaitingVerdict(..) => Some(0),
            Self::Up(key_id) => *key_id,
            Self::Handshake | Self::Admitted(..) | Self::Ending(..) => None,
        }
    }

    /// When the session ends, and why, if the client does nothing.
    pub(super) fn end(&self) -> Option<(Time, Cause)> {
        match self {
            Self::Admitted(.., at) => Some((*at, Cause::HandshakeTimeout)),
            Self::Ending(at, cause) => Some((*at, cause.clone())),
            Self::AwaitingVerdict(_, at) => Some((*at, Cause::NoVerdict)),
            Self::Handshake | Self::Up(_) => None,
        }
    }
}

/// What must stay the same while a session lasts: OpenVPN locks it, too. A renewal under another name would use the
/// addresses and routes of the first.
pub(super) struct Identity {
    /// The client's own first.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    user: String,
}

impl Identity {
    /// Whether both have the same certificate and user name.
    fn is_same(&self, other: &Self) -> bool {
        self.certificates.first() == other.certificates.first() && self.user == other.user
    }

    /// Whether it is surely one client: without certificates, many may have one user name.
    pub(super) fn is_same_client(&self, other: &Self) -> bool {
        !self.certificates.is_empty() && self.is_same(other)
    }
}

/// What the client has announced.
pub(super) struct Exchange {
    pub(super) info: PeerInfo,
    pub(super) options: String,
    /// Whether it has asked for its options.
    pub(super) has_asked: bool,
}

/// A client's session.
pub(super) struct Session {
    pub(super) peer: Peer,
    pub(super) stage: Stage,
    /// Whether it counts as admitted.
    pub(super) is_admitted: bool,
    /// Of the first key, once it is exchanged.
    pub(super) identity: Option<Identity>,
    /// The source that the session counts for, until the client has authenticated.
    pub(super) pending: Option<IpAddr>,
    /// When it began.
    pub(super) begun: Time,
    /// Of the client's key of tls-crypt-v2.
    pub(super) key_metadata: Option<Metadata>,
}

impl Session {
    /// The client's certificates, its own first; those of its first key while others are negotiated.
    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        match &self.identity {
            Some(identity) => &identity.certificates,
            None => self.peer.channel.certificates(0),
        }
    }

    /// Asks the caller about the client, or about its new keys.
    pub(super) fn ask(&mut self, now: Now, key_id: u8, theirs: KeyMethod, features: u32, out: &mut Outbox) {
        let info = PeerInfo::parse(&theirs.peer_info).limited_to(features);
        let certificates = self.peer.channel.certificates(key_id).to_vec();
        let identity = Identity { certificates: certificates.clone(), user: theirs.credentials.user.clone() };
        let is_renewal = key_id != 0;
        let request = Request {
            address: self.peer.address.socket,
            key_id,
            certificates,
            credentials: theirs.credentials,
            info: info.clone(),
            is_renewal,
            key_metadata: self.key_metadata.clone(),
        };
        match &mut self.stage {
            Stage::Up(_)
                if is_renewal && !self.identity.as_ref().is_some_and(|own| own.is_same(&identity)) =>
            {
                return self.refuse(now, "the certificate or the user name has changed", out);
            }
            Stage::Up(asked) if is_renewal => *asked = Some(key_id),
            Stage::Handshake if !is_renewal => {
                self.identity = Some(identity);
                let exchange = Exchange { info, options: theirs.options, has_asked: false };
                let until = now.monotonic + self.peer.hand_window();
                self.stage = Stage::AwaitingVerdict(Box::new(exchange), until);
            }
            // A verdict is awaited already, or the session ends.
            _ => return,
        }
        out.push(Action::Authenticate { session: self.peer.number, request: Box::new(request) });
    }

    /// A client whose renewal is refused loses its present keys too.
    pub(super) fn refuse(&mut self, now: Now, reason: &str, out: &mut Outbox) {
        self.peer.retire_keys(out);
        let command =
            if reason.is_empty() { String::from("AUTH_FAILED") } else { format!("AUTH_FAILED,{reason}") };
        // Whether or not it can be told, the client is refused.
        let _ = self.peer.channel.send_command(&push::one_command(&command));
        self.stage = Stage::Ending(now.monotonic + REFUSAL_TIME, Cause::RefusedByUs(reason.to_owned()));
    }
}
