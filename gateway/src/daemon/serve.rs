//! The daemon while it runs: it owns the configuration in force, and does one thing after the other.
//!
//! ```text
//! signals, API ──> orders ──┐
//! interfaces that go ───────┼──> daemon ──> services, host
//! time ─────────────────────┘      └──> events (systemd is told), the API shows the rest
//! ```
//!
//! What waits for others, as for a name server or a program that writes the file, waits beside the runtime, and is given up when
//! the daemon is to stop.

use super::file::{ConfigFile, FileError, Read};
use super::ledger::Ledger;
use super::order::{Inbox, Order, Orders, Stop};
use super::running::Running;
use super::start::{Beginning, begin, of_revision};
use super::transactions::Transactions;
use super::{Daemon, fault};
use crate::api;
use crate::api::model::{ReloadOutcome, Reloaded, Via};
use crate::host::Host;
use crate::host::netlink::NetlinkError;
use crate::https::{self, Process};
use crate::machine::{Client, Connection};
use crate::service::{Policy, Refusal, Refused};
use crate::tunnel_interface::Removed;
use crate::unix_socket::SocketError;
use config::{Tree, diff};
use crypto::choice::{Choice, Subject};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// How often it is looked again at what could not be served, and where those are who do not answer.
const MAINTENANCE: Duration = Duration::from_secs(15);

/// What a daemon reports to the program that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All is served that can be, and orders are taken.
    Ready,
    /// The configuration is read again; [`Ready`](Self::Ready) follows.
    Reloading,
    /// It ends.
    Stopping,
}

/// Why a daemon could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The kernel refused what closes.
    #[error(transparent)]
    Host(#[from] NetlinkError),
    /// There are no engines.
    #[error(transparent)]
    Engines(#[from] io::Error),
    /// Nothing could be served; this is why the first of it could not.
    #[error(transparent)]
    Nothing(Refusal),
    /// The API has no socket.
    #[error(transparent)]
    Api(#[from] SocketError),
}

/// What a daemon is started with.
pub struct Start<E, T> {
    /// The file that it serves.
    pub file: ConfigFile,
    /// What was read from it.
    pub read: Read,
    /// The folder of its revisions; `None` for a daemon that keeps none.
    pub state: Option<PathBuf>,
    /// Where the API listens.
    pub api: PathBuf,
    /// Where the process is that may change settings of the machine.
    pub machine: Connection,
    /// Where the process is that serves the API over HTTPS.
    pub https: https::Connection,
    /// Whether what was protected is open once it was stopped, whatever the configuration says.
    pub open_at_exit: bool,
    /// Finds the crypto engines, for these ciphers.
    pub engines: E,
    /// Is told what happens.
    pub tell: T,
}

/// Serves what the file says until it is told to stop.
pub async fn serve<E, T>(start: Start<E, T>, orders: Orders, mut inbox: Inbox) -> Result<(), ServeError>
where
    E: FnOnce(&[Subject]) -> io::Result<Arc<Choice>>,
    T: Fn(Event),
{
    let Start { mut file, read, state, api, machine, https, open_at_exit, engines, tell } = start;
    file.accept(&read);
    let Beginning { transactions, settings, warnings, recorded } = begin(state, &file, read).await;
    let kept = settings.commit_revisions;
    let (events, removed) = mpsc::unbounded_channel();
    // First, before steps that take time or may fail.
    let host = Host::start(super::wanted(&settings))?;
    let engines = engines(&super::requirements(&settings).ciphers)?;
    let machine = Client::new(machine, file.path());
    let daemon = Daemon::new(engines, events, host, machine, Process::new(https));
    let mut server = Server { file, transactions, daemon, removed, tell };
    let applied = server.daemon.apply(settings, Policy::EachPath);
    let Some(mut refused) = inbox.stop.unless_ordered(applied).await else {
        server.daemon.stop(open_at_exit);
        return Ok(());
    };
    // An interface or peer that fails must not stop the others.
    if !server.daemon.serves()
        && let Some((_, error)) = refused.pop_first()
    {
        server.daemon.give_up();
        return Err(ServeError::Nothing(error));
    }
    leave_out(refused, &server.transactions.ledger);
    if let Some(via) = recorded {
        server.transactions.record(via, kept, warnings).await;
    }
    if let Err(error) = server.open_api(&api, orders).await {
        server.daemon.give_up();
        return Err(error.into());
    }
    (server.tell)(Event::Ready);
    if recorded == Some(Via::Start) {
        tracing::info!("{} is in force", server.file.path().display());
    } else {
        tracing::info!("revision {} is in force", server.transactions.ledger.revision());
    }
    port::heap::give_back();
    fault::arm();
    server.obey(&mut inbox).await;
    (server.tell)(Event::Stopping);
    server.daemon.stop(open_at_exit);
    Ok(())
}

/// The daemon, and what it keeps of the configuration.
struct Server<T> {
    file: ConfigFile,
    transactions: Transactions,
    daemon: Daemon,
    /// Interfaces that other programs have deleted.
    removed: mpsc::UnboundedReceiver<Removed>,
    tell: T,
}

impl<T: Fn(Event)> Server<T> {
    /// Carries out orders, one after the other, until it is told to stop.
    async fn obey(&mut self, inbox: &mut Inbox) {
        let mut maintenance = tokio::time::interval(MAINTENANCE);
        maintenance.set_missed_tick_behavior(MissedTickBehavior::Delay);
        maintenance.tick().await;
        loop {
            let is_done = tokio::select! {
                () = inbox.stop.ordered() => return,
                Some(gone) = self.removed.recv() => {
                    self.daemon.forget(&gone.0);
                    Some(())
                }
                _ = maintenance.tick() => inbox.stop.unless_ordered(self.daemon.maintain()).await,
                () = self.transactions.overdue() => self.revert(&inbox.stop).await,
                Some(order) = inbox.orders.recv() => self.carry_out(order, &inbox.stop).await,
            };
            if is_done.is_none() {
                return;
            }
        }
    }

    /// Carries out an order, unless the daemon is to stop first.
    async fn carry_out(&mut self, order: Order, stop: &Stop) -> Option<()> {
        match order {
            Order::Reload(reply) => {
                (self.tell)(Event::Reloading);
                let reloaded = stop.unless_ordered(self.reload()).await?;
                self.daemon.shown().has_reloaded(&reloaded);
                (self.tell)(Event::Ready);
                if let Some(reply) = reply {
                    let _ = reply.send(reloaded);
                }
            }
            Order::Commit(request, reply) => {
                // What has gone is made again,
                forget(&mut self.removed, &mut self.daemon);
                let mut outcome = self.transactions.commit(request, &mut self.daemon, stop).await?;
                // and what went meanwhile is not in force.
                let gone = forget(&mut self.removed, &mut self.daemon);
                if let Ok(committed) = &mut outcome {
                    committed.warnings.extend(gone.iter().map(|name| deleted_meanwhile(name)));
                }
                // One that asks no more has the answer in the archive.
                let _ = reply.send(outcome);
            }
            Order::Confirm(reply) => {
                let _ = reply.send(self.transactions.confirm().await);
            }
        }
        // The answer leaves first.
        tokio::task::yield_now().await;
        port::heap::give_back();
        Some(())
    }

    /// Called once the gateway serves: a client that finds the socket can rely on that.
    async fn open_api(&self, socket: &Path, orders: Orders) -> Result<(), SocketError> {
        let listener = api::bind(socket).await?;
        let shown = self.daemon.shown();
        shown.serves(self.file.path(), Arc::clone(&self.transactions.ledger), orders);
        tokio::spawn(api::serve(listener, shown));
        Ok(())
    }

    /// A commit was not confirmed in time: what was in force before it comes back, or else the file.
    async fn revert(&mut self, stop: &Stop) -> Option<()> {
        let ledger = Arc::clone(&self.transactions.ledger);
        let (revision, back_to) = (ledger.revision(), ledger.unconfirmed()?.back_to);
        tracing::warn!("revision {revision} was not confirmed in time: revision {back_to} comes back");
        let found = match ledger.archive() {
            Ok(archive) => of_revision(archive, back_to).await,
            Err(_) => None,
        };
        let (tree, settings, warnings) = match found {
            Some(found) => found,
            None => match stop.unless_ordered(self.file.read_apart()).await? {
                Ok(Read { tree, settings, warnings, .. }) => (tree, settings, warnings),
                Err(error) => {
                    tracing::error!("neither revision {back_to} nor the file can come back: {error}");
                    ledger.set_revision(0);
                    return Some(());
                }
            },
        };
        let kept = settings.commit_revisions;
        let old = ledger.running().tree();
        forget(&mut self.removed, &mut self.daemon);
        let refused = stop.unless_ordered(self.daemon.apply(settings, Policy::EachPath)).await?;
        fault::point("applied");
        let (refused, _) = without_retried(refused);
        for error in refused.values() {
            tracing::error!("{error}");
        }
        let mut running = ledger.running();
        running.take_over(tree, &refused, &old);
        ledger.set_running(running);
        self.transactions.record(Via::Confirm, kept, warnings).await;
        port::heap::give_back();
        Some(())
    }

    /// Reads the file again and applies what has changed in it; if it is wrong, everything stays.
    async fn reload(&mut self) -> Reloaded {
        let read = match self.file.read_apart().await {
            Ok(read) => read,
            Err(error) => return unchanged(&error),
        };
        self.file.accept(&read);
        let Read { tree, settings, warnings, hash, .. } = read;
        let kept = settings.commit_revisions;
        let ledger = Arc::clone(&self.transactions.ledger);
        let mut running = ledger.running();
        let old = running.tree();
        let changes: Vec<String> = diff::diff(&old, &tree).iter().map(ToString::to_string).collect();
        for change in &changes {
            tracing::info!("{change}");
        }
        // What has gone is made again,
        forget(&mut self.removed, &mut self.daemon);
        let (refused, retried) = without_retried(self.daemon.apply(settings, Policy::EachPath).await);
        // and what went meanwhile is not in force.
        let gone = forget(&mut self.removed, &mut self.daemon);
        for error in refused.values() {
            tracing::error!("{error}");
        }
        ledger.has_loaded(hash, Running::new(&tree).text());
        running.take_over(tree, &refused, &old);
        ledger.set_running(running);
        self.transactions.record(Via::Reload, kept, warnings).await;
        let names: Vec<String> = refused.keys().map(ToString::to_string).collect();
        let file = self.file.path().display();
        if !gone.is_empty() {
            let place =
                format!("{file} is not in force for {}, deleted while it was applied", gone.join(", "));
            tracing::error!("{place}\n  fix: reload again");
            let errors = retried.into_iter().chain(refused.values().map(ToString::to_string)).chain([place]);
            return Reloaded::new(ReloadOutcome::PartlyInForce, changes, errors.collect());
        }
        if names.is_empty() {
            tracing::info!("{file} is in force");
            return Reloaded::new(ReloadOutcome::InForce, changes, retried);
        }
        let place = format!("{file} is not in force for {}, which is unchanged", names.join(", "));
        tracing::error!("{place}\n  fix: see above, then reload again");
        let errors = refused.values().map(ToString::to_string).chain([place]);
        let errors = retried.into_iter().chain(errors);
        Reloaded::new(ReloadOutcome::PartlyInForce, changes, errors.collect())
    }
}

/// Logs what failed at the start. What is not retried by itself is taken out of the configuration in force.
fn leave_out(refused: Refused, ledger: &Ledger) {
    let refused = without_retried(refused).0;
    for (path, error) in &refused {
        tracing::error!("{error}\n  {path} is not served, and what it protects stays blocked");
    }
    if !refused.is_empty() {
        let mut running = ledger.running();
        running.take_over(running.tree(), &refused, &Tree::default());
        ledger.set_running(running);
    }
}

/// Logs what is retried by itself, and separates it from the rest.
fn without_retried(refused: Refused) -> (Refused, Vec<String>) {
    let (retried, refused): (Refused, Refused) =
        refused.into_iter().partition(|(_, error)| error.is_temporary());
    let told = |error: &Refusal| format!("{error}\n  retried every {} seconds", MAINTENANCE.as_secs());
    let retried: Vec<String> = retried.values().map(told).collect();
    for error in &retried {
        tracing::warn!("{error}");
    }
    (refused, retried)
}

/// Forgets the interfaces that other programs have deleted until now; their names.
fn forget(removed: &mut mpsc::UnboundedReceiver<Removed>, daemon: &mut Daemon) -> Vec<String> {
    let gone = std::iter::from_fn(|| removed.try_recv().ok()).map(|gone| gone.0);
    gone.filter(|name| daemon.forget(name)).collect()
}

/// The warning about an interface that another program deleted during a commit.
fn deleted_meanwhile(name: &str) -> String {
    format!(
        "interface {name} was deleted while the commit was applied\n  fix: postern reload, or commit again"
    )
}

fn unchanged(error: &FileError) -> Reloaded {
    tracing::error!("the configuration is unchanged: {error}");
    Reloaded::new(ReloadOutcome::Refused, Vec::new(), vec![error.to_string()])
}
