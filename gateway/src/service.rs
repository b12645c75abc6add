//! What a protocol is to the daemon: it keeps its part of the configuration in force, and the API shows it.
//!
//! ```text
//! settings ──> daemon ──> Service::plan, carry_out, undo ──> interfaces, peers, host
//!                 ^              │ refusals by path
//!                 └──────────────┘
//! API ──> View ──> routes of the protocol, counters of its interfaces
//! ```

use crate::daemon::needs::Needs;
use crate::dhcp::Clients;
use crate::dns::NameServers;
use crate::facts::Tunnels;
use crate::failover;
use crate::health::Kept;
use crate::host::Host;
use crate::host::wants::Wants;
use crate::https::Process;
use crate::machine::Client;
use crate::path::model::Paths;
use crate::secgw::Opener;
use crate::snmp::SubAgent;
use crate::tunnel_interface::{Counters, Removed};
use axum::Router;
use config::{Path, Settings};
use crypto::choice::{Choice, Subject};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// What the daemon lends its services.
pub struct Context {
    /// The crypto engines.
    pub engines: Arc<Choice>,
    /// Where interfaces report that another program has deleted them.
    pub events: mpsc::UnboundedSender<Removed>,
    /// What the kernel is to have.
    pub host: Host,
    /// Who may change settings of the machine.
    pub machine: Client,
    /// The process that serves the API over HTTPS.
    pub https: Mutex<Process>,
    /// What is known of health, and who hears of it.
    pub health: Arc<Kept>,
    /// The sub-agent of snmpd.
    pub snmp: Arc<SubAgent>,
    /// The DHCP clients of interfaces.
    pub dhcp: Clients,
    /// Who sets name servers of this machine, if root has started the daemon.
    pub name_servers: Option<NameServers>,
    /// Who opens Ethernet ports, if the program has such a thread.
    pub opener: Option<Opener>,
}

/// Work that may wait for others, as for a name server.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What was refused, by its path in the configuration.
pub type Refused = BTreeMap<Path, Refusal>;

/// Why a part of the configuration could not be applied.
#[derive(Debug)]
pub struct Refusal {
    error: Box<dyn std::error::Error + Send + Sync>,
    is_temporary: bool,
    is_unfinished: bool,
}

impl Refusal {
    /// A refusal for this reason; `is_temporary` where it is tried again without a new configuration.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static, is_temporary: bool) -> Self {
        Self { error: Box::new(error), is_temporary, is_unfinished: false }
    }

    /// A step that goes on by itself after its change, as it takes long. It is temporary, and is not undone.
    pub fn unfinished(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { is_unfinished: true, ..Self::new(error, true) }
    }

    /// Whether the step goes on by itself.
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Whether it is tried again without a new configuration.
    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refusal {}

/// Why a part of the configuration is refused that this program was built without.
#[derive(Debug, thiserror::Error)]
#[error("{0}: this program was built without it: use one that was built with the cargo feature `{1}`")]
pub struct LeftOut(pub Path, pub &'static str);

impl LeftOut {
    /// The refusals of such parts.
    pub fn refuse(paths: impl IntoIterator<Item = Path>, feature: &'static str) -> Refused {
        let refusal = |path: Path| (path.clone(), Refusal::new(Self(path, feature), false));
        paths.into_iter().map(refusal).collect()
    }
}

/// What a configuration needs of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// How many there are of what is served, and what that is called.
    pub served: Vec<(usize, &'static str)>,
    /// The UDP ports that will be bound.
    pub ports: Vec<u16>,
    /// The ciphers that packets will be sealed with: to be measured before the first one.
    pub ciphers: Vec<Subject>,
    /// What the kernel must do, and have.
    pub needs: Needs,
}

impl Requirements {
    /// Adds what another protocol needs.
    pub fn extend(&mut self, other: Self) {
        self.served.extend(other.served);
        self.ports.extend(other.ports);
        self.ciphers.extend(other.ciphers);
        self.needs.extend(other.needs);
    }
}

/// What becomes of a configuration of which a part is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// That part stays what it was, or is not served, and what it is to protect is closed. The others change.
    EachPath,
    /// Everything stays what it was.
    AllOrNothing,
}

/// Which steps come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Forbids packets, before anything else changes.
    Tighten,
    /// Lets go of what another step needs before its own turn, as two interfaces that swap their ports must.
    Free,
    /// Adds what is new beside what is there. Where both are for the same, as a prefix or a port, the new one is used at once:
    /// undoing it costs packets.
    Prepare,
    /// Changes what is there. It is seldom refused, and undoing it may end sessions of what was changed.
    Switch,
    /// Removes what is no longer configured. It is not refused, and undoing it ends sessions of what was removed.
    Remove,
    /// Allows packets, after everything else has changed.
    Loosen,
}

/// A change that is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What changes.
    pub path: Path,
    /// When it has its turn.
    pub phase: Phase,
    /// UDP ports that others may have afterwards.
    pub frees: Vec<u16>,
    /// UDP ports that are bound for it, and were not before.
    pub needs: Vec<u16>,
}

impl Step {
    /// A step of an interface, which has at most one port before and one after.
    pub fn of_interface(path: Path, phase: Phase, frees: Option<u16>, needs: Option<u16>) -> Self {
        Self { path, phase, frees: frees.into_iter().collect(), needs: needs.into_iter().collect() }
    }
}

/// What a service is about to do.
#[derive(Debug, Default)]
pub struct Planned {
    /// What must be done, in this order within a phase.
    pub steps: Vec<Step>,
    /// What cannot be served, as is known already.
    pub refused: Refused,
}

/// A protocol that the daemon serves. The daemon has one of each, and calls all of them in turn. What only looks at settings
/// may be asked of one that serves nothing.
pub trait Service {
    /// What settings need of the machine.
    fn requirements(&self, settings: &Settings) -> Requirements;

    /// What the host is to know for settings, by interface, while no interface is there.
    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants>;

    /// Finds what would be refused when it is served, as far as that can be known before; and what is probably a
    /// mistake.
    fn check(&self, _settings: &Settings) -> (Vec<String>, Refused) {
        (Vec::new(), Refused::new())
    }

    /// What will not work on this machine, as it is now.
    fn warnings(&self, _settings: &Settings) -> Vec<String> {
        Vec::new()
    }

    /// Takes its part of `settings`, and says what must be done for everything of this protocol to be as they say. Nothing that
    /// is served is touched.
    fn plan<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Planned>;

    /// Does a step of the plan. One that is refused may be half done: it is undone next, unless it is unfinished.
    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>>;

    /// Undoes a step, the last one that is not undone yet; or one that was not begun. What is refused keeps back nothing else of
    /// it, and is temporary, as [`maintain`](Self::maintain) tries it again.
    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        policy: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>>;

    /// Forgets the plan: what was done of it stays.
    fn finish(&mut self) -> Work<'_, ()>;

    /// Tries again what could not be served, from time to time.
    fn maintain<'a>(&'a mut self, _context: &'a Context) -> Work<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What was refused, and is still tried again.
    fn pending(&self) -> BTreeSet<Path> {
        BTreeSet::new()
    }

    /// Whether it has an interface.
    fn serves(&self) -> bool;

    /// Forgets an interface that another program has deleted, if it is one of its own: what is not in force then.
    fn interface_removed(&mut self, _name: &str) -> Option<Path> {
        None
    }

    /// What the API shows of it.
    fn view(&self) -> Arc<dyn View> {
        Arc::new(NoView)
    }

    /// Ends everything.
    fn stop(&mut self);
}

/// What the API shows of a service, also while the service itself is being configured.
pub trait View: Send + Sync {
    /// The interfaces that there are.
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        Vec::new()
    }

    /// The protocol's own requests.
    fn routes(&self) -> Router {
        Router::new()
    }

    /// Its tunnels, each under the names of the configuration.
    fn tunnels(&self) -> Tunnels<'_> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Its groups of tunnels that stand in for each other, if it has such.
    fn failover(&self) -> Option<Arc<failover::Kept>> {
        None
    }

    /// What it has measured of the path of tunnels, if it measures that.
    fn paths(&self) -> Option<Arc<Paths>> {
        None
    }
}

/// The view of a service that has no tunnels and no requests of its own.
struct NoView;

impl View for NoView {}
