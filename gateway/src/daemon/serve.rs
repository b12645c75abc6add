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

use super::Daemon;
use super::file::{ConfigFile, FileError, Read};
use super::order::{Inbox, Order, Orders};
use super::running::Running;
use crate::api::model::{ReloadOutcome, Reloaded};
use crate::api::{self, Shown};
use crate::host::Host;
use crate::host::netlink::NetlinkError;
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
    /// Where the API listens.
    pub api: PathBuf,
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
    let Start { mut file, read, api, open_at_exit, engines, tell } = start;
    file.accept(&read);
    let Read { tree, settings, .. } = read;
    let mut running = Running::new(&tree);
    drop(tree);
    let (events, mut removed) = mpsc::unbounded_channel();
    // First, before steps that take time or may fail.
    let host = Host::start(super::wanted(&settings))?;
    let engines = engines(&super::requirements(&settings).ciphers)?;
    let mut daemon = Daemon::new(engines, events, host);
    let Some(mut refused) = inbox.stop.unless_ordered(daemon.apply(settings, Policy::EachPath)).await else {
        daemon.stop(open_at_exit);
        return Ok(());
    };
    // An interface or peer that fails must not stop the others.
    if !daemon.serves()
        && let Some((_, error)) = refused.pop_first()
    {
        daemon.give_up();
        return Err(ServeError::Nothing(error));
    }
    leave_out(refused, &mut running);
    if let Err(error) = open_api(&api, file.path(), &daemon.shown(), orders).await {
        daemon.give_up();
        return Err(error.into());
    }
    tell(Event::Ready);
    tracing::info!("{} is in force", file.path().display());
    port::heap::give_back();
    let mut maintenance = tokio::time::interval(MAINTENANCE);
    maintenance.set_missed_tick_behavior(MissedTickBehavior::Delay);
    maintenance.tick().await;
    loop {
        tokio::select! {
            () = inbox.stop.ordered() => break,
            Some(gone) = removed.recv() => {
                daemon.forget(&gone.0);
            }
            _ = maintenance.tick() => {
                if inbox.stop.unless_ordered(daemon.maintain()).await.is_none() {
                    break;
                }
            }
            Some(Order::Reload(reply)) = inbox.orders.recv() => {
                tell(Event::Reloading);
                let loading = reload(&mut file, &mut running, &mut daemon, &mut removed);
                let Some(reloaded) = inbox.stop.unless_ordered(loading).await else { break };
                daemon.shown().has_reloaded(&reloaded);
                port::heap::give_back();
                tell(Event::Ready);
                if let Some(reply) = reply {
                    let _ = reply.send(reloaded);
                }
            }
        }
    }
    tell(Event::Stopping);
    daemon.stop(open_at_exit);
    Ok(())
}

/// Called once the gateway serves: a client that finds the socket can rely on that.
async fn open_api(socket: &Path, file: &Path, shown: &Shown, orders: Orders) -> Result<(), SocketError> {
    let listener = api::bind(socket).await?;
    shown.serves(file, orders);
    tokio::spawn(api::serve(listener, shown.clone()));
    Ok(())
}

/// Logs what failed at the start. What is not retried by itself is taken out of the configuration in force.
fn leave_out(refused: Refused, running: &mut Running) {
    let refused = without_retried(refused).0;
    for (path, error) in &refused {
        tracing::error!("{error}\n  {path} is not served, and what it protects stays blocked");
    }
    if !refused.is_empty() {
        running.take_over(running.tree(), &refused, &Tree::default());
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

/// Reads the file again and applies what has changed in it; if it is wrong, everything stays.
async fn reload(
    file: &mut ConfigFile,
    running: &mut Running,
    daemon: &mut Daemon,
    removed: &mut mpsc::UnboundedReceiver<Removed>,
) -> Reloaded {
    let read = match file.read_apart().await {
        Ok(read) => read,
        Err(error) => return unchanged(&error),
    };
    file.accept(&read);
    let Read { tree, settings, .. } = read;
    let old = running.tree();
    let changes: Vec<String> = diff::diff(&old, &tree).iter().map(ToString::to_string).collect();
    for change in &changes {
        tracing::info!("{change}");
    }
    // What has gone is made again,
    forget(removed, daemon);
    let (refused, retried) = without_retried(daemon.apply(settings, Policy::EachPath).await);
    // and what went meanwhile is not in force.
    let gone = forget(removed, daemon);
    for error in refused.values() {
        tracing::error!("{error}");
    }
    running.take_over(tree, &refused, &old);
    let names: Vec<String> = refused.keys().map(ToString::to_string).collect();
    let file = file.path().display();
    if !gone.is_empty() {
        let place = format!("{file} is not in force for {}, deleted while it was applied", gone.join(", "));
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

/// Forgets the interfaces that other programs have deleted until now; their names.
fn forget(removed: &mut mpsc::UnboundedReceiver<Removed>, daemon: &mut Daemon) -> Vec<String> {
    let gone = std::iter::from_fn(|| removed.try_recv().ok()).map(|gone| gone.0);
    gone.filter(|name| daemon.forget(name)).collect()
}

fn unchanged(error: &FileError) -> Reloaded {
    tracing::error!("the configuration is unchanged: {error}");
    Reloaded::new(ReloadOutcome::Refused, Vec::new(), vec![error.to_string()])
}
