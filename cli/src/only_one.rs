//! One `postern run` serves a network namespace: two would take each other's routes, rules and tables for those of a stranger, and delete
//! them in turn, so that a firewall lets packets through in between.

use crate::Failure;
use crate::service_user::User;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, geteuid};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// An abstract name: of this network namespace, and free again when the process ends, however it ends.
const NAME: &[u8] = b"postern-run";

/// Takes the namespace, for as long as the result lives.
pub(crate) fn claim(user: Option<&User>) -> Result<Option<UnixListener>, Failure> {
    let address = SocketAddr::from_abstract_name(NAME)?;
    match UnixListener::bind_addr(&address) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            // Any process may bind it: one of another user must not keep the daemon from its work.
            let Some(pid) = holder(&address, user) else {
                tracing::warn!(
                    "a process of another user has the name of postern run: whether another one runs is not known"
                );
                return Ok(None);
            };
            let pid = pid.as_raw_nonzero();
            Err(format!(
                "another postern run, process ID {pid}, serves this network namespace\n  \
                 fix: change its configuration, or end it first: kill {pid}"
            )
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The process that has the name, if it may be the daemon: of root, of this user, or of the one that the daemon becomes.
fn holder(address: &SocketAddr, user: Option<&User>) -> Option<Pid> {
    let held = socket_peercred(UnixStream::connect_addr(address).ok()?).ok()?;
    let may_be =
        held.uid.is_root() || held.uid == geteuid() || user.is_some_and(|it| it.uid() == held.uid.as_raw());
    may_be.then_some(held.pid)
}
