//! Gives up every right that a gateway does not need.

use crate::Failure;
use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process will do that needs a right of its own.
#[derive(Clone, Copy)]
pub(crate) struct Needs {
    /// Follow an interface into another network namespace.
    pub(crate) other_namespaces: bool,
    /// Send and receive ESP as a protocol of its own.
    pub(crate) raw_sockets: bool,
}

/// Keeps the rights to configure networks and to bind low ports; gives up the others for this thread and those it will
/// start, and the right to regain any.
pub(crate) fn drop_unneeded(needs: Needs) -> Result<(), Failure> {
    let mut wanted = CapsHashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_NET_BIND_SERVICE]);
    if needs.other_namespaces {
        wanted.insert(Capability::CAP_SYS_ADMIN);
    }
    if needs.raw_sockets {
        wanted.insert(Capability::CAP_NET_RAW);
    }
    let kept: CapsHashSet = caps::read(None, CapSet::Permitted)?.intersection(&wanted).copied().collect();
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Lets this process open as many files as it may: each key in an engine of the kernel's holds some.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}
