//! What the protocol wants done, and what people may want to know.

use super::config::ConnectionId;
use super::identity::Identity;
use super::job::Job;
use super::nat::{Follows, Path};
use crate::esp::{ChildSa, TrafficSelector, Transport};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Names a session with another gateway, which outlives the rekeying of its IKE SA; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub(super) u64);

impl SessionId {
    /// Its number, for people.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What the protocol wants done.
pub enum Action {
    /// Send a datagram; on every local port but 500 it is preceded by the non-ESP marker.
    Send {
        /// Where from and where to.
        path: Path,
        /// The datagram.
        message: Vec<u8>,
    },
    /// Send one byte 0xff, without a marker, to keep the translation of our address alive (RFC 3948 section 4).
    KeepNat {
        /// Where from and where to.
        path: Path,
    },
    /// Keep packets under this SPI: the SA may come, and the other side may have it already.
    Expect {
        /// The SPI that we would receive with.
        spi: u32,
    },
    /// Keep them no more: there will be no such SA.
    ExpectNoMore {
        /// The SPI.
        spi: u32,
    },
    /// Accept packets under the SA, those that were kept first, and send with it.
    Install(Box<Install>),
    /// Send with this SA instead of the older one for the same packets.
    Use {
        /// The SPI that we receive with, of an SA installed before.
        spi: u32,
    },
    /// Neither accept nor send packets under this SA any more; what is sent goes by the newest one that is left.
    Retire {
        /// The SPI that we receive with.
        spi: u32,
    },
    /// ESP of this session takes another path from now on.
    Follow {
        /// Whose SAs.
        session: SessionId,
        /// Where from and where to.
        path: Path,
    },
    /// Do this work, on whatever thread has the time, and hand over what comes of it:
    /// [`Endpoint::handle_finished`](super::Endpoint::handle_finished).
    Work(Job),
    /// Something that people may want to know.
    Report(Box<Event>),
}

/// A Child SA that is ready.
pub struct Install {
    /// Of which connection.
    pub connection: ConnectionId,
    /// Which of the connection's children.
    pub child: usize,
    /// Of which session.
    pub session: SessionId,
    /// Keys and selectors.
    pub sa: ChildSa,
    /// Where ESP goes from and to.
    pub path: Path,
    /// Whether it travels in UDP.
    pub encapsulation: bool,
    /// In transport mode, the addresses of the packets.
    pub transport: Option<Transport>,
    /// Whether it goes to where the last authentic packet came from (RFC 7296 section 2.23); that is to be told to
    /// [`Endpoint::note_moved`](super::Endpoint::note_moved), and what comes from elsewhere to
    /// [`Endpoint::note_strayed`](super::Endpoint::note_strayed).
    pub follows: Follows,
    /// Whether to go on sending with the older SA: the other side may not have this one yet. [`Action::Use`] ends it,
    /// and so does the first packet that arrives under this SA.
    pub hold: bool,
}

/// Actions, in the order in which they are to be carried out.
pub type Outbox = Vec<Action>;

/// Something that people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other side is called.
    Calling {
        /// Of which connection.
        connection: ConnectionId,
        /// Where from and where to.
        path: Path,
    },
    /// Both sides have shown who they are.
    Established {
        /// Of which connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// Who the other side is.
        identity: Identity,
        /// The algorithms.
        suite: String,
        /// Where it is.
        path: Path,
    },
    /// The IKE SA has new keys.
    Rekeyed {
        /// The session.
        session: SessionId,
        /// The algorithms.
        suite: String,
    },
    /// The session is over.
    Closed {
        /// Of which connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// A Child SA is there.
    ChildUp {
        /// Of which connection.
        connection: ConnectionId,
        /// Which of the connection's children.
        child: usize,
        /// The SPI that we receive with.
        spi: u32,
        /// The algorithms.
        suite: String,
    },
    /// A Child SA is gone.
    ChildDown {
        /// Of which connection.
        connection: ConnectionId,
        /// Which of the connection's children.
        child: usize,
        /// The SPI that we received with.
        spi: u32,
    },
    /// A call of ours has not been answered yet, and is sent again.
    Unanswered {
        /// Of which connection.
        connection: ConnectionId,
        /// Where from and where to.
        path: Path,
        /// Which message of it.
        asked: Asked,
        /// How often it was sent before.
        sent: u32,
        /// How long ago for the first time.
        since: Duration,
    },
    /// Something was not agreed on.
    Failed {
        /// Of which connection, if that is known.
        connection: Option<ConnectionId>,
        /// Where the other side is.
        path: Path,
        /// Whether it is certain: it is our own doing, or the other side has shown who it is. Otherwise anybody may have
        /// brought it about, and such reports are few: none of them says how often it happened.
        authentic: bool,
        /// What went wrong, and on whose side.
        cause: Cause,
    },
}

/// Which message of a call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// IKE_SA_INIT.
    Init,
    /// IKE_AUTH, which follows when the first was answered.
    Auth(AuthMessage),
}

/// What an IKE_AUTH looks like on the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthMessage {
    /// How many datagrams it is: more than one if it is cut (RFC 7383).
    pub datagrams: usize,
    /// Bytes of the largest of them.
    pub largest: usize,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// We were asked to.
    Asked,
    /// The other side said so.
    ByPeer,
    /// The other side does not answer.
    Dead,
    /// The keys were too old and could not be replaced.
    Expired,
    /// Another session with the same gateway has taken its place.
    Replaced,
    /// The other side does not follow the protocol.
    Misbehaved,
}

/// What went wrong, and on whose side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection is configured for these addresses.
    NoConnection,
    /// The other side speaks IKEv1.
    Version1,
    /// No connection for these addresses is for these identities.
    NoSuchPeer {
        /// The identity that the peer claims.
        identity: String,
    },
    /// The other side asks for another name than the one that we have.
    OtherName {
        /// The identity of ours that the peer asks for.
        asked: String,
        /// The identity that we use with this peer.
        ours: String,
    },
    /// The peer's proven identity belongs to another connection, and only that one may serve it.
    Named {
        /// The identity that the peer claims.
        identity: String,
        /// The proven identity that the other connection names; the claimed one if that connection does not fit otherwise.
        named: String,
    },
    /// The other side asks to be authenticated by EAP.
    AsksEap {
        /// The identity that the peer claims.
        identity: String,
    },
    /// The other side asks for an address of ours (CFG_REQUEST).
    AsksAddress,
    /// Algorithms: what is offered by us and what by the other side.
    NoProposal {
        /// Whose: "IKE", or the name of a child.
        of: String,
        /// What we are ready to use.
        ours: Vec<String>,
        /// What the other side is ready to use; empty if it only said that it refuses.
        theirs: Vec<String>,
    },
    /// Packets: what is offered by us and what by the other side.
    NoSelectors {
        /// Our packets, and the other side's, as we know them.
        ours: [Vec<TrafficSelector>; 2],
        /// The same, as the other side knows them; empty if it only said that it refuses.
        theirs: [Vec<TrafficSelector>; 2],
    },
    /// One side wants tunnel mode, the other transport mode.
    Mode,
    /// The packets that this peer wants are those of another peer, which is connected.
    Contested {
        /// Those of the remote side.
        packets: Vec<TrafficSelector>,
        /// Who the other peer is.
        owner: String,
    },
    /// The other side began at one address, and goes on from another one: that may be a copy, and nothing comes of it.
    Moved {
        /// Where it began.
        from: SocketAddr,
        /// Where this came from.
        to: SocketAddr,
    },
    /// The other side is not who it should be, or does not have the secret.
    NotAuthentic {
        /// The identity that the peer claims.
        identity: String,
        /// What is wrong.
        why: Unproved,
    },
    /// We cannot show who we are.
    CannotSign(String),
    /// Our own certificate is not valid now, for this reason: every peer would refuse it.
    OwnCertificate(String),
    /// We have an RSA key, and the other side names no hash that we sign with (RFC 7427): SHA-1 is left, and not accepted.
    OnlySha1,
    /// The other side does not believe that we are who we say we are.
    Refused,
    /// The other side refused with a notification of this name.
    Notified(String),
    /// The other side's answer makes no sense.
    Misbehaved(&'static str),
    /// The other side has us do key exchanges, or make Child SAs, faster than any lifetime makes necessary: they are put off.
    TooManyExchanges,
    /// No route leads to the other side.
    NoRoute,
    /// The other side does not answer.
    NoAnswer,
    /// The other side has answered the first message, and not this one.
    NoAuthAnswer(AuthMessage),
}

/// Why the other side is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// Another identity is configured.
    Identity,
    /// It has signed with SHA-1, which is not accepted.
    Sha1,
    /// It is not known that its certificate is not revoked, and that is required, for this reason.
    Status(String),
    /// The same, and it is still being asked. All else is right.
    Awaited(String),
    /// It has not shown that the identity is its own, for this reason.
    Proof(String),
}

impl fmt::Display for Unproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity => f.write_str("another identity is configured"),
            Self::Sha1 => f.write_str("it signs with SHA-1"),
            Self::Status(why) | Self::Awaited(why) | Self::Proof(why) => f.write_str(why),
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send { path, message } => write!(f, "Send({path:?}, {} bytes)", message.len()),
            Self::KeepNat { path } => write!(f, "KeepNat({path:?})"),
            Self::Expect { spi } => write!(f, "Expect({spi:x})"),
            Self::ExpectNoMore { spi } => write!(f, "ExpectNoMore({spi:x})"),
            Self::Install(install) => write!(f, "Install({:x})", install.sa.inbound.spi),
            Self::Use { spi } => write!(f, "Use({spi:x})"),
            Self::Retire { spi } => write!(f, "Retire({spi:x})"),
            Self::Follow { path, .. } => write!(f, "Follow({path:?})"),
            Self::Work(job) => write!(f, "Work({job:?})"),
            Self::Report(event) => write!(f, "Report({event:?})"),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "it was closed here",
            Self::ByPeer => "the other side closed it",
            Self::Dead => "the other side does not answer",
            Self::Expired => "its keys were too old and could not be replaced",
            Self::Replaced => "a newer session took its place",
            Self::Misbehaved => "the other side does not follow the protocol",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection => f.write_str("no connection is configured for these addresses"),
            Self::Version1 => f.write_str("the other side asks for IKEv1, which is not served"),
            Self::NoSuchPeer { identity } => write!(f, "no connection is configured for {identity}"),
            Self::OtherName { asked, ours } => {
                write!(f, "the other side asks for {asked}, and we are {ours}")
            }
            Self::Named { identity, named } => {
                write!(f, "{identity} is also {named}, for which another connection is configured")
            }
            Self::AsksEap { identity } => write!(f, "{identity} asks for EAP, which is not served"),
            Self::AsksAddress => {
                f.write_str("the other side asks for a virtual address, which is not served")
            }
            Self::NoProposal { of, ours, theirs } if theirs.is_empty() => {
                write!(f, "no common proposal for {of}: the other side accepts none of {}", ours.join(", "))
            }
            Self::NoProposal { of, ours, theirs } => {
                let (ours, theirs) = (ours.join(", "), theirs.join(", "));
                write!(f, "no common proposal for {of}: we offer {ours}, the other side {theirs}")
            }
            Self::NoSelectors { ours: [local, remote], theirs } => {
                write!(f, "no common traffic selectors: we have {} and {}", list(local), list(remote))?;
                match theirs {
                    [local, remote] if local.is_empty() && remote.is_empty() => Ok(()),
                    [local, remote] => write!(f, ", the other side {} and {}", list(local), list(remote)),
                }
            }
            Self::Contested { packets, owner } => {
                write!(f, "packets to {} are those of {owner}, which is connected", list(packets))
            }
            Self::Moved { from, to } => {
                write!(f, "{from} began, and what should follow came from {to}")
            }
            Self::Mode => f.write_str("one side wants tunnel mode, the other transport mode"),
            Self::NotAuthentic { identity, why } => write!(f, "{identity} is not authenticated: {why}"),
            Self::CannotSign(why) => write!(f, "we cannot sign: {why}"),
            Self::OwnCertificate(why) => write!(f, "our own certificate is not valid: {why}"),
            Self::OnlySha1 => f.write_str("the other side names no hash to sign with but SHA-1"),
            Self::Refused => f.write_str("the other side does not believe that we are who we say we are"),
            Self::Notified(name) => write!(f, "the other side answers {name}"),
            Self::Misbehaved(why) => write!(f, "the other side misbehaves: {why}"),
            Self::TooManyExchanges => {
                f.write_str("the other side asks for too many key exchanges or Child SAs")
            }
            Self::NoRoute => f.write_str("no route leads to the other side"),
            Self::NoAnswer => f.write_str("the other side does not answer"),
            Self::NoAuthAnswer(_) => f.write_str("the other side does not answer IKE_AUTH"),
        }
    }
}

/// Selectors on one line; "nothing" for none.
fn list(selectors: &[TrafficSelector]) -> String {
    let one = |selector: &TrafficSelector| {
        let (from, to) = (selector.addresses.start(), selector.addresses.end());
        let addresses = if from == to { from.to_string() } else { format!("{from}-{to}") };
        let protocol = if selector.protocol == 0 { String::new() } else { format!("/{}", selector.protocol) };
        let ports = match (selector.ports.start(), selector.ports.end()) {
            (0, &u16::MAX) => String::new(),
            (from, to) if from == to => format!(":{from}"),
            (from, to) => format!(":{from}-{to}"),
        };
        format!("{addresses}{protocol}{ports}")
    };
    let lines: Vec<String> = selectors.iter().map(one).collect();
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
        let text = "no common traffic selectors: we have 10.0.0.0-10.0.0.255 and 10.0.1.1/6:443";
        assert_eq!(cause.to_string(), text);
        let (ours, theirs) = (vec!["aes256gcm128".to_owned()], vec!["aes128-sha256".to_owned()]);
        let cause = Cause::NoProposal { of: "lan".to_owned(), ours, theirs };
        let text = "no common proposal for lan: we offer aes256gcm128, the other side aes128-sha256";
        assert_eq!(cause.to_string(), text);
    }
}
