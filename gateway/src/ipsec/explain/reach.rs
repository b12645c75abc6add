//! Where the peer is, and whether anything arrives there.

use super::{Explained, its_log};
use crate::ipsec::model::IpsecFailure;
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tunnel::ikev2::{Asked, AuthMessage, Path};

/// A datagram that is larger may travel in fragments of IP.
const FITS: usize = 1400;

/// What was asked for, `sent` times, has not been answered yet.
pub fn unanswered(path: Path, asked: Asked, sent: u32, since: Duration, at: Duration) -> IpsecFailure {
    let (remote, port) = (path.remote.ip(), path.remote.port());
    let (messages, seconds) = (if sent == 1 { "message" } else { "messages" }, since.as_secs_f32());
    let (what, details, fix) = match asked {
        Asked::Init => (
            format!(
                "{remote} has not answered {sent} {messages} to UDP port {port} within {seconds:.0} s, and is called again"
            ),
            Vec::new(),
            vec![reach(path)],
        ),
        Asked::Auth(auth) => {
            let (_, details, fix) = no_auth_answer(path, auth);
            let times = if sent == 1 { "once".to_owned() } else { format!("{sent} times") };
            let what = format!(
                "{remote} has answered IKE_SA_INIT, but not IKE_AUTH to UDP port {port}, {times} within {seconds:.0} s; \
                 it is sent again"
            );
            (what, details, fix)
        }
    };
    IpsecFailure { at: at.as_secs(), what, details, fix }
}

/// IKE_SA_INIT of a peer was answered, and nothing has followed.
pub fn unfinished(path: Path, at: Duration) -> IpsecFailure {
    let remote = path.remote;
    let what = format!("IKE_SA_INIT came from {remote} and was answered, and no IKE_AUTH has followed");
    let fix = vec![
        format!("let UDP ports 500 and 4500 through on the way from {} and back", remote.ip()),
        its_log(),
    ];
    failure((format!("{what} (unauthenticated)"), Vec::new(), fix), at)
}

/// A call from an address for which no peer is configured, told of one that is expected elsewhere.
pub fn unknown_caller(peer: &str, from: IpAddr, expected: IpAddr, at: u64) -> IpsecFailure {
    let path = format!("vpn ipsec site-to-site peer {peer} remote-address");
    IpsecFailure {
        at,
        what: format!("{from} called, and no peer is configured for it; this one is expected at {expected}"),
        details: Vec::new(),
        fix: vec![
            format!("if that is this peer: set {path} {from}"),
            format!("or, if a NAT gives it changing addresses: delete {path}"),
        ],
    }
}

/// This machine has refused to send, for this reason.
pub fn unsent(path: Path, refusal: Errno, at: Duration) -> IpsecFailure {
    let (what, fix) = crate::unsent::unsent(path.remote, refusal, "UDP 500 and 4500, and ESP,");
    failure((what, Vec::new(), fix), at)
}

fn failure((what, details, fix): Explained, at: Duration) -> IpsecFailure {
    IpsecFailure { at: at.as_secs(), what, details, fix }
}

/// No route of this machine leads to the peer.
pub(super) fn no_route(path: Path) -> Explained {
    let (what, fix) = crate::unsent::unsent(path.remote, Errno::NETUNREACH, "UDP");
    (what, Vec::new(), fix)
}

/// A peer does not answer.
pub(super) fn no_answer(path: Path) -> Explained {
    let (remote, port) = (path.remote.ip(), path.remote.port());
    (format!("{remote} does not answer on UDP port {port}"), vec![], vec![reach(path)])
}

/// A peer has answered the first message, and not the second.
pub(super) fn no_auth_answer(path: Path, auth: AuthMessage) -> Explained {
    let (remote, port) = (path.remote.ip(), path.remote.port());
    let mut details = Vec::new();
    let mut fix = vec![format!("let UDP port {port} through on the way to {remote} and back")];
    if auth.datagrams > 1 {
        details.push(format!("IKE_AUTH is cut into {} datagrams: all of them must arrive", auth.datagrams));
    } else if auth.largest > FITS {
        details.push(format!(
            "IKE_AUTH has {} bytes and travels in fragments of IP, which many networks lose",
            auth.largest
        ));
        fix.push("have the peer serve IKE fragmentation (RFC 7383), or use smaller certificates".to_owned());
    }
    fix.push(its_log());
    (format!("{remote} has answered IKE_SA_INIT, but not IKE_AUTH to UDP port {port}"), details, fix)
}

/// What to do about a peer that does not answer.
fn reach(path: Path) -> String {
    format!("ping {}; let UDP 500 and 4500 through on the way; is IKE served there?", path.remote.ip())
}

/// No peer is configured for the addresses of a call. If the remote address is that of a peer, our own address differs.
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
