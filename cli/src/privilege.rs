//! Drops every privilege that a gateway does not need.

use crate::Failure;
use crate::service_user::{self, User};
use caps::{CapSet, Capability, CapsHashSet};
use gateway::rights::Rights;
use gateway::rights::filter;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use tokio::runtime::{Builder, Runtime};

/// The tasks of a process that need a privilege.
#[derive(Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a need of its own")]
pub(crate) struct Needs<'a> {
    /// Follow an interface into another network namespace.
    pub(crate) other_namespaces: bool,
    /// Send and receive ESP as a protocol of its own.
    pub(crate) raw_sockets: bool,
    /// Read the configuration file again at a reload.
    pub(crate) file: Option<&'a Path>,
    /// Read these files again, too.
    pub(crate) files: Option<&'a BTreeSet<PathBuf>>,
    /// Whether the user has no folders of ours.
    pub(crate) is_guest: bool,
    /// Write revisions of the configuration.
    pub(crate) state: Option<&'a Path>,
    /// The user to switch to.
    pub(crate) user: Option<&'a User>,
    /// Hold keys in memory for long.
    pub(crate) keys: bool,
}

/// Switches to another user, if one is given. Keeps the capabilities to configure networks and to bind low ports, and drops all
/// others for good, in this thread and in those that it starts later. Must be called before any thread is started.
pub(crate) fn drop_unneeded(needs: Needs<'_>) -> Result<(), Failure> {
    if needs.keys {
        report_unlocked(lock_memory());
    }
    if let Some(user) = needs.user.filter(|_| !needs.is_guest) {
        service_user::share_folders(user);
    }
    if let Some(state) = needs.state.filter(|_| rustix::process::geteuid().is_root()) {
        service_user::give_state(state, needs.user);
    }
    if let Some(user) = needs.user {
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
    let mut files = needs.file.into_iter().chain(needs.files.into_iter().flatten().map(PathBuf::as_path));
    if files.any(is_denied) {
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

/// Drops all capabilities, in this thread and in those that it starts later.
pub(crate) fn drop_all() -> Result<(), Failure> {
    // Root without them could get them back from a program; another user has none to lose here.
    let _ = caps::clear(None, CapSet::Bounding);
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    forbid_dumps()
}

/// The capability to read files regardless of their permissions.
const READS: Capability = Capability::CAP_DAC_READ_SEARCH;

/// Whether the current user may not read the file.
fn is_denied(file: &Path) -> bool {
    File::open(file).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Protects the keys in memory: no core dump, and no access by other processes of the same user.
pub(crate) fn forbid_dumps() -> Result<(), Failure> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Locks all memory, to keep keys out of swap, unless RLIMIT_MEMLOCK limits it: under a limit, later allocations would fail.
pub(crate) fn lock_memory() -> std::io::Result<()> {
    let unlimited = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Memlock, unlimited)?;
    Ok(port::heap::lock()?)
}

fn report_unlocked(locked: std::io::Result<()>) {
    if let Err(error) = locked {
        tracing::info!(
            "keys may be written to swap, as memory cannot be locked: {error}\n  fix: LimitMEMLOCK=infinity in the unit, or no swap"
        );
    }
}

/// The runtime of the main thread. Its blocking threads, which resolve names, have no capabilities.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().on_thread_start(|| Rights::None.keep()).build()
}

/// Raises the limit of open files: each key in an engine of the kernel holds some.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}
