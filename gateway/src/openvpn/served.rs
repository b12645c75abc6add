//! An interface of the daemon: a task runs it, and applies what a server gives it.
//!
//! ```text
//! create ──> task: Runner::run ──> stop ──> gone
//!                     │  beside it: the revocation list and the hashes of passwords, read again when they change
//!                     └── refused ──> link down, and the reason is shown ──> stop
//! ```

use super::client_network::Closed;
use super::interface::Interface;
use super::runner::{RunError, Runner};
use super::scripts::served::{password_hashes, revocations as read_revocations};
use super::settings::Role;
use super::tree::{self, Accepted, ReadAgain, Refused};
use super::watched_file::{LOOKED_AT, watch};
use crate::host;
use crate::host::netlink::LinkChange;
use crate::resolver;
use crate::service::Context;
use crate::tunnel_interface::{Options, Removed, end};
use config::Path;
use config::settings::OpenVpn;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Why an interface could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Its settings are not served, or its files or names are not there.
    #[error(transparent)]
    Refused(#[from] Settings),
    /// The interface could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The thread that looks names up has panicked.
    #[error("interface {0}: its settings could not be read")]
    Panicked(String),
}

/// Settings that are refused.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Settings(#[from] Refused);

/// Why an interface that is there does nothing, if that is so.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    pub(super) fn text(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

/// A running interface. Dropping it ends the interface.
pub(super) struct Served {
    pub(super) interface: Arc<Interface>,
    pub(super) settings: OpenVpn,
    pub(super) failure: Failure,
    /// Dropped, it stops the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    /// Makes an interface; host names are looked up, in a thread of their own.
    pub(super) async fn create(
        name: &str,
        path: Path,
        wanted: OpenVpn,
        closed: Closed,
        context: &Context,
    ) -> Result<Self, ServiceError> {
        let (own, copy) = (name.to_owned(), wanted.clone());
        let read = move || tree::settings(&own, &path, &copy, resolver::addresses);
        let read = tokio::task::spawn_blocking(read).await;
        let read = read.map_err(|_| ServiceError::Panicked(name.to_owned()))?;
        let Accepted { mut settings, warnings, files } = read.map_err(Settings::from)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if let Role::Client(client) = &mut settings.role {
            client.name_servers = context.name_servers.clone().filter(|_| !client.own.dns.is_off);
        }
        let engines = context.engines.clone();
        let runner =
            Runner::beside(name, settings, engines, Options::default(), context.host.handle(), Some(closed))?;
        let (interface, failure) = (runner.interface(), Failure::default());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(runner, files, stopped, context.events.clone(), failure.clone()));
        Ok(Self { interface, settings: wanted, failure, stop, task })
    }

    /// Ends it with the daemon.
    pub(super) fn abort(self) {
        self.task.abort();
    }

    /// Ends it; what it was.
    pub(super) async fn end(self) -> OpenVpn {
        let Self { interface, settings, stop, task, .. } = self;
        drop(stop);
        // If it panicked, it has said so already.
        let _ = task.await;
        end(interface).await;
        settings
    }
}

async fn run(
    mut runner: Runner,
    files: ReadAgain,
    mut stopped: oneshot::Receiver<()>,
    events: mpsc::UnboundedSender<Removed>,
    failure: Failure,
) {
    let interface = runner.interface();
    let name = interface.name().to_owned();
    // It ends with the runner, and holds the interface no longer.
    let watched = async move {
        let ReadAgain { revocations, hashes } = files;
        let revocations = async {
            if let Some(file) = revocations {
                watch(file, read_revocations, LOOKED_AT, |answer| interface.renew_revocations(answer)).await;
            }
        };
        let hashes = async {
            if let Some(file) = hashes {
                watch(file, password_hashes, LOOKED_AT, |answer| interface.renew_hashes(answer)).await;
            }
        };
        tokio::join!(revocations, hashes);
        std::future::pending::<std::convert::Infallible>().await
    };
    let ended = tokio::select! {
        ended = runner.run() => ended,
        never = watched => match never {},
        _ = &mut stopped => return close(runner).await,
    };
    match ended {
        // The daemon may have ended.
        Ok(()) => _ = events.send(Removed(name)),
        Err(error) => {
            tracing::error!("{error}");
            failure.set(error.to_string());
            let down = LinkChange { up: Some(false), ..LinkChange::default() };
            if let Err(error) = host::change_link(&name, &[down]) {
                tracing::debug!("interface {name}: {error}");
            }
        }
    }
    let _ = stopped.await;
    close(runner).await;
}

async fn close(runner: Runner) {
    // A daemon runs no programs, which alone can fail.
    if let Err(error) = runner.end("sigterm").await {
        tracing::error!("{error}");
    }
}
