//! One `postern run` serves a network namespace. A second daemon would delete the routes, rules and tables of the first as those of another
//! program, and the first would put them back: between the two steps the firewall lets all packets through.

use crate::service_user::User;
use crate::{Failure, client};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, geteuid};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// An abstract name: of this network namespace, and free again when the process ends, however it ends.
const NAME: &[u8] = b"postern-run";

/// Takes the namespace, for as long as the result lives.
pub(crate) fn claim(user: Option<&User>) -> Result<Option<UnixListener>, Failure> {
    claim_as(NAME, user)
}

fn claim_as(name: &[u8], user: Option<&User>) -> Result<Option<UnixListener>, Failure> {
    match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => match holder(name) {
            Some((uid, process)) if may_be_ours(uid, user) => Err(refusal(process).into()),
            // Any process may bind it: one of another user must not keep the daemon from its work.
            _ => {
                tracing::warn!(
                    "another user has the name of postern run: whether another one runs is not known"
                );
                Ok(None)
            }
        },
        Err(error) => Err(error.into()),
    }
}

/// The user and the process that have the name. It is not waited for one that takes no connection.
fn holder(name: &[u8]) -> Option<(u32, Option<Pid>)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name).ok()?).ok()?;
    client::peer_of(UnixStream::from(socket))
}

/// Whether a user may have a daemon here: root, this user, and the one that the daemon becomes.
fn may_be_ours(uid: u32, user: Option<&User>) -> bool {
    uid == 0 || uid == geteuid().as_raw() || user.is_some_and(|it| it.uid() == uid)
}

fn refusal(process: Option<Pid>) -> String {
    let (which, fix) = match process {
        Some(pid) => (format!(", process ID {pid},"), format!("or end it first: kill {pid}")),
        None => (" in another container".to_owned(), "or end that one first".to_owned()),
    };
    format!(
        "another postern run{which} serves this network namespace\n  fix: change its configuration, {fix}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn a_name_that_is_taken_is_refused_and_free_again_afterwards() {
        let name = format!("postern-test-{}", std::process::id());
        let held = claim_as(name.as_bytes(), None).expect("it is free").expect("it is taken");
        let error = claim_as(name.as_bytes(), None).expect_err("it is taken").to_string();
        assert!(error.contains(&format!("process ID {}", std::process::id())), "{error}");
        drop(held);
        assert!(claim_as(name.as_bytes(), None).expect("it is free").is_some());
    }

    #[test]
    fn one_that_takes_no_connection_keeps_nobody_waiting() {
        let name = format!("postern-full-{}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
        let new = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket")
        };
        let listener = new();
        bind(&listener, &address).expect("it is free");
        listen(&listener, 0).expect("a listener");
        let connections = std::iter::repeat_with(|| {
            let socket = new();
            connect(&socket, &address).map(|()| socket)
        });
        let _waiting: Vec<_> = connections.take(8).map_while(Result::ok).collect();
        assert!(claim_as(name.as_bytes(), None).expect("not known").is_none());
    }

    #[test]
    fn a_process_that_cannot_be_named_is_not_to_be_killed() {
        assert!(!refusal(None).contains("kill"), "{}", refusal(None));
    }
}
