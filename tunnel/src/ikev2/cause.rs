//! Why a negotiation fails, and which side is at fault.

use super::limits::INSTANCES;
use crate::esp::TrafficSelector;
use crypto::pki::ChainError;
use std::fmt;
use std::net::SocketAddr;

/// The cause of a failure, and the side at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection is configured for these addresses.
    NoConnection,
    /// The peer speaks IKEv1.
    Version1,
    /// No connection for these addresses matches these identities.
    NoSuchPeer {
        /// The identity that the peer claims.
        identity: String,
    },
    /// The peer asks for a local identity that is not the configured one (IDr).
    OtherName {
        /// The local identity that the peer asks for.
        asked: String,
        /// The local identity that is configured for this peer.
        ours: String,
    },
    /// The proven identity of the peer belongs to another connection, and only that one may serve the peer.
    Named {
        /// The identity that the peer claims.
        identity: String,
        /// The proven identity that the other connection names; the claimed one if that connection does not match
        /// otherwise.
        named: String,
    },
    /// The peer asks for EAP authentication.
    AsksEap {
        /// The identity that the peer claims.
        identity: String,
    },
    /// The peer asks for an internal address (CFG_REQUEST).
    AsksAddress,
    /// No proposal is acceptable to both sides.
    NoProposal {
        /// What was negotiated: "IKE", or the name of a child.
        of: String,
        /// The local proposals.
        ours: Vec<String>,
        /// The proposals of the peer; empty if the peer only sent the error.
        theirs: Vec<String>,
    },
    /// The traffic selectors do not overlap.
    NoSelectors {
        /// The local and the remote selectors, as configured here.
        ours: [Vec<TrafficSelector>; 2],
        /// The same, as sent by the peer; empty if the peer only sent the error.
        theirs: [Vec<TrafficSelector>; 2],
    },
    /// One side asks for tunnel mode, the other for transport mode.
    Mode,
    /// Another connected peer holds the traffic selectors that this peer asks for.
    Contested {
        /// The selectors of the remote side.
        packets: Vec<TrafficSelector>,
        /// The identity of the other peer.
        owner: String,
    },
    /// The address of the peer changed during the set-up. The message may be a copy, and is ignored.
    Moved {
        /// The address of the first message.
        from: SocketAddr,
        /// The address of this message.
        to: SocketAddr,
    },
    /// The peer failed to authenticate.
    NotAuthentic {
        /// The identity that the peer claims.
        identity: String,
        /// The reason.
        why: Unproved,
    },
    /// Our own authentication cannot be computed.
    CannotSign(String),
    /// Our own certificate is not valid now, for this reason; every peer would reject it.
    OwnCertificate(String),
    /// Our key is RSA, and the peer announces no hash that we can sign with (RFC 7427). SHA-1 would be the only one
    /// left, and is not allowed.
    OnlySha1,
    /// The peer authenticates in fewer rounds than configured (RFC 4739).
    MissingRound,
    /// The peer authenticates in more rounds than configured.
    ExtraRound,
    /// The settings of the peer have changed between two rounds of its authentication.
    Reconfigured,
    /// The peer rejected our authentication.
    Refused,
    /// The peer refused with a notification of this name.
    Notified(String),
    /// The answer of the peer is invalid.
    Misbehaved(&'static str),
    /// The peer asks for more key exchanges or Child SAs than any lifetime makes necessary: they are refused for now.
    TooManyExchanges,
    /// Its profile serves as many peers as it may.
    TooManyInstances {
        /// The identity of the peer.
        identity: String,
    },
    /// No route leads to the peer.
    NoRoute,
    /// The peer does not answer.
    NoAnswer,
    /// The peer answered IKE_SA_INIT, but not this IKE_AUTH.
    NoAuthAnswer(AuthMessage),
}

/// The size of an IKE_AUTH message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthMessage {
    /// The number of datagrams: more than one if the message is fragmented (RFC 7383).
    pub datagrams: usize,
    /// The size of the largest datagram, in bytes.
    pub largest: usize,
}

/// The reason why the authentication of a peer is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// The identity is not the configured one.
    Identity,
    /// The signature uses SHA-1, which is not allowed.
    Sha1,
    /// The revocation status of the certificate is required and unknown, for this reason.
    Status(String),
    /// The revocation status is required and is still being queried; everything else is valid.
    Awaited(String),
    /// The certificate is not trusted.
    Certificate(Box<ChainError>),
    /// The proof of the identity is invalid, for this reason.
    Proof(String),
}

impl fmt::Display for Unproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity => f.write_str("another identity is configured"),
            Self::Sha1 => f.write_str("it signs with SHA-1"),
            Self::Certificate(error) => error.fmt(f),
            Self::Status(why) | Self::Awaited(why) | Self::Proof(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection => f.write_str("no connection is configured for these addresses"),
            Self::Version1 => f.write_str("the peer asks for IKEv1, which is not supported"),
            Self::NoSuchPeer { identity } => write!(f, "no connection is configured for {identity}"),
            Self::OtherName { asked, ours } => {
                write!(f, "the peer asks for {asked}, but our identity is {ours}")
            }
            Self::Named { identity, named } => {
                write!(f, "{identity} is also {named}, for which another connection is configured")
            }
            Self::AsksEap { identity } => write!(f, "{identity} asks for EAP, which is not supported"),
            Self::AsksAddress => f.write_str("the peer asks for a virtual address, which is not supported"),
            Self::NoProposal { of, ours, theirs } if theirs.is_empty() => {
                write!(f, "no common proposal for {of}: the peer accepts none of {}", ours.join(", "))
            }
            Self::NoProposal { of, ours, theirs } => {
                let (ours, theirs) = (ours.join(", "), theirs.join(", "));
                write!(f, "no common proposal for {of}: we offer {ours}, the peer {theirs}")
            }
            Self::NoSelectors { ours: [local, remote], theirs } => {
                write!(f, "no common traffic selectors: we have {} and {}", list(local), list(remote))?;
                match theirs {
                    [local, remote] if local.is_empty() && remote.is_empty() => Ok(()),
                    [local, remote] => write!(f, ", the peer {} and {}", list(local), list(remote)),
                }
            }
            Self::Contested { packets, owner } => {
                write!(f, "packets to {} belong to {owner}, which is connected", list(packets))
            }
            Self::Moved { from, to } => {
                write!(f, "the set-up began at {from} and continued from {to}")
            }
            Self::Mode => f.write_str("one side wants tunnel mode, the other transport mode"),
            Self::NotAuthentic { identity, why } => write!(f, "{identity} is not authenticated: {why}"),
            Self::CannotSign(why) => write!(f, "we cannot sign: {why}"),
            Self::OwnCertificate(why) => write!(f, "our own certificate is not valid: {why}"),
            Self::OnlySha1 => f.write_str("the peer announces no signature hash other than SHA-1"),
            Self::MissingRound => f.write_str("the peer does not authenticate a second time"),
            Self::ExtraRound => f.write_str("the peer authenticates once more than configured"),
            Self::Reconfigured => f.write_str("the settings changed during the authentication"),
            Self::Refused => f.write_str("the peer rejected our authentication"),
            Self::Notified(name) => write!(f, "the peer answers {name}"),
            Self::Misbehaved(why) => write!(f, "the peer violates the protocol: {why}"),
            Self::TooManyExchanges => f.write_str("the peer asks for too many key exchanges or Child SAs"),
            Self::TooManyInstances { identity } => {
                write!(f, "{INSTANCES} peers are connected already, which leaves no room for {identity}")
            }
            Self::NoRoute => f.write_str("no route leads to the peer"),
            Self::NoAnswer => f.write_str("the peer does not answer"),
            Self::NoAuthAnswer(_) => f.write_str("the peer does not answer IKE_AUTH"),
        }
    }
}

/// Selectors on one line; "nothing" for none.
fn list(selectors: &[TrafficSelector]) -> String {
    let lines: Vec<String> = selectors.iter().map(TrafficSelector::to_string).collect();
    if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_names_what_each_side_has() {
        let addresses = |from: &str, to: &str| from.parse().expect("literal")..=to.parse().expect("literal");
        let net =
            TrafficSelector { protocol: 0, ports: 0..=65535, addresses: addresses("10.0.0.0", "10.0.0.255") };
        let web =
            TrafficSelector { protocol: 6, ports: 443..=443, addresses: addresses("10.0.1.1", "10.0.1.1") };
        let cause = Cause::NoSelectors { ours: [vec![net], vec![web]], theirs: [vec![], vec![]] };
        let text = "no common traffic selectors: we have 10.0.0.0/24 and 10.0.1.1/32[6/443]";
        assert_eq!(cause.to_string(), text);
        let (ours, theirs) = (vec!["aes256gcm128".to_owned()], vec!["aes128-sha256".to_owned()]);
        let cause = Cause::NoProposal { of: "lan".to_owned(), ours, theirs };
        let text = "no common proposal for lan: we offer aes256gcm128, the peer aes128-sha256";
        assert_eq!(cause.to_string(), text);
    }
}
