//! The side of a server: who is admitted, with which addresses.
//!
//! ```text
//! Authenticate ──> deciding: certificates, password, file of the client, addresses, client-connect, learn-address ──> admit
//!                     │ one question at a time; the client waits, and nothing else does
//!                     └──> a program (Command::Answered), the management interface (Command::Decide), or a hash (Command::Checked)
//! ```

mod deciding;
mod files;
mod hashes;
mod managed;
mod questions;
#[cfg(test)]
mod tests;
mod tokens;
mod told;
pub(super) mod variables;

use super::{Command, Report};
use crate::openvpn::limits::Limits;
use crate::openvpn::passwords::Passwords;
use crate::openvpn::pool::{Lease, Pool};
use crate::openvpn::scripts::{Environment, Hook, Request as Run, Scripts};
use crate::openvpn::settings::{Access, ForClients, ServerNetwork, ServerSettings, Site};
use crossbeam_channel::Sender;
use crypto::{Engine, Random};
pub(super) use deciding::Answered;
pub use deciding::Decision;
use deciding::{Deciding, Question};
use files::FileWatch;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use managed::Numbers;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokens::TokenOf;
use tokio::sync::mpsc;
use tunnel::openvpn::action::SessionNumber;
use tunnel::openvpn::name_fields::NameFields;
use tunnel::openvpn::{Outbox, Server};
use tunnel::{Now, Time};

/// A program whose answer nothing waits for is killed after this time.
const NOTICE: Duration = Duration::from_secs(60);

/// Where answers about clients come from.
pub(super) struct Answers {
    /// Programs.
    pub(super) scripts: Scripts,
    /// Where their answers are sent.
    pub(super) own: Sender<Command>,
    /// Where the management interface is asked.
    pub(super) reports: mpsc::UnboundedSender<Report>,
}

/// A server, and its clients.
pub(super) struct ServerSide {
    pub(super) core: Server,
    network: ServerNetwork,
    access: Access,
    /// The only peer is a site.
    pub(super) site: Option<Site>,
    pool: Pool,
    scripts: Scripts,
    passwords: Option<Passwords>,
    own: Sender<Command>,
    reports: mpsc::UnboundedSender<Report>,
    /// Clients whose verdict is not complete.
    deciding: BTreeMap<SessionNumber, Deciding>,
    numbers: Numbers,
    /// The last ticket: an answer with another one is too late.
    ticket: u64,
    /// Clients that were admitted, of which some may not be connected yet.
    admitted: BTreeMap<SessionNumber, Admitted>,
    files: FileWatch,
    /// Makes sessions of tokens.
    random: Box<dyn Random>,
}

/// A client that has addresses.
struct Admitted {
    name: String,
    user: String,
    prefixes: Vec<IpNet>,
    /// What programs are told about it.
    environment: Environment,
    since: Time,
    /// Whether `client-connect` let it in, if there is such a program.
    is_announced: bool,
    /// The prefixes that `learn-address` has accepted.
    learned: Vec<IpNet>,
    token: Option<TokenOf>,
    /// See [`crate::openvpn::settings::ClientOverride::session_seconds`].
    session_seconds: Option<u32>,
}

impl ServerSide {
    pub(super) fn new(
        interface: &str,
        settings: ServerSettings,
        answers: Answers,
        engine: Arc<dyn Engine>,
        mut random: Box<dyn Random>,
    ) -> Self {
        let ServerSettings { core, network, mut access, site } = settings;
        let Answers { scripts, own, reports } = answers;
        access.environment.set("dev", interface);
        let passwords = access.hashes.take().map(|file| Passwords::start(interface, file));
        let pool = Pool::new(&network);
        let own_random = random.fork();
        let core = Server::new(core, engine, random);
        let files = FileWatch::new(&scripts);
        let (deciding, admitted) = (BTreeMap::new(), BTreeMap::new());
        Self {
            core,
            network,
            access,
            site,
            pool,
            scripts,
            passwords,
            own,
            reports,
            deciding,
            numbers: Numbers::default(),
            ticket: 0,
            admitted,
            files,
            random: own_random,
        }
    }

    /// Tells all clients that they are to connect again.
    pub(super) fn stop(&mut self, now: Now, sessions: &[SessionNumber], out: &mut Outbox) {
        let command = if self.network.sends_away { "RESTART,[N]" } else { "RESTART" };
        for session in sessions {
            if self.site.is_some() {
                self.core.stop(now, *session, out);
                continue;
            }
            self.core.disconnect(now, *session, command, out);
        }
    }

    /// A client, for the log.
    pub(super) fn name_of(&self, session: SessionNumber) -> String {
        let kind = if self.site.is_some() { "peer" } else { "client" };
        let admitted = self.admitted.get(&session);
        admitted.map_or_else(|| format!("a {kind}"), |admitted| format!("{kind} {}", admitted.name))
    }

    /// The common name of a client.
    pub(super) fn common_name(&self, session: SessionNumber) -> Option<&str> {
        self.admitted.get(&session).map(|admitted| admitted.name.as_str())
    }

    /// The fields that make the name of a client.
    pub(super) fn name_fields(&self) -> &NameFields {
        &self.access.name_fields
    }

    /// The user name of a client.
    pub(super) fn user(&self, session: SessionNumber) -> Option<&str> {
        let admitted = self.admitted.get(&session);
        admitted.map(|admitted| admitted.user.as_str()).filter(|user| !user.is_empty())
    }

    /// The sessions of clients with a common name.
    pub(super) fn sessions_of(&self, name: &str) -> Vec<SessionNumber> {
        let named = self.admitted.iter().filter(|(_, admitted)| admitted.name == name);
        named.map(|(session, _)| *session).collect()
    }

    /// Takes over what clients are told. Clients whose own settings have changed connect again.
    pub(super) fn adopt(&mut self, now: Now, change: ForClients, out: &mut Outbox) {
        let ForClients { push, clients } = change;
        let before = std::mem::replace(&mut self.network.clients, clients);
        self.network.push = push;
        self.pool.reserve(self.network.clients.values());
        let has_changed = |name: &str| before.get(name) != self.network.clients.get(name);
        let changed = self.admitted.iter().filter(|(_, admitted)| has_changed(&admitted.name));
        let changed: Vec<SessionNumber> = changed.map(|(session, _)| *session).collect();
        self.stop(now, &changed, out);
    }

    /// How long the session of a client lasts. `usual`: what the file of the server says.
    pub(super) fn limits(&self, session: SessionNumber, usual: Limits) -> Limits {
        let own = self.admitted.get(&session).and_then(|admitted| admitted.session_seconds);
        match own {
            Some(0) => Limits { session: None, ..usual },
            Some(seconds) => Limits { session: Some(Duration::from_secs(seconds.into())), ..usual },
            None => usual,
        }
    }

    /// What leads to a client.
    pub(super) fn prefixes(&self, session: SessionNumber) -> Vec<IpNet> {
        self.admitted.get(&session).map(|admitted| admitted.prefixes.clone()).unwrap_or_default()
    }

    /// A session has ended, after this many bytes from and to the client.
    pub(super) fn closed(&mut self, now: Now, session: SessionNumber, bytes: [u64; 2]) {
        if let Some(deciding) = self.deciding.remove(&session) {
            self.take_back(&deciding);
        }
        self.pool.release(session);
        let lasted = self.admitted.get(&session).map(|admitted| now.monotonic - admitted.since);
        self.tell_closed(session, bytes, lasted.unwrap_or_default());
        let Some(mut admitted) = self.admitted.remove(&session) else { return };
        for prefix in std::mem::take(&mut admitted.learned) {
            self.forget_address(prefix, &admitted.environment);
        }
        if admitted.is_announced {
            self.tell_disconnected(
                &admitted.name,
                admitted.environment,
                bytes,
                now.monotonic - admitted.since,
            );
        }
    }

    /// Programs were told of a client, or are being told, that is not admitted: the contrary follows.
    fn take_back(&self, deciding: &Deciding) {
        let Deciding { environment, name, prefixes, .. } = deciding;
        let asked = match deciding.question {
            Question::Address(number) if deciding.is_asked() => prefixes.get(number),
            _ => None,
        };
        for prefix in deciding.learned.iter().chain(asked) {
            self.forget_address(*prefix, environment);
        }
        let is_connecting = deciding.question == Question::Connect && deciding.is_asked();
        if deciding.is_announced || is_connecting {
            // It has the line of client-connect, and runs after it.
            self.tell_disconnected(name, environment.clone(), [0, 0], Duration::ZERO);
        }
    }

    fn tell_disconnected(&self, name: &str, mut environment: Environment, bytes: [u64; 2], lasted: Duration) {
        if !self.scripts.has(Hook::ClientDisconnect) {
            return;
        }
        environment.set("bytes_received", bytes[0]);
        environment.set("bytes_sent", bytes[1]);
        environment.set("time_duration", lasted.as_secs());
        let mut run = Run::new(Hook::ClientDisconnect, environment, NOTICE);
        run.line = line_of(name);
        self.scripts.tell(&run);
    }

    /// `learn-address delete`.
    fn forget_address(&self, prefix: IpNet, environment: &Environment) {
        // The client may be connected again by now, with the same address.
        let is_again = |other: &Admitted| other.learned.contains(&prefix);
        if self.scripts.has(Hook::LearnAddress) && !self.admitted.values().any(is_again) {
            let mut run = Run::new(Hook::LearnAddress, environment.clone(), NOTICE);
            run.arguments = vec!["delete".to_owned(), shown(prefix)];
            run.line = line_of(&prefix);
            self.scripts.tell(&run);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        let is_late = |deciding: &Deciding| now.monotonic >= deciding.until;
        let late = self.deciding.iter().filter(|(_, deciding)| is_late(deciding));
        let late: Vec<SessionNumber> = late.map(|(session, _)| *session).collect();
        for session in late {
            self.give_up(now, session, out);
        }
        self.renew_tokens(now, out);
        self.look_at_files(now);
        self.core.handle_timeout(now, out);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let waiting = self.deciding.values().map(|deciding| deciding.until);
        let tokens = self.admitted.values().filter_map(|admitted| admitted.token.as_ref()?.renew_at);
        let others = waiting.chain(tokens).chain(self.files.next_timeout());
        self.core.next_timeout().into_iter().chain(others).min()
    }

    /// Ends earlier sessions with a common name, and those that are about to be admitted: the client has connected again. Returns whether
    /// the end of one is to be carried out.
    fn end_others(&mut self, now: Now, session: SessionNumber, name: &str, out: &mut Outbox) -> bool {
        let is_other =
            |(other, admitted): &(&SessionNumber, &Admitted)| **other != session && admitted.name == name;
        let others: Vec<SessionNumber> =
            self.admitted.iter().filter(is_other).map(|(other, _)| *other).collect();
        for other in &others {
            self.core.replace(now, *other, out);
            // Its addresses are free for the new session at once.
            self.pool.release(*other);
        }
        // One that has no addresses yet ends this one when it gets them.
        let has_addresses = |deciding: &Deciding| match deciding.question {
            Question::Addresses | Question::Connect | Question::Offer | Question::Address(_) => true,
            Question::Key
            | Question::Certificate(_)
            | Question::Management
            | Question::Password
            | Question::Name
            | Question::File
            | Question::Nothing => false,
        };
        let waiting = self.deciding.iter().filter(|(other, deciding)| {
            **other != session && deciding.name == name && has_addresses(deciding)
        });
        let waiting: Vec<SessionNumber> = waiting.map(|(other, _)| *other).collect();
        for other in waiting {
            if let Some(deciding) = self.deciding.remove(&other) {
                self.take_back(&deciding);
            }
            self.core.replace(now, other, out);
            self.pool.release(other);
        }
        !others.is_empty()
    }

    /// Ends sessions with addresses that settings give to another client. Returns whether there were any.
    fn end_holders(&mut self, now: Now, session: SessionNumber, lease: &Lease, out: &mut Outbox) -> bool {
        let prefixes: Vec<IpNet> = lease.prefixes().collect();
        let holds = |admitted: &Admitted| prefixes.iter().any(|prefix| admitted.prefixes.contains(prefix));
        let others = self.admitted.iter().filter(|(other, admitted)| **other != session && holds(admitted));
        let others: Vec<SessionNumber> = others.map(|(other, _)| *other).collect();
        for other in &others {
            tracing::warn!("{}: its address is given to another client", self.name_of(*other));
            self.core.disconnect(now, *other, "RESTART", out);
            self.pool.release(*other);
        }
        !others.is_empty()
    }
}

/// All addresses.
pub(super) fn everything() -> Vec<IpNet> {
    vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

/// A prefix as OpenVPN writes it for programs: an address without its length.
fn shown(prefix: IpNet) -> String {
    if prefix.prefix_len() == prefix.max_prefix_len() {
        prefix.addr().to_string()
    } else {
        prefix.to_string()
    }
}

/// The line of programs about one thing, which run one after the other.
fn line_of(what: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish() | 1
}
