//! What this machine itself refuses to send outside, in words.

use rustix::io::Errno;
use std::net::SocketAddr;

/// Why the kernel refused to send to a peer, and what to do; `uses` is what the filter of this machine must let out.
pub fn unsent(remote: SocketAddr, refusal: Errno, uses: &str) -> (String, Vec<String>) {
    let (remote, port) = (remote.ip(), remote.port());
    let routes = format!("look at the routes: ip route get {remote}");
    match refusal {
        Errno::NETUNREACH => (
            format!("no route to {remote}: {refusal}"),
            vec![
                format!("ip route add {remote} via GATEWAY, or a default route"),
                format!("ip route get {remote} shows what there is"),
            ],
        ),
        Errno::HOSTUNREACH => {
            (format!("{remote} is unreachable, say the routes of this machine: {refusal}"), vec![routes])
        }
        Errno::ACCESS => {
            (format!("the routes of this machine prohibit what goes to {remote}: {refusal}"), vec![routes])
        }
        Errno::INVAL => {
            (format!("the routes of this machine discard what goes to {remote}: {refusal}"), vec![routes])
        }
        Errno::PERM => (
            format!("a packet filter of this machine refuses UDP to {remote}, port {port}: {refusal}"),
            vec![format!("let out {uses} to {remote}; nft list ruleset shows what refuses")],
        ),
        _ => (format!("this machine cannot send to {remote}: {refusal}"), vec![routes]),
    }
}
