//! Clients and the management interface: their numbers, what it is told about them, what it decides.

use super::deciding::{Answered, Deciding, Decision, Question};
use super::{Report, ServerSide};
use crate::openvpn::control_thread::ClientEvent;
use crate::openvpn::scripts::environment::printable;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::time::Duration;
use tunnel::Now;
use tunnel::openvpn::Outbox;
use tunnel::openvpn::action::SessionNumber;

/// The numbers of clients: each connection has its own, which is never used again.
#[derive(Default)]
pub(super) struct Numbers {
    next: u64,
    known: BTreeMap<SessionNumber, Known>,
}

/// A connection.
struct Known {
    client: u64,
    /// The number of the last question about it, which programs know as that of a key. Those of keys in packets are used again.
    key: u64,
    questions: u64,
    /// Whether the management interface was told of it.
    is_told: bool,
    /// Whether it may answer a challenge: once for each question, so that what it sends cannot fill the queue of messages.
    may_respond: bool,
}

impl Numbers {
    /// A session begins: its number may be that of an earlier one.
    pub(super) fn begin(&mut self, session: SessionNumber) {
        let known = Known { client: self.next, key: 0, questions: 0, is_told: false, may_respond: false };
        self.known.insert(session, known);
        self.next += 1;
    }

    /// A client was challenged.
    pub(super) fn challenged(&mut self, session: SessionNumber) {
        self.known.entry(session).and_modify(|known| known.may_respond = true);
    }
}

impl ServerSide {
    /// The number of a client.
    pub(in super::super) fn client_of(&self, session: SessionNumber) -> u64 {
        self.numbers.known.get(&session).map_or(0, |known| known.client)
    }

    /// The session of a client with a number.
    pub(in super::super) fn session_of(&self, client: u64) -> Option<SessionNumber> {
        let mut known = self.numbers.known.iter();
        known.find(|(_, known)| known.client == client).map(|(session, _)| *session)
    }

    fn tell(&self, event: ClientEvent) {
        // When the program ends, the report has no receiver.
        let _ = self.reports.send(Report::Client(event));
    }

    /// Asks about a client.
    pub(super) fn tell_asked(&mut self, session: SessionNumber, deciding: &Deciding) {
        let Some(known) = self.numbers.known.get_mut(&session) else { return };
        known.key = known.questions;
        known.questions += 1;
        known.is_told = true;
        known.may_respond = true;
        let (client, key, is_renewal) = (known.client, known.key, deciding.request.is_renewal);
        let mut environment = deciding.environment.clone();
        environment.set("password", &*deciding.request.credentials.password);
        self.tell(ClientEvent::Asked { client, key, is_renewal, environment });
    }

    /// The session of a client is up.
    pub(in super::super) fn connected(&mut self, session: SessionNumber) {
        if !self.access.asks_management {
            return;
        }
        // A token may have stood for the answer: then it is told of now.
        let Some(known) = self.numbers.known.get_mut(&session) else { return };
        known.is_told = true;
        let client = known.client;
        let Some(admitted) = self.admitted.get(&session) else { return };
        for prefix in &admitted.prefixes {
            let is_primary = self.network.own().any(|own| own.contains(&prefix.addr())) && is_host(prefix);
            self.tell(ClientEvent::Address { client, prefix: *prefix, is_primary });
        }
        let environment = admitted.environment.clone();
        self.tell(ClientEvent::Established { client, environment });
    }

    /// A session has ended, after this many bytes from and to the client.
    pub(super) fn tell_closed(&mut self, session: SessionNumber, bytes: [u64; 2], lasted: Duration) {
        let Some(known) = self.numbers.known.remove(&session).filter(|known| known.is_told) else { return };
        let admitted = self.admitted.get(&session);
        let mut environment = admitted.map(|admitted| admitted.environment.clone()).unwrap_or_default();
        if admitted.is_some() {
            environment.set("bytes_received", bytes[0]);
            environment.set("bytes_sent", bytes[1]);
            environment.set("time_duration", lasted.as_secs());
        }
        self.tell(ClientEvent::Disconnected { client: known.client, environment });
    }

    /// A client has answered a challenge. Further answers to the same question are dropped.
    pub(in super::super) fn take_response(&mut self, now: Now, session: SessionNumber, text: &str) {
        let Some(known) = self.numbers.known.get_mut(&session) else { return };
        if !std::mem::take(&mut known.may_respond) {
            return;
        }
        let (client, key, is_told) = (known.client, known.key, known.is_told);
        self.ask_about_response(now, session, text);
        if is_told {
            self.tell_response(session, client, key, printable(text));
        }
    }

    fn tell_response(&self, session: SessionNumber, client: u64, key: u64, text: String) {
        let environment = match (self.deciding.get(&session), self.admitted.get(&session)) {
            (Some(deciding), _) => deciding.environment.clone(),
            (None, Some(admitted)) => admitted.environment.clone(),
            (None, None) => return,
        };
        self.tell(ClientEvent::Response { client, key, text, environment });
    }

    /// The session that is asked about, with the ticket of the question.
    fn asked_about(&self, client: u64, key: u64) -> Option<(SessionNumber, u64)> {
        let session = self.session_of(client)?;
        let is_last = self.numbers.known.get(&session).is_some_and(|known| known.key == key);
        let deciding = self.deciding.get(&session).filter(|_| is_last)?;
        (deciding.question == Question::Management).then_some((session, deciding.ticket))
    }

    /// Takes the decision about a client; whether it is asked about still.
    pub(in super::super) fn take_decision(
        &mut self,
        now: Now,
        client: u64,
        key: u64,
        decision: Decision,
        out: &mut Outbox,
    ) -> bool {
        let Some((session, ticket)) = self.asked_about(client, key) else { return false };
        self.answered(now, session, ticket, Answered::Management(decision), out);
        true
    }

    /// The decision comes later: the client is told this text, and has so long; whether it is asked about still.
    pub(in super::super) fn take_pending(
        &mut self,
        now: Now,
        client: u64,
        key: u64,
        text: &str,
        wait: Duration,
        out: &mut Outbox,
    ) -> bool {
        let Some((session, _)) = self.asked_about(client, key) else { return false };
        let Some(deciding) = self.deciding.get_mut(&session) else { return false };
        let wait = wait.min(self.access.longest_pending);
        deciding.until = deciding.until.max(now.monotonic + wait);
        let key_id = deciding.request.key_id;
        self.numbers.challenged(session);
        self.core.tell_pending(now, session, key_id, wait, &printable(text), out);
        true
    }
}

fn is_host(prefix: &IpNet) -> bool {
    prefix.prefix_len() == prefix.max_prefix_len()
}
