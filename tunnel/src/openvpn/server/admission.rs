//! What a session of a server goes through: key exchange, the caller's verdict, push reply, renewals.

use super::Server;
use super::session::{Exchange, REFUSAL_TIME, Session, Stage, Verdict};
use crate::Now;
use crate::openvpn::action::{Action, Cause, Outbox, Report, SessionNumber};
use crate::openvpn::channel::ChannelEvent;
use crate::openvpn::data::Framing;
use crate::openvpn::negotiate::{self, DataCipher, Suite};
use crate::openvpn::pair;
use crate::openvpn::peer::Agreement;
use crate::openvpn::peer_info::{PeerInfo, proto};
use crate::openvpn::push;
use crate::openvpn::wrap::Role;
use std::time::Duration;

impl Server {
    pub(super) fn handle_events(
        &mut self,
        now: Now,
        number: SessionNumber,
        events: Vec<ChannelEvent>,
        out: &mut Outbox,
    ) {
        for event in events {
            let Some(session) = self.sessions.get_mut(&number) else { return };
            if let (ChannelEvent::Failed { key_id, .. }, Stage::Up(asked)) = (&event, &mut session.stage) {
                // There is nothing to install any more.
                asked.take_if(|asked| asked == key_id);
            }
            let result = match session.peer.handle_event(now, event, out) {
                Ok(Some(ChannelEvent::Exchanged { key_id, theirs })) => {
                    session.ask(now, key_id, *theirs, self.features, out);
                    // A client with a certificate has authenticated, however long the decision about it takes.
                    if !session.certificates().is_empty() {
                        self.begins.no_longer_pending(session.pending.take());
                    }
                    Ok(())
                }
                Ok(Some(ChannelEvent::Command(command))) => self.handle_command(now, number, command, out),
                Ok(_) => Ok(()),
                Err(cause) => Err(cause),
            };
            if let Err(cause) = result {
                return self.end(now, number, cause, out);
            }
        }
        self.flush(now, number, out);
    }

    fn flush(&mut self, now: Now, number: SessionNumber, out: &mut Outbox) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.peer.flush(now, out);
            self.arm(number);
        }
    }

    fn handle_command(
        &mut self,
        now: Now,
        number: SessionNumber,
        command: String,
        out: &mut Outbox,
    ) -> Result<(), Cause> {
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        if command != "PUSH_REQUEST" {
            out.push(Action::Command { session: number, command });
            return Ok(());
        }
        match std::mem::replace(&mut session.stage, Stage::Handshake) {
            Stage::AwaitingVerdict(mut exchange, until) => {
                exchange.has_asked = true;
                session.stage = Stage::AwaitingVerdict(exchange, until);
                Ok(())
            }
            Stage::Admitted(exchange, push, _) => self.connect(now, number, &exchange, push, out),
            other => {
                // The reply is on its way, on a reliable channel.
                session.stage = other;
                Ok(())
            }
        }
    }

    /// Takes the verdict about a client's key. It is ignored if the session has ended, or has not asked about this key.
    pub fn admit(&mut self, now: Now, number: SessionNumber, key_id: u8, verdict: Verdict, out: &mut Outbox) {
        self.clock.set(now);
        let is_full = self.only.is_none() && self.admitted >= self.max_clients;
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if session.stage.asked_about() != Some(key_id) {
            return;
        }
        let stage = std::mem::replace(&mut session.stage, Stage::Handshake);
        let result = match (stage, verdict) {
            (Stage::AwaitingVerdict(..), Verdict::Accept { .. }) if is_full => {
                session.refuse(now, "the server is full", out);
                Ok(())
            }
            (Stage::AwaitingVerdict(exchange, _), Verdict::Accept { push }) => {
                session.is_admitted = true;
                self.admitted += 1;
                let source = session.pending.take();
                self.begins.no_longer_pending(source);
                self.connect_if_asked(now, number, exchange, push, out)
            }
            (Stage::Up(Some(key_id)), Verdict::Accept { push }) => {
                session.stage = Stage::Up(None);
                let installed = session.peer.install(now, key_id, &mut *self.random, out);
                self.send_options(now, number, &push, out);
                installed
            }
            (Stage::AwaitingVerdict(..) | Stage::Up(Some(_)), Verdict::Refuse { reason }) => {
                session.refuse(now, &reason, out);
                Ok(())
            }
            (stage, _) => {
                session.stage = stage;
                Ok(())
            }
        };
        match result {
            Ok(()) => self.flush(now, number, out),
            Err(cause) => self.end(now, number, cause, out),
        }
    }

    /// Pushes more options to a client that is up, such as a new token.
    pub fn send_options(&mut self, now: Now, number: SessionNumber, options: &[String], out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if options.is_empty() || !matches!(session.stage, Stage::Up(_)) {
            return;
        }
        for message in push::emit(options).0 {
            if let Err(error) = session.peer.channel.send_command(&message) {
                return self.end(now, number, error.into(), out);
            }
        }
        self.flush(now, number, out);
    }

    /// Tells a client that its verdict waits for the user, for so long; `message` is in the words of `INFO_PRE`.
    pub fn tell_pending(
        &mut self,
        now: Now,
        number: SessionNumber,
        key_id: u8,
        wait: Duration,
        message: &str,
        out: &mut Outbox,
    ) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if session.stage.asked_about() != Some(key_id) {
            return;
        }
        let pending = match &mut session.stage {
            Stage::AwaitingVerdict(exchange, until) => {
                *until = (*until).max(now.monotonic + wait);
                let has_timeout = exchange.info.announces(proto::AUTH_PENDING);
                has_timeout.then(|| format!("AUTH_PENDING,timeout {}", wait.as_secs()))
            }
            _ => None,
        };
        let pending = pending.unwrap_or_else(|| "AUTH_PENDING".to_owned());
        for command in [pending, push::one_command(&format!("INFO_PRE,{message}"))] {
            if let Err(error) = session.peer.channel.send_command(&command) {
                return self.end(now, number, error.into(), out);
            }
        }
        self.flush(now, number, out);
    }

    fn connect_if_asked(
        &mut self,
        now: Now,
        number: SessionNumber,
        exchange: Box<Exchange>,
        push: Vec<String>,
        out: &mut Outbox,
    ) -> Result<(), Cause> {
        if self.only.is_some() {
            return self.connect_pair(now, number, &exchange, out);
        }
        // Such a client expects the reply without asking.
        if exchange.has_asked || exchange.info.has(proto::REQUEST_PUSH) {
            return self.connect(now, number, &exchange, push, out);
        }
        if let Some(session) = self.sessions.get_mut(&number) {
            session.stage = Stage::Admitted(exchange, push, now.monotonic + self.timing.hand_window);
        }
        Ok(())
    }

    fn connect(
        &mut self,
        now: Now,
        number: SessionNumber,
        exchange: &Exchange,
        push: Vec<String>,
        out: &mut Outbox,
    ) -> Result<(), Cause> {
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        let info = &exchange.info;
        let cipher = match negotiate::choose(&self.ciphers, self.fallback, info, &exchange.options) {
            Ok(cipher) => cipher,
            Err(error) => {
                session.refuse(now, "Data channel cipher negotiation failed (no shared cipher)", out);
                session.stage = Stage::Ending(now.monotonic + REFUSAL_TIME, error.into());
                return Ok(());
            }
        };
        let (compression, framing) = if self.ends_compression && has_compression(&exchange.options) {
            without_compression(info)
        } else {
            (None, None)
        };
        let agreement = Agreement {
            suite: Suite { cipher, auth: self.auth, epochs: has_epochs(info, cipher), framing },
            export_keys: info.has(proto::TLS_EXPORT),
            peer_id: info.has(proto::DATA_V2).then_some(number),
            lookup: number,
            control_exit: info.has(proto::CONTROL_EXIT),
            keepalive: self.keepalive,
        };
        let dynamic_wrap = info.has(proto::DYNAMIC_TLS_CRYPT | proto::CONTROL_EXIT);
        let own = core_options(number, info, cipher, dynamic_wrap);
        let own = own.into_iter().chain(compression.map(str::to_owned));
        let options: Vec<String> = push.into_iter().chain(own).collect();
        let (messages, left_out) = push::emit(&options);
        if !left_out.is_empty() {
            let left_out = left_out.into_iter().cloned().collect();
            out.push(Action::Report { session: number, report: Report::NotPushed(left_out) });
        }
        for message in messages {
            session.peer.channel.send_command(&message)?;
        }
        session.stage = Stage::Up(None);
        session.peer.connect(now, agreement, dynamic_wrap, &mut *self.random, out)?;
        self.replace_others(now, number, out);
        Ok(())
    }

    /// Connects with the only peer. The last session counts: the others have ended without a word, or the peer is elsewhere now.
    fn connect_pair(
        &mut self,
        now: Now,
        number: SessionNumber,
        exchange: &Exchange,
        out: &mut Outbox,
    ) -> Result<(), Cause> {
        let is_admitted =
            |(other, session): &(&SessionNumber, &Session)| **other != number && session.is_admitted;
        let others: Vec<SessionNumber> =
            self.sessions.iter().filter(is_admitted).map(|(other, _)| *other).collect();
        // Before the keys, whose packets may be looked up by the same word.
        for other in others {
            self.end(now, other, Cause::Replaced, out);
        }
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        let own = pair::Own {
            role: Role::Server,
            ciphers: &self.ciphers,
            fallback: self.fallback,
            auth: self.auth,
            keepalive: self.keepalive,
        };
        let (agreement, dynamic_wrap) =
            pair::agree(&own, &exchange.info, &exchange.options, &session.peer.channel)?;
        session.stage = Stage::Up(None);
        session.peer.connect(now, agreement, dynamic_wrap, &mut *self.random, out)
    }

    /// Ends earlier sessions of a client that connected again from its address.
    fn replace_others(&mut self, now: Now, number: SessionNumber, out: &mut Outbox) {
        let Some(address) = self.sessions.get(&number).map(|session| session.peer.address) else { return };
        let is_up = |other: &SessionNumber| self.sessions.get(other).is_some_and(|other| other.peer.is_up());
        let others: Vec<SessionNumber> = self
            .at(address)
            .map(|(_, other)| *other)
            .filter(|other| *other != number && is_up(other))
            .collect();
        for other in others {
            self.end(now, other, Cause::Replaced, out);
        }
    }
}

/// The options that the core pushes itself.
fn core_options(
    number: SessionNumber,
    info: &PeerInfo,
    cipher: DataCipher,
    dynamic_wrap: bool,
) -> Vec<String> {
    let mut options = Vec::new();
    if info.has(proto::DATA_V2) {
        options.push(format!("peer-id {number}"));
    }
    options.push(format!("cipher {cipher}"));
    let mut flags = Vec::new();
    if info.has(proto::CONTROL_EXIT) {
        flags.push("cc-exit");
        flags.extend(info.has(proto::TLS_EXPORT).then_some("tls-ekm"));
        flags.extend(dynamic_wrap.then_some("dyn-tls-crypt"));
        flags.extend(has_epochs(info, cipher).then_some("aead-epoch"));
        options.push(format!("protocol-flags {}", flags.join(" ")));
    } else if info.has(proto::TLS_EXPORT) {
        options.push(String::from("key-derivation tls-ekm"));
    }
    options
}

/// Whether the client's configuration has compression or its framing, as its summary of options says.
fn has_compression(options: &str) -> bool {
    options.split(',').any(|option| option == "comp-lzo")
}

/// The option that ends a client's compression, and the framing that is left: none with clients from 2.4 on.
fn without_compression(info: &PeerInfo) -> (Option<&'static str>, Option<Framing>) {
    let line = info.lines.iter().rev().find(|(name, _)| name == "IV_COMP_STUBv2");
    if line.is_some_and(|(_, value)| value == "1") {
        (Some("compress stub-v2"), None)
    } else {
        (Some("comp-lzo no"), Some(Framing::Before))
    }
}

/// Whether the client's data packets are under epoch keys. The flag is told beside that of exported keys.
fn has_epochs(info: &PeerInfo, cipher: DataCipher) -> bool {
    let needed = proto::DATA_EPOCH | proto::DATA_V2 | proto::TLS_EXPORT | proto::CONTROL_EXIT;
    cipher.is_aead() && info.has(needed)
}
