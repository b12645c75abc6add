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
use super::start::{Beginning, begin};
use super::transactions::{Change, Transactions, checked};
use super::{Daemon, fault};
use crate::api;
use crate::api::model::{ReloadOutcome, Reloaded, Via};
use crate::clock::since_boot;
use crate::dns::NameServers;
use crate::health;
use crate::helper::Connection;
use crate::host::Host;
use crate::host::netlink::NetlinkError;
use crate::https::Process;
use crate::machine::{self, Client};
use crate::secgw::Opener;
use crate::service::{Policy, Refusal, Refused};
use crate::tunnel_interface::Removed;
use crate::unix_socket::SocketError;
use config::diff;
use crypto::choice::{Choice, Subject};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

/// How often it is looked again at what could not be served, and where those are who do not answer.
const MAINTENANCE: Duration = Duration::from_secs(15);

/// How often other tasks get their turn at the end: more often than an answer needs on its way to the socket.
const TURNS: usize = 16;

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
    pub machine: machine::Connection,
    /// Where the process is that serves the API over HTTPS.
    pub https: Connection,
    /// Where the process is that tells receivers of alerts.
    pub alerts: health::Connection,
    /// Where the process is that is the sub-agent of snmpd.
    pub snmp: Connection,
    /// Where the process is that runs DHCP clients.
    pub dhcp: Connection,
    /// The process that sets name servers of this machine, if there is one.
    pub name_servers: Option<UnixStream>,
    /// Who opens Ethernet ports, if there is one.
    pub opener: Option<Opener>,
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
    let Start {
        mut file,
        read,
        state,
        api,
        machine,
        https,
        alerts,
        snmp,
        dhcp,
        name_servers,
        opener,
        open_at_exit,
        engines,
        tell,
    } = start;
    file.accept(&read);
    let Beginning { transactions, settings, warnings, recorded } = begin(state, &file, read).await;
    let kept = settings.commit_revisions;
    let (events, removed) = mpsc::unbounded_channel();
    // First, before steps that take time or may fail.
    let host = Host::start(super::wanted(&settings))?;
    let engines = engines(&super::requirements(&settings).ciphers)?;
    let machine = Client::new(machine, file.path());
    let name_servers = name_servers.map(NameServers::start).transpose()?;
    let https = Process::new(https);
    let daemon = Daemon::new(engines, events, host, machine, https, alerts, snmp, dhcp, name_servers, opener);
    let mut server = Server { file, transactions, daemon, removed, tell };
    let applied = Box::pin(server.daemon.apply(settings, Policy::EachPath));
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
    server.transactions.now_waits(&refused, &server.daemon);
    note_refused(refused, &server.transactions.ledger);
    if let Some(via) = recorded {
        let running = server.transactions.ledger.running();
        let change = Change { via, running, kept, warnings, provisional: None };
        server.transactions.record(change).await;
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
    // Boxed, as is the commit within: it holds copies of all settings.
    Box::pin(server.obey(&mut inbox)).await;
    // A commit that is in force was answered: the answer must leave.
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    (server.tell)(Event::Stopping);
    server.daemon.stop(open_at_exit);
    Ok(())
}

/// What a daemon does next.
enum Next {
    /// It ends.
    Stop,
    Order(Order),
    /// A commit is undone that was not confirmed.
    Undo,
    /// Another program has deleted an interface.
    Gone(Removed),
    Maintain,
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
            let overdue = self.transactions.overdue();
            let is_done = match next(inbox, overdue, &mut self.removed, &mut maintenance).await {
                Next::Stop => return,
                Next::Gone(gone) => {
                    self.daemon.forget(&gone.0);
                    Some(())
                }
                Next::Maintain => inbox.stop.unless_ordered(self.daemon.maintain()).await,
                // Boxed, as a commit is.
                Next::Undo => Box::pin(self.undo(&inbox.stop)).await,
                Next::Order(order) => Box::pin(self.carry_out(order, &inbox.stop)).await,
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
                let reloaded = stop.unless_ordered(Box::pin(self.reload())).await?;
                self.daemon.shown().has_reloaded(&reloaded);
                (self.tell)(Event::Ready);
                if let Some(reply) = reply {
                    let _ = reply.send(reloaded);
                }
            }
            Order::Commit(request, reply) => {
                // What has gone is made again,
                forget(&mut self.removed, &mut self.daemon);
                let commit = Box::pin(self.transactions.commit(request, &mut self.daemon, stop));
                let mut outcome = commit.await?;
                // and what went meanwhile is not in force.
                let gone = forget(&mut self.removed, &mut self.daemon);
                if let Ok(committed) = &mut outcome {
                    committed.warnings.extend(gone.iter().map(|name| deleted_meanwhile(name)));
                }
                // One that asks no more has the answer in the archive.
                let _ = reply.send(outcome);
            }
            Order::Confirm(revision, reply) => {
                let _ = reply.send(self.transactions.confirm(revision).await);
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

    /// A commit was not confirmed in time, or could not be undone before: what was in force before it comes back. What cannot is
    /// tried again.
    async fn undo(&mut self, stop: &Stop) -> Option<()> {
        let ledger = Arc::clone(&self.transactions.ledger);
        let Some(mut undone) = ledger.provisional() else { return Some(()) };
        let (revision, back_to) = (undone.revision, undone.deadline.back_to);
        if undone.is_open() {
            tracing::warn!("revision {revision} was not confirmed in time: revision {back_to} comes back");
        }
        undone.begin_undoing();
        ledger.set_provisional(Some(undone.clone()));
        let Some((_, settings, warnings)) = checked(undone.before.tree()) else {
            undone.fails("it cannot be read".to_owned(), since_boot());
            ledger.set_provisional(Some(undone));
            return Some(());
        };
        let kept = settings.commit_revisions;
        forget(&mut self.removed, &mut self.daemon);
        let refused = stop.unless_ordered(Box::pin(self.daemon.apply(settings, Policy::EachPath))).await?;
        fault::point("applied");
        self.transactions.now_waits(&refused, &self.daemon);
        let now = ledger.running().tree();
        let running = undone.before.back_from(&now, &refused);
        // What the commit has not changed does not keep it from being undone.
        let (mut refused, _) = without_retried(refused);
        refused.retain(|path, _| !undone.before.has_as(path, &now));
        let is_undone = refused.is_empty();
        if !is_undone {
            undone.cannot_be_undone(&refused);
        }
        let provisional = (!is_undone).then_some(undone);
        if !is_undone && running.text().bytes() == ledger.running().text().bytes() {
            ledger.set_running(running);
            ledger.set_provisional(provisional);
            return Some(());
        }
        let change = Change { via: Via::Confirm, running, kept, warnings, provisional };
        self.transactions.record(change).await;
        tracing::info!("revision {} is in force", ledger.revision());
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
        let before = ledger.running();
        let old = before.tree();
        let mut changes: Vec<String> = diff::diff(&old, &tree).iter().map(ToString::to_string).collect();
        for change in &changes {
            tracing::info!("{change}");
        }
        // What has gone is made again,
        forget(&mut self.removed, &mut self.daemon);
        let refused = self.daemon.apply(settings, Policy::EachPath).await;
        self.transactions.now_waits(&refused, &self.daemon);
        let running = Running::new(&tree).but(&refused);
        let again = before.refused_in(&tree).into_keys().filter(|path| !running.refused().contains_key(path));
        for change in again.map(|path| format!("{path}: in force now, refused before")) {
            tracing::info!("{change}");
            changes.push(change);
        }
        let (refused, retried) = without_retried(refused);
        // and what went meanwhile is not in force.
        let gone = forget(&mut self.removed, &mut self.daemon);
        for error in refused.values() {
            tracing::error!("{error}");
        }
        ledger.has_loaded(hash, running.text());
        let change = Change { via: Via::Reload, running, kept, warnings, provisional: None };
        self.transactions.record(change).await;
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

/// What comes next. Of what is there at once, it is the first of these: a confirmation counts that came before a commit began to be
/// undone, and many orders cannot keep a commit from being undone.
async fn next(
    inbox: &mut Inbox,
    overdue: impl Future<Output = ()>,
    removed: &mut mpsc::UnboundedReceiver<Removed>,
    maintenance: &mut Interval,
) -> Next {
    tokio::select! {
        biased;
        () = inbox.stop.ordered() => Next::Stop,
        Some(order) = inbox.confirms.recv() => Next::Order(order),
        () = overdue => Next::Undo,
        Some(gone) = removed.recv() => Next::Gone(gone),
        _ = maintenance.tick() => Next::Maintain,
        Some(order) = inbox.orders.recv() => Next::Order(order),
    }
}

/// Logs and notes what failed at the start and is not retried by itself.
fn note_refused(refused: Refused, ledger: &Ledger) {
    let refused = without_retried(refused).0;
    for (path, error) in &refused {
        tracing::error!("{error}\n  {path} is not served, and what it protects stays blocked");
    }
    ledger.set_running(ledger.running().but(&refused));
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_confirmation_comes_before_undoing_and_undoing_before_other_orders() {
        let (orders, mut inbox) = Orders::channel();
        let (_gone, mut removed) = mpsc::unbounded_channel();
        let mut maintenance = tokio::time::interval(MAINTENANCE);
        maintenance.tick().await;
        // A choice by chance would be the right one now and then.
        for _ in 0..50 {
            assert!(orders.give(Order::Reload(None)) && orders.give(Order::Confirm(7, oneshot::channel().0)));
            let mut next =
                async || next(&mut inbox, std::future::ready(()), &mut removed, &mut maintenance).await;
            assert!(matches!(next().await, Next::Order(Order::Confirm(7, _))));
            assert!(matches!(next().await, Next::Undo));
            assert!(matches!(inbox.orders.try_recv(), Ok(Order::Reload(None))));
        }
    }
}
