//! Gives up every right that a gateway does not need.

use crate::Failure;
use crate::service_user::{self, User};
use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use gateway::control::filter;
use gateway::control::rights::Rights;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use std::fs::File;
use std::path::Path;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// What a process will do that needs a right of its own.
#[derive(Clone, Copy, Default)]
pub(crate) struct Needs<'a> {
    /// Follow an interface into another network namespace.
    pub(crate) other_namespaces: bool,
    /// Send and receive ESP as a protocol of its own.
    pub(crate) raw_sockets: bool,
    /// Read this file again later.
    pub(crate) file: Option<&'a Path>,
    /// Become this user.
    pub(crate) user: Option<&'a User>,
}

/// Becomes another user if there is one to become; keeps the rights to configure networks and to bind low ports; gives up the
/// others for this thread and those it will start, and the right to regain any. To be called before any thread is started.
pub(crate) fn drop_unneeded(needs: Needs<'_>) -> Result<(), Failure> {
    lock_memory();
    if let Some(user) = needs.user {
        service_user::share_folders(user);
        service_user::become_user(user)?;
    }
    let mut wanted = CapsHashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_NET_BIND_SERVICE]);
    if needs.other_namespaces {
        wanted.insert(Capability::CAP_SYS_ADMIN);
    }
    if needs.raw_sockets {
        wanted.insert(Capability::CAP_NET_RAW);
    }
    let had = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = had.intersection(&wanted).copied().collect();
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    let mut permitted = kept;
    if needs.file.is_some_and(is_denied) {
        permitted.extend(had.get(&READS).copied());
    }
    caps::set(None, CapSet::Permitted, &permitted)?;
    rustix::thread::set_no_new_privs(true)?;
    forbid_dumps()?;
    if let Err(error) = filter::filter_process() {
        tracing::warn!("system calls are not filtered: {error}");
    }
    Ok(())
}

/// Passes over the permissions of files, for reading.
const READS: Capability = Capability::CAP_DAC_READ_SEARCH;

/// Whether we may not read it as we are.
fn is_denied(file: &Path) -> bool {
    File::open(file).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Calls a function that reads a file which root may have kept to itself: in a thread of its own, which keeps the right to
/// that, if the process has it, and no other.
pub(crate) async fn reading<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (give, take) = oneshot::channel();
    std::thread::Builder::new().name("configuration".to_owned()).spawn(move || {
        if let Err(error) = keep_reading() {
            tracing::warn!("a thread keeps more rights than it needs: {error}");
        }
        // Nobody waits any more when the daemon is about to end.
        let _ = give.send(read());
    })?;
    Ok(take.await?)
}

fn keep_reading() -> Result<(), CapsError> {
    let had = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = had.get(&READS).copied().into_iter().collect();
    caps::set(None, CapSet::Effective, &CapsHashSet::new())?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::set(None, CapSet::Effective, &kept)
}

/// Keys are in memory: it is not written to a file when the process dies, nor shown to other processes of the same user.
fn forbid_dumps() -> Result<(), Failure> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Keeps memory out of swap, if there is no limit to what may be kept so: under a limit, memory that is needed later could
/// not be had.
fn lock_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    let locked = setrlimit(Resource::Memlock, unlimited).and_then(|()| port::heap::lock());
    if let Err(error) = locked {
        tracing::info!(
            "keys may be written to swap, as memory cannot be locked: {error}\n  fix: LimitMEMLOCK=infinity in the unit, or no swap"
        );
    }
}

/// What runs the main thread's tasks. Threads that it starts, to wait for a resolver, have no capability.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().on_thread_start(|| Rights::None.keep()).build()
}

/// Lets this process open as many files as it may: each key in an engine of the kernel's holds some.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}
