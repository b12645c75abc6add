//! How an interface is made, and why it could not be.

use super::pinning;
use crate::host::netlink::NetlinkError;
use config::settings::{Processors, Threads};
use port::Offloads;
use port::fault::Faults;
use port::pcap::Capture;
use port::tun::TunError;
use std::io;
use std::num::NonZeroUsize;
use std::thread;

/// The most receiving threads.
pub const MOST_RECEIVING: usize = 16;
/// Processors for each receiving thread of `auto`: its two workers, and crypto threads. With fewer processors, a further one would
/// take from the others.
const PROCESSORS: usize = 4;

/// How to make an interface.
#[derive(Default)]
pub struct Options {
    /// Offloads not to be used, by name.
    pub without: Vec<String>,
    /// Faults to inject into what arrives from outside.
    pub faults: Option<Faults>,
    /// How many threads seal and open packets at once.
    pub threads: Threads,
    /// The processors that the threads stay on, if there are any.
    pub processors: Processors,
    /// How many threads receive, each way; 0 is one.
    pub receive_threads: usize,
    /// Whether one thread alone sends outside, however many receive from there.
    pub has_one_sender: bool,
    /// For tests: packets are handed off also when no processor is idle.
    pub hands_off_always: bool,
    /// Where to write down what passes inside and outside.
    pub capture_inside: Option<Capture>,
    /// See above.
    pub capture_outside: Option<Capture>,
}

/// The numbers of workers.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// On the UDP sockets.
    pub(super) receivers: usize,
    /// On the queues of TUN.
    pub(super) senders: usize,
}

impl Counts {
    pub(super) fn of(options: &Options) -> Self {
        let receivers = options.receive_threads.clamp(1, MOST_RECEIVING);
        Self { receivers, senders: if options.has_one_sender { 1 } else { receivers } }
    }
}

/// How many threads receive, each way, that were configured so.
pub fn receive_threads(configured: Threads) -> usize {
    match configured {
        Threads::Auto => (processors() / PROCESSORS).clamp(1, MOST_RECEIVING),
        Threads::Count(count) => usize::from(count).clamp(1, MOST_RECEIVING),
    }
}

/// Refuses another number of receiving threads than an interface has; `path` is what to delete, so that it ends. What `auto` stands for changes
/// with the processors that the daemon may use: then the interface stays as it is.
pub fn check_receive_threads(
    name: &str,
    has: usize,
    [before, wanted]: [Threads; 2],
    path: &str,
) -> Result<(), InterfaceError> {
    let wants = receive_threads(wanted);
    if wanted == before || has == wants {
        return Ok(());
    }
    Err(InterfaceError::ReceiveThreads { name: name.to_owned(), has, wants, path: path.to_owned() })
}

/// Refuses processors that the calling thread may not use.
pub fn check_processors(wanted: &Processors, path: &str) -> Result<(), InterfaceError> {
    let usable = pinning::allowed(None);
    let missing = wanted.without(&usable);
    if missing.is_empty() {
        return Ok(());
    }
    Err(InterfaceError::Processors { path: path.to_owned(), wanted: wanted.clone(), missing, usable })
}

/// How many processors this process may use.
pub(super) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Why an interface could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// TUN refused.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// There is another interface of that name.
    #[error("interface {0} exists already: {1}")]
    Taken(String, String),
    /// The link could not be set up.
    #[error("interface {0}: {1}")]
    Link(String, NetlinkError),
    /// No such offload.
    #[error("there is no offload {0:?}: choose from {known}", known = Offloads::NAMES.join(", "))]
    Offload(String),
    /// The number of its receiving threads stays.
    #[error(
        "interface {name} has {has} receiving threads, and {wants} are wanted: they are made with it\n  fix: delete {path}, commit, and set it again; or start the daemon again"
    )]
    ReceiveThreads {
        /// The interface.
        name: String,
        /// The threads that it has.
        has: usize,
        /// Those that are configured.
        wants: usize,
        /// What is deleted, so that it ends.
        path: String,
    },
    /// Processors that are not there.
    #[error(
        "{path} processors {wanted}: there is no processor {missing} that the daemon may use\n  fix: set {path} processors LIST with some of {usable}, or delete {path} processors"
    )]
    Processors {
        /// Where they are configured.
        path: String,
        /// What is configured.
        wanted: Processors,
        /// Those of it that are missing.
        missing: Processors,
        /// Those that there are.
        usable: Processors,
    },
    /// The kernel gave no descriptor or thread.
    #[error("interface {0} cannot be served: {1}")]
    Resources(String, io::Error),
}
