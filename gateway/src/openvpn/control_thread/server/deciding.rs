//! Verdicts about clients: one question after the other, each answered at once or later.

use super::questions::Progress;
use super::variables::{certificate_name, chain};
use super::{Admitted, ServerSide};
use crate::openvpn::passwords::Unchecked;
use crate::openvpn::pool::{Exhausted, Lease};
use crate::openvpn::scripts::environment::printable;
use crate::openvpn::scripts::{Answer, Environment, Hook, Outcome};
use crate::openvpn::settings::ClientOverride;
use crate::openvpn::tokens::Token;
use crypto::pki::Certificate;
use ipnet::IpNet;
use tunnel::openvpn::action::{Request, SessionNumber};
use tunnel::openvpn::verify::Refusal;
use tunnel::openvpn::{Outbox, Verdict};
use tunnel::{Now, Time};

/// Clients whose verdict is not complete. The core has as many that have not authenticated.
const WAITING: usize = 1024;

/// A client whose verdict is not complete.
pub(super) struct Deciding {
    pub(super) request: Request,
    /// The client is refused at this time.
    pub(super) until: Time,
    /// The ticket of the question that is asked; 0 if none waits for an answer.
    pub(super) ticket: u64,
    pub(super) question: Question,
    /// The number of the last request for a program.
    pub(super) run: u64,
    /// The number of the request whose program has challenged the user; 0 for none.
    pub(super) challenge: u64,
    /// The subjects of its certificate, and of those above it.
    /// The certificates, if programs get them (`tls-export-cert`).
    pub(super) chain: Vec<Certificate>,
    pub(super) subjects: Vec<String>,
    /// The last question that is asked a second time, after the end of other sessions.
    pub(super) again: Option<Question>,
    pub(super) name: String,
    pub(super) environment: Environment,
    /// The settings of the client: its file, then the answer of `client-connect`.
    pub(super) own: ClientOverride,
    pub(super) lease: Lease,
    /// Options of the management interface, in the form of a client's file.
    pub(super) management: Option<String>,
    /// Whether `client-connect` has let it in.
    pub(super) is_announced: bool,
    pub(super) prefixes: Vec<IpNet>,
    pub(super) learned: Vec<IpNet>,
    /// The token that it has sent.
    pub(super) token: Option<Token>,
    /// Which reading of the file of hashes its password is compared with.
    pub(super) reading: u64,
}

impl Deciding {
    /// Whether the answer to its question has not come.
    pub(super) fn is_asked(&self) -> bool {
        self.ticket != 0
    }
}

/// What is asked next, in OpenVPN's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// `tls-crypt-v2-verify` about the client's key.
    Key,
    /// `tls-verify` about the certificate at this depth.
    Certificate(usize),
    /// The management interface about the client.
    Management,
    /// `auth-user-pass-verify`, or `auth-user-pass-hashes`.
    Password,
    /// Which name the client has.
    Name,
    /// The file in `client-config-dir`.
    File,
    /// Addresses of the pool.
    Addresses,
    /// `client-connect`.
    Connect,
    /// What the client gets in the end.
    Offer,
    /// `learn-address` about the prefix with this number.
    Address(usize),
    /// None: the client is admitted.
    Nothing,
}

/// An answer of the management interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The client is accepted, with these lines as in a file of `client-config-dir`.
    Accept(String),
    /// It is refused.
    Refuse {
        /// Why, for the log.
        reason: String,
        /// What the client is told.
        told: String,
    },
}

/// An answer to a question.
pub(crate) enum Answered {
    /// Of a program.
    Program(Answer),
    /// Of the management interface.
    Management(Decision),
    /// Of the file of hashes: whether the password is right.
    Password(bool),
}

/// Why a client is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the common name of its certificate, or its user name, has changed from {0}")]
    OtherName(String),
    #[error("it is disabled")]
    Disabled,
    #[error("there are no settings for {0}")]
    NoSettings(String),
    #[error("it sends no peer ID: OpenVPN 2.4 or later is needed")]
    NoPeerId,
    #[error(
        "it cannot export keys of TLS, which force-tls-key-material-export requires: OpenVPN 2.6 or later is needed"
    )]
    NoExporter,
    #[error("its tls-crypt-v2 key has no metadata, about which tls-crypt-v2-verify is asked")]
    NoMetadata,
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    #[error("it has no user name and no password")]
    NoPassword,
    #[error("the password is wrong, or the user is unknown: {0}")]
    WrongPassword(String),
    #[error("the file of auth-user-pass-hashes cannot be used")]
    NoHashes,
    #[error("its user name has more than 64 bytes, or is empty")]
    BadName,
    #[error("its certificate is revoked: its serial number {0} is a file in the directory of crl-verify")]
    Revoked(String),
    #[error("its certificate: {0}")]
    Certificate(Refusal),
    #[error("{0}")]
    Program(String),
    /// The client is told the reason.
    #[error("{0}")]
    Told(String),
    /// The management interface has refused it; the client is told the second.
    #[error("client-deny: {0}")]
    Denied(String, String),
    #[error("no answer came in time")]
    Late,
    #[error("too many clients wait for a decision")]
    TooMany,
}

impl Refused {
    /// What the client is told; the log has more.
    fn told(&self) -> String {
        match self {
            Self::Told(reason) | Self::Denied(_, reason) => reason.clone(),
            Self::NoPassword
            | Self::WrongPassword(_)
            | Self::Program(_)
            | Self::BadName
            | Self::Revoked(_)
            | Self::Certificate(_) => String::new(),
            Self::Late | Self::TooMany | Self::NoHashes => "TEMP:the server is busy".to_owned(),
            other => other.to_string(),
        }
    }
}

impl From<Unchecked> for Refused {
    fn from(unchecked: Unchecked) -> Self {
        match unchecked {
            Unchecked::NoFile => Self::NoHashes,
            Unchecked::TooMany => Self::TooMany,
        }
    }
}

impl ServerSide {
    /// Decides about a client, or about its new keys.
    pub(in super::super) fn decide(
        &mut self,
        now: Now,
        session: SessionNumber,
        request: Request,
        out: &mut Outbox,
    ) {
        if !request.is_renewal {
            self.numbers.begin(session);
        }
        let chain = chain(&request.certificates, &self.access.authorities);
        let (environment, until) = (self.about(&request, &chain), now.monotonic + self.access.longest);
        let deciding = Deciding {
            until,
            ticket: 0,
            run: 0,
            challenge: 0,
            question: if request.is_renewal { Question::Certificate(chain.len()) } else { Question::Key },
            subjects: chain.iter().map(|it| it.subject().to_openssl()).collect(),
            chain: if self.access.exports_certificates { chain.clone() } else { Vec::new() },
            again: None,
            name: certificate_name(&request.certificates, &self.access.name_fields),
            environment,
            own: ClientOverride::default(),
            lease: Lease::default(),
            management: None,
            is_announced: false,
            prefixes: Vec::new(),
            learned: Vec::new(),
            token: None,
            reading: 0,
            request,
        };
        if let Some(serial) = self.files.revoked(&deciding.environment) {
            let revoked = Refused::Revoked(serial.to_owned());
            return self.refuse(now, session, &deciding, &revoked, out);
        }
        if let Err(error) = self.files.check(now, &deciding.request) {
            return self.refuse(now, session, &deciding, &Refused::Certificate(error), out);
        }
        if self.deciding.len() >= WAITING {
            return self.refuse(now, session, &deciding, &Refused::TooMany, out);
        }
        self.proceed(now, session, deciding, out);
    }

    /// Takes an answer; one that comes too late is dropped.
    pub(in super::super) fn answered(
        &mut self,
        now: Now,
        session: SessionNumber,
        ticket: u64,
        answered: Answered,
        out: &mut Outbox,
    ) {
        let Some(mut deciding) = self.deciding.remove(&session) else { return };
        if deciding.ticket != ticket {
            self.deciding.insert(session, deciding);
            return;
        }
        if !matches!(&answered, Answered::Program(answer) if answer.outcome == Outcome::Deferred) {
            deciding.ticket = 0;
        }
        match self.take_answer(now, session, &mut deciding, answered, out) {
            Ok(Progress::Wait) => _ = self.deciding.insert(session, deciding),
            Ok(Progress::Go(question)) => {
                deciding.question = question;
                self.proceed(now, session, deciding, out);
            }
            Err(refused) => self.refuse(now, session, &deciding, &refused, out),
        }
    }

    /// No answer came in time.
    pub(super) fn give_up(&mut self, now: Now, session: SessionNumber, out: &mut Outbox) {
        if let Some(deciding) = self.deciding.remove(&session) {
            self.refuse(now, session, &deciding, &Refused::Late, out);
        }
    }

    /// Asks one question after the other, until one is answered later.
    fn proceed(&mut self, now: Now, session: SessionNumber, mut deciding: Deciding, out: &mut Outbox) {
        loop {
            if deciding.question == Question::Nothing {
                return self.admit(now, session, deciding, out);
            }
            match self.ask(now, session, &mut deciding, out) {
                Ok(Progress::Go(question)) => deciding.question = question,
                Ok(Progress::Wait) => {
                    self.deciding.insert(session, deciding);
                    return;
                }
                Err(refused) => return self.refuse(now, session, &deciding, &refused, out),
            }
        }
    }

    fn refuse(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &Deciding,
        refused: &Refused,
        out: &mut Outbox,
    ) {
        let request = &deciding.request;
        self.take_back(deciding);
        tracing::info!("client at {} is refused: {refused}", request.address);
        let verdict = Verdict::Refuse { reason: refused.told() };
        if !request.is_renewal {
            self.pool.release(session);
        }
        self.core.admit(now, session, request.key_id, verdict, out);
    }

    fn admit(&mut self, now: Now, session: SessionNumber, deciding: Deciding, out: &mut Outbox) {
        // The list may have changed while programs were asked.
        if let Some(serial) = self.files.revoked(&deciding.environment) {
            let revoked = Refused::Revoked(serial.to_owned());
            return self.refuse(now, session, &deciding, &revoked, out);
        }
        let key_id = deciding.request.key_id;
        let (token, told) = self.token_for(now, &deciding).unzip();
        if deciding.request.is_renewal {
            if let Some(admitted) = self.admitted.get_mut(&session) {
                admitted.token = token;
            }
            let verdict = Verdict::Accept { push: told.into_iter().collect() };
            return self.core.admit(now, session, key_id, verdict, out);
        }
        let mut push = self.options(&deciding);
        push.extend(told);
        self.files.leases_changed(now.monotonic);
        let Deciding { name, environment, prefixes, mut is_announced, learned, own, request, .. } = deciding;
        // Without client-connect, nothing else announces it to client-disconnect.
        is_announced |= !self.scripts.has(Hook::ClientConnect);
        let (since, user) = (now.monotonic, printable(&request.credentials.user));
        let session_seconds = own.session_seconds;
        let admitted = Admitted {
            name,
            user,
            prefixes,
            environment,
            since,
            is_announced,
            learned,
            token,
            session_seconds,
        };
        self.admitted.insert(session, admitted);
        self.core.admit(now, session, key_id, Verdict::Accept { push }, out);
    }
}
