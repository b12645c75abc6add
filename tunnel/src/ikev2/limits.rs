//! The numbers of our own choosing, on one page.

use std::time::Duration;

/// The port of IKE.
pub const IKE_PORT: u16 = 500;
/// The port of IKE and ESP through NAT (RFC 3948).
pub const NAT_PORT: u16 = 4500;

/// Bytes of our nonces: at least half the key of every prf (section 2.10).
pub const NONCE: usize = 32;

/// How often the Delete of an SA that is no longer used is sent at most.
pub const FAREWELL_TRANSMISSIONS: u32 = 4;

/// Bytes of a first message that we are ready to keep, as both sides sign them.
pub const LONGEST_FIRST: usize = 8192;

/// A half-open SA is forgotten after this.
pub const HALF_OPEN_TIME: Duration = Duration::from_secs(30);
/// One whose initiator was refused is kept for this, to say so again if that was lost.
pub const REFUSED_TIME: Duration = Duration::from_secs(10);
/// With so many half-open SAs a cookie is asked for (section 2.6).
pub const HALF_OPEN_COOKIE: usize = 64;
/// And with so many of one source: few enough that whoever forges its address can make it ask for a cookie, and no more.
pub const HALF_OPEN_SOURCE_COOKIE: usize = 4;
/// So many half-open SAs there are at most, and sources that are remembered for first messages that came to nothing.
pub const HALF_OPEN_TOTAL: usize = 16_384;
/// So many of one source that has returned cookies: an IPv4 address, or an IPv6 /64.
pub const HALF_OPEN_SOURCE: usize = 32;
/// An initiator that has shown its key, and of whose certificate it is still being asked whether it is revoked, waits for its
/// answer so long; so do we, where it has answered us. The question has 10 s, and may have to wait for others.
pub const HELD_TIME: Duration = Duration::from_secs(15);
/// How often it is looked whether there is an answer meanwhile.
pub const HELD_LOOK: Duration = Duration::from_millis(200);
/// So many wait so at most, each with a message of 64 KiB.
pub const HELD_TOTAL: usize = 64;
/// A first message that comes again is answered so often: what is small must not make us send much to whom it names.
pub const REPEATED_ANSWERS: u32 = 8;
/// Bytes of fragments that all half-open SAs hold together.
pub const HALF_OPEN_FRAGMENTS: usize = 16 * 1024 * 1024;
/// The secret of cookies is replaced after this; the one before it remains valid for as long.
pub const COOKIE_TIME: Duration = Duration::from_secs(60);
/// Once somebody has refused us who has not shown who it is, the first message is sent no more often than this: the true
/// answer may follow (section 2.21.1), but people want to know. The same for IKE_AUTH while others have answered as well.
pub const DOUBTED_TRANSMISSIONS: u32 = 3;
/// Answers to the first message that wait for their turn: any may be the true one (section 2.4).
pub const INIT_ANSWERS: usize = 8;
/// While jobs are done for so many who have yet to show who they are, no more are answered: of the slowest groups that is
/// a few seconds' work.
pub const GUEST_JOBS: usize = 256;
/// Messages that wait for a session of ours while one of its keys is computed, and the bytes of each.
pub const WAITING_MESSAGES: usize = 8;
/// See above.
pub const WAITING_BYTES: usize = 8192;
/// Cookies and groups that an initiator lets a responder ask for before it gives up (section 2.6.1).
pub const INIT_RETRIES: u32 = 6;

/// A datagram that is larger leaves in fragments, if the other side takes them: an IPv6 packet that every link carries,
/// without the headers of IPv6 and UDP and the non-ESP marker.
pub const FRAGMENT_SIZE: usize = 1280 - 40 - 8 - 4;
/// Bytes of a message that is not cut: more than this no datagram carries (RFC 768, with an IPv4 header).
pub const LONGEST_DATAGRAM: usize = 65_535 - 8 - 20 - 4;
/// Fragments of one message.
pub const FRAGMENTS: u16 = 64;
/// Bytes of a message put together.
pub const REASSEMBLED: usize = 65_536;

/// What was refused as a temporary failure is tried again after this, and up to as much again (section 2.25).
pub const TEMPORARY_FAILURE_DELAY: Duration = Duration::from_secs(2);
/// The shortest lifetime of a Child SA that can be configured.
pub const SHORTEST_LIFETIME: Duration = Duration::from_secs(30);
/// Key exchanges and Child SAs that a peer has us make for each of its SAs in a lifetime: it replaces one once, and may have to try again.
pub const EXCHANGES_PER_LIFETIME: u32 = 4;
/// The burst on top of it: Child SAs that are replaced, or set up by a peer that has been away.
pub const EXCHANGES_AT_ONCE: u32 = 12;
/// When the other side has refused so for this long, both have different ideas of what there is (section 2.25).
pub const TEMPORARY_FAILURE_TIME: Duration = Duration::from_secs(240);
/// A peer is asked for a sign of life when we have sent for this long and nothing has come back.
pub const SILENCE_TIME: Duration = Duration::from_secs(10);
/// A peer whose packets another peer wants gets a liveness check at once, unless it was heard within this time: the other peer
/// can ask as often as it likes.
pub const DOUBT_TIME: Duration = Duration::from_secs(2);
/// A peer whose packets another peer wants is dead if it has not answered for this long: with the default patience it was asked
/// six times by then. It may have come back under another name, and would otherwise wait for minutes.
pub const CONTESTED_TIME: Duration = Duration::from_secs(30);
/// A rekeying that failed is tried again after this.
pub const REKEY_RETRY: Duration = Duration::from_secs(10);
/// An SA that the other side has replaced is deleted by us if it is still there after this.
pub const REPLACED_TIME: Duration = Duration::from_secs(30);
/// Sessions that both sides began are taken to have been begun at once if no more than this lies between: longer than a
/// message is sent again.
pub const CROSSING_TIME: Duration = Duration::from_secs(180);
/// Keepalives for NATs are sent at this interval (RFC 3948 section 4).
pub const NAT_KEEPALIVE: Duration = Duration::from_secs(20);
/// A connection that should be up is tried again after this.
pub const RECONNECT_DELAY: Duration = Duration::from_secs(10);
/// Packets do not make us ask again for what was refused or failed, until after this.
pub const TRAFFIC_DELAY: Duration = Duration::from_secs(10);
/// Sessions that one peer has begun and not ended: more than while it authenticates anew, but it may forget them.
pub const PEER_SESSIONS: usize = 4;
/// Selectors of one side of a Child SA into which a peer may cut those that are configured, if they are not more themselves.
pub const SELECTORS: usize = 32;
/// Child SAs of one session.
pub const CHILDREN: usize = 256;
/// And so many more while they are being replaced.
pub const REPLACED_CHILDREN: usize = 64;
/// Reports at once about what anybody may have brought about, for each connection, and for all who are of none: a flood
/// of datagrams must not be one of reports.
pub const STRANGER_EVENTS: u32 = 10;
/// After this there may be one more.
pub const STRANGER_INTERVAL: Duration = Duration::from_secs(1);
