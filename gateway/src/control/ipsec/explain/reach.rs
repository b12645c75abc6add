//! Where the peer is, and whether anything arrives there.

use super::Explained;
use crate::api::model::IpsecFailure;
use std::net::SocketAddr;
use std::time::Duration;
use tunnel::ikev2::Path;

/// A call has not been answered yet.
pub fn unanswered(path: Path, sent: u32, since: Duration, at: Duration) -> IpsecFailure {
    let (remote, port) = (path.remote.ip(), path.remote.port());
    let (messages, seconds) = (if sent == 1 { "message" } else { "messages" }, since.as_secs_f32());
    IpsecFailure {
        at: at.as_secs(),
        what: format!(
            "{remote} has not answered {sent} {messages} to UDP port {port} within {seconds:.0} s, and is called again"
        ),
        details: Vec::new(),
        fix: vec![reach(path)],
    }
}

/// A peer does not answer.
pub(super) fn no_answer(path: Path) -> Explained {
    let (remote, port) = (path.remote.ip(), path.remote.port());
    (format!("{remote} does not answer on UDP port {port}"), vec![], vec![reach(path)])
}

/// What to do about a peer that does not answer.
fn reach(path: Path) -> String {
    format!("ping {}; let UDP 500 and 4500 through on the way; is IKE served there?", path.remote.ip())
}

/// Nobody is configured for the addresses of a call. If it came from where a peer is, it is our own address that differs.
pub(super) fn no_connection(path: Path, set: &str, is_known: bool) -> Explained {
    let (local, remote) = (path.local.ip(), path.remote.ip());
    if is_known {
        return (
            format!("{remote} calls us at {local}, and another local-address is set"),
            vec![],
            vec![
                format!("{set} local-address {local}"),
                "or have the peer call the address that is set".to_owned(),
            ],
        );
    }
    (format!("no peer is configured for {remote}"), vec![], vec![format!("{set} remote-address {remote}")])
}

/// A connection goes on from another address than that at which it began.
pub(super) fn moved(from: SocketAddr, to: SocketAddr) -> Explained {
    (
        format!("{} began a connection, and its IKE_AUTH came from {}: ignored", from.ip(), to.ip()),
        vec!["a copy of it may be sent from anywhere, so both must come from one address".to_owned()],
        vec![format!("have the NAT before {} give one host one address (RFC 4787)", from.ip())],
    )
}
