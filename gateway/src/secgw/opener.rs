//! Opens ports for the daemon, which gives up the rights to at its start: a thread that was started before keeps them. It is there without
//! any gateway, too: a commit may bring the first one.

use super::plan::PortPlan;
use super::ports::{FramePort, PortError, open_all};
use super::reopen::{Reopened, Watch, WatchError};
use super::stopper::Stopper;
use crate::rights::Rights;
use caps::{CapSet, Capability};
use config::secgw::Driver;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Why there are no ports.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// One of them could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no thread to open them again.
    #[error("a thread for ports: {0}")]
    Thread(#[from] io::Error),
    /// The process never had the right. systemd kills one that makes the call without it.
    #[error(
        "port {0}: the daemon was started without the right to load programs of XDP (CAP_BPF)\n  \
         fix: under systemd, systemctl edit postern, with the lines for interfaces secgw of examples/systemd/postern.service, and systemctl restart postern; \
         or driver packet for the port"
    )]
    NoBpf(u16),
    /// The thread has ended.
    #[error("the thread that opens ports has ended\n  fix: restart the daemon")]
    Ended,
}

impl From<WatchError> for OpenError {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Port(error) => Self::Port(error),
            WatchError::Thread(error) => Self::Thread(error),
        }
    }
}

/// Open ports of each worker, and those that are opened again later.
pub(super) type Opened = (Vec<Vec<FramePort>>, Arc<Reopened>, Watch);

struct Request {
    ports: Vec<PortPlan>,
    stopper: Stopper,
    patience: Duration,
    reply: oneshot::Sender<Result<Opened, OpenError>>,
}

/// Asks the thread. It ends with the last of them.
#[derive(Clone)]
pub struct Opener(Sender<Request>);

impl Opener {
    /// Starts the thread, which first does `prepare`: as a process that gives up rights does.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(prepare: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (requests, inbox) = unbounded();
        std::thread::Builder::new().name("secgw opener".to_owned()).spawn(move || {
            prepare();
            Rights::Ports.keep();
            serve(&inbox);
        })?;
        Ok(Self(requests))
    }

    /// Opens ports; `stopper` is that of their workers. See [`open_all`] for `patience`.
    pub(super) async fn open(
        &self,
        ports: Vec<PortPlan>,
        stopper: Stopper,
        patience: Duration,
    ) -> Result<Opened, OpenError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.0.send(Request { ports, stopper, patience, reply });
        answer.await.unwrap_or(Err(OpenError::Ended))
    }
}

fn serve(inbox: &Receiver<Request>) {
    for Request { ports, stopper, patience, reply } in inbox {
        // The daemon may be about to end.
        let _ = reply.send(open_and_watch(&ports, stopper, patience));
    }
}

fn open_and_watch(ports: &[PortPlan], stopper: Stopper, patience: Duration) -> Result<Opened, OpenError> {
    let may_load = caps::has_cap(None, CapSet::Effective, Capability::CAP_BPF).unwrap_or(true);
    if let Some(port) = ports.iter().find(|port| port.driver == Driver::AfXdp && !may_load) {
        return Err(OpenError::NoBpf(port.number));
    }
    let opened = open_all(ports, stopper.workers(), patience)?;
    let (reopened, watch) = Reopened::watch(ports, &opened, stopper)?;
    Ok((opened, reopened, watch))
}
