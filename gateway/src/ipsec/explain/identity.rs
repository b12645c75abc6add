//! Who the sides are: names under which they are not known, and proofs that are not believed.

use super::{Explained, its_log};
use crate::ipsec::connections::Names;
use config::print::quoted;
use crypto::pki::{ChainError, ChainFailure, DateTime};
use std::time::Duration;
use tunnel::ikev2::{Cause, Unproved};

/// No connection is for the identity of a peer.
pub(super) fn no_such_peer(set: &str, remote: std::net::IpAddr, identity: &str) -> Explained {
    (
        format!("{remote} says that it is {identity}, and no peer is configured for that"),
        vec![],
        vec![format!("{set} authentication remote-id {}", quoted(identity))],
    )
}

/// The peer authenticates in other rounds than configured.
pub(super) fn other_rounds(set: &str, cause: &Cause) -> Explained {
    let fix = match cause {
        Cause::MissingRound => vec![
            "have the peer authenticate a second time (RFC 4739): in strongSwan, local-2 and remote-2"
                .to_owned(),
            format!("or do without: delete {} authentication second", set.trim_start_matches("set ")),
        ],
        Cause::ExtraRound => {
            vec![format!("{set} authentication second local-id ID, and remote-id ID, with the psk of both")]
        }
        _ => vec!["wait until the peer calls again".to_owned()],
    };
    (cause.to_string(), vec![], fix)
}

/// A profile serves as many peers as it may.
pub(super) fn too_many(cause: &Cause, identity: &str) -> Explained {
    let set = "set vpn ipsec site-to-site peer NAME authentication remote-id";
    (cause.to_string(), vec![], vec![format!("give it a peer of its own: {set} {}", quoted(identity))])
}

/// A name under which a side is not known.
pub(super) fn other_name(names: &Names, set: &str, cause: &Cause) -> Explained {
    match cause {
        Cause::OtherName { asked, ours } => (
            format!("the peer asks for {asked}, and we are {ours} for it"),
            vec![],
            vec![
                format!("{set} authentication local-id {}", quoted(asked)),
                format!("or have the peer's remote-id for us be {}", quoted(ours)),
            ],
        ),
        Cause::Named { identity, named } if identity == named => (
            format!("{identity} calls from another address or with other settings than its peer here has"),
            vec![],
            vec![format!(
                "compare remote-address, local-id and ike-group of peer {} with its own",
                names.peer
            )],
        ),
        Cause::Named { identity, named } => (
            format!(
                "the peer calls itself {identity}, and its certificate is that of {named} too, which is this peer"
            ),
            vec![],
            vec![
                format!("have the peer send {named} as its identity"),
                format!("{set} authentication remote-id {}", quoted(identity)),
            ],
        ),
        other => (other.to_string(), vec![], vec![its_log()]),
    }
}

/// The peer has not shown who it is; the clock of this machine says that it is `now`.
pub(super) fn not_authentic(
    names: &Names,
    set: &str,
    identity: &str,
    why: &Unproved,
    now: Duration,
) -> Explained {
    if let Some((second, proof)) = &names.second
        && let Unproved::Proof(_) = why
        && second == identity
    {
        let what = format!("{identity} has not shown who it is in the second round: {why}");
        return (what, vec![], vec![proof.to_believe(set)]);
    }
    let fix = match why {
        Unproved::Identity => {
            let named = |of: &str| format!("{set} authentication {of} {}", quoted(identity));
            let second = names.second.as_ref();
            let second = second
                .map(|_| format!("or, if it is that of the second round: {}", named("second remote-id")));
            [named("remote-id")].into_iter().chain(second).collect()
        }
        Unproved::Sha1 => names.proof.without_sha1(set, "the peer"),
        Unproved::Status(_) | Unproved::Awaited(_) => vec![
            "let this machine reach the place that the certificate names; it is asked again by itself"
                .to_owned(),
            "set pki ca NAME crl-file PATH, with a fresh list of its authority".to_owned(),
            format!("{set} authentication x509 revocation relaxed, to do without"),
        ],
        Unproved::Certificate(error) => not_trusted(names, set, error, now),
        Unproved::Proof(_) => vec![names.proof.to_believe(set)],
    };
    (format!("{identity} has not shown who it is: {why}"), vec![], fix)
}

/// What to do about a certificate of the peer's chain that is not trusted.
fn not_trusted(names: &Names, set: &str, error: &ChainError, now: Duration) -> Vec<String> {
    let renew =
        |of: &str| format!("have its authority issue a new certificate for {of}, and the peer send that one");
    let subject = error.subject.to_string();
    let clock = DateTime::from_unix_duration(now).unwrap_or(DateTime::INFINITY);
    match &error.failure {
        ChainFailure::Expired(_) => vec![
            renew(&subject),
            format!("or set the clock of this machine, if it is wrong: it says {clock}; timedatectl"),
        ],
        ChainFailure::NotYetValid(_) => vec![
            format!("set the clock of this machine, if it is behind: it says {clock}; timedatectl"),
            format!(
                "or that of the machine that issued the certificate, if it was ahead, and {}",
                renew(&subject)
            ),
        ],
        ChainFailure::Revoked => vec![renew(&subject)],
        _ => vec![names.proof.to_believe(set)],
    }
}

/// We have not shown who we are, or cannot.
pub(super) fn not_believed(names: &Names, set: &str, cause: &Cause) -> Explained {
    match cause {
        Cause::CannotSign(why) => {
            (format!("we cannot sign as the peer wants it: {why}"), vec![], vec![names.proof.to_sign(set)])
        }
        Cause::OwnCertificate(why) => (
            format!("our own certificate is not valid now: {why}"),
            vec![],
            vec![
                format!("{set} authentication x509 certificate NAME, of one that its authority has renewed"),
                "or set the clock of this machine, if it is wrong".to_owned(),
            ],
        ),
        Cause::OnlySha1 => (
            "the peer names no hash to sign with (RFC 7427), and SHA-1 is not accepted".to_owned(),
            vec![],
            names.proof.without_sha1(set, "us"),
        ),
        _ => (
            "the peer rejected our authentication".to_owned(),
            vec![],
            vec![names.proof.to_be_believed(set), other_local_id(names, set)],
        ),
    }
}

fn other_local_id(names: &Names, set: &str) -> String {
    let ours = if names.local_id.is_empty() { "our address" } else { &names.local_id };
    format!(
        "{set} authentication local-id NAME: we say that we are {ours}; NAME is the remote-id that the peer has for us"
    )
}
