//! What went wrong with a peer: what each side wants, and the lines of configuration that mend it.
//!
//! Each file beside this one holds one subject: `reach` whether anything arrives, `identity` who the sides are, `proposals`
//! the algorithms, `selectors` the packets.

mod identity;
mod proposals;
mod reach;
mod selectors;
#[cfg(test)]
mod tests;

pub use reach::{unanswered, unfinished, unknown_caller, unsent};

use super::connections::{Group, Names};
use super::proof::Proof;
use crate::ipsec::model::IpsecFailure;
use std::time::Duration;
use tunnel::ikev2::{Cause, Path};

/// Describes a failure of the peer with these names, or of an unknown peer. A failure that is not authentic, any source may
/// have brought about.
pub fn failure(
    names: Option<&Names>,
    path: Path,
    authentic: bool,
    cause: &Cause,
    at: Duration,
) -> IpsecFailure {
    let unknown = unknown();
    let (what, details, fix) = explain(names.unwrap_or(&unknown), names.is_some(), path, cause, at);
    let what = if authentic { what } else { format!("{what} (unauthenticated, from {})", path.remote.ip()) };
    IpsecFailure { at: at.as_secs(), what, details, fix }
}

/// A peer takes ESP as a protocol of its own alone, which we may not send.
pub fn no_raw_sockets(at: Duration) -> IpsecFailure {
    let what = "it takes ESP without UDP, and this process may not open raw sockets".to_owned();
    let fix = "give it CAP_NET_RAW, or have the peer use NAT traversal".to_owned();
    IpsecFailure { at: at.as_secs(), what, details: Vec::new(), fix: vec![fix] }
}

fn unknown() -> Names {
    Names {
        peer: "NAME".to_owned(),
        ike_group: Group { name: "NAME".to_owned(), free: 1, pfs: None },
        proof: Proof::Secret("set vpn ipsec authentication psk NAME secret".to_owned()),
        ..Names::default()
    }
}

/// What went wrong, what each side wants, and what to do.
type Explained = (String, Vec<String>, Vec<String>);

fn explain(names: &Names, is_known: bool, path: Path, cause: &Cause, now: Duration) -> Explained {
    let set = format!("set vpn ipsec site-to-site peer {}", names.peer);
    match cause {
        Cause::NoConnection => reach::no_connection(path, &set, is_known),
        Cause::Moved { from, to } => reach::moved(*from, *to),
        Cause::NoAnswer => reach::no_answer(path),
        Cause::NoRoute => reach::no_route(path),
        Cause::NoAuthAnswer(auth) => reach::no_auth_answer(path, *auth),
        Cause::NoSuchPeer { identity } => identity::no_such_peer(&set, path.remote.ip(), identity),
        Cause::OtherName { .. } | Cause::Named { .. } => identity::other_name(names, &set, cause),
        Cause::NotAuthentic { identity, why } => identity::not_authentic(names, &set, identity, why, now),
        Cause::CannotSign(_) | Cause::OwnCertificate(_) | Cause::OnlySha1 | Cause::Refused => {
            identity::not_believed(names, &set, cause)
        }
        Cause::NoProposal { of, ours, theirs } => proposals::no_proposal(names, of, ours, theirs),
        Cause::NoSelectors { ours, theirs } => {
            selectors::no_selectors(&selectors::tunnel(names, &set), path, ours, theirs)
        }
        Cause::Contested { packets, owner } => {
            selectors::contested(&selectors::tunnel(names, &set), packets, owner)
        }
        Cause::Mode => selectors::mode(names),
        Cause::Version1 | Cause::AsksEap { .. } | Cause::AsksAddress => {
            not_supported(&selectors::tunnel(names, &set), cause)
        }
        Cause::Notified(notification) => {
            (format!("the peer refused with {notification}"), vec![], vec![its_log()])
        }
        Cause::Misbehaved(why) => {
            (format!("the peer does not follow the protocol: {why}"), vec![], vec![its_log()])
        }
        Cause::MissingRound | Cause::ExtraRound | Cause::Reconfigured => identity::other_rounds(&set, cause),
        Cause::TooManyInstances { identity } => identity::too_many(cause, identity),
        Cause::TooManyExchanges => (
            "the peer asks for more key exchanges or Child SAs than any lifetime makes necessary: they are put off"
                .to_owned(),
            vec![],
            vec![
                "look into the log of the peer: does it replace its keys all the time?".to_owned(),
                "if its keys end after few bytes or packets, let ours: set vpn ipsec esp-group NAME life-packets NUMBER, as the peer has it"
                    .to_owned(),
            ],
        ),
    }
}

/// What a peer asks for that is not supported; `tunnel` are the words before what a tunnel is for.
fn not_supported(tunnel: &str, cause: &Cause) -> Explained {
    match cause {
        Cause::Version1 => (
            "the peer asks for IKEv1, which is not supported".to_owned(),
            vec![],
            vec![
                "have the peer use IKEv2: key-exchange ikev2, or version 2, in its settings of IKE"
                    .to_owned(),
            ],
        ),
        Cause::AsksEap { identity } => (
            format!("{identity} asks for EAP, which is not supported"),
            vec![],
            vec![
                "have the peer authenticate by a pre-shared secret, a certificate or a key, as is set here"
                    .to_owned(),
            ],
        ),
        _ => (
            "the peer asks for a virtual address, which is not supported".to_owned(),
            vec![],
            vec![
                "have the peer ask for none, and use its own address or network in the tunnel".to_owned(),
                format!("{} remote prefix PREFIX, what the peer has there", tunnel),
            ],
        ),
    }
}

fn its_log() -> String {
    "look into the log of the peer".to_owned()
}
