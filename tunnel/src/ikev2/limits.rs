//! Constants of this implementation, as opposed to those of the protocol.

use std::time::Duration;

/// The port of IKE.
pub const IKE_PORT: u16 = 500;
/// The port of IKE and ESP through NAT (RFC 3948).
pub const NAT_PORT: u16 = 4500;

/// Bytes of a local nonce: at least half the key size of every prf (section 2.10).
pub const NONCE: usize = 32;

/// The maximum number of transmissions of a Delete.
pub const TEARDOWN_TRANSMISSIONS: u32 = 4;

/// The maximum size of a first message in bytes: both sides keep it to sign it.
pub const LONGEST_FIRST: usize = 8192;

/// The lifetime of a half-open SA.
pub const HALF_OPEN_TIME: Duration = Duration::from_secs(30);
/// The time after which a missing IKE_AUTH is reported. Initiators need a fraction of it for the key exchange.
pub const AUTH_TIME: Duration = Duration::from_secs(5);
/// The time that a half-open SA is kept after its initiator was refused, to repeat a refusal that was lost.
pub const REFUSED_TIME: Duration = Duration::from_secs(10);
/// The number of half-open SAs from which a cookie is required (section 2.6).
pub const HALF_OPEN_COOKIE: usize = 64;
/// The same for one source. The number is small: a forged source address can make that source need a cookie, and no
/// more.
pub const HALF_OPEN_SOURCE_COOKIE: usize = 4;
/// The maximum number of half-open SAs, and of sources for which wasted first messages are counted.
pub const HALF_OPEN_TOTAL: usize = 16_384;
/// The same for one source with cookies: an IPv4 address, or an IPv6 /64.
pub const HALF_OPEN_SOURCE: usize = 32;
/// The maximum time to wait for the revocation status of a certificate, after its owner has proven its key. Both
/// initiator and responder wait. A single query has 10 s, and may have to wait for others.
pub const HELD_TIME: Duration = Duration::from_secs(15);
/// The interval at which the status is checked again.
pub const HELD_LOOK: Duration = Duration::from_millis(200);
/// The maximum number of such waits; each holds a message of up to 64 KiB.
pub const HELD_TOTAL: usize = 64;
/// How often a repeated first message is answered: small messages with a forged source must not cause much traffic to
/// it.
pub const REPEATED_ANSWERS: u32 = 8;
/// Bytes of fragments that all half-open SAs hold together.
pub const HALF_OPEN_FRAGMENTS: usize = 16 * 1024 * 1024;
/// The lifetime of the cookie secret; the previous one is valid for as long again.
pub const COOKIE_TIME: Duration = Duration::from_secs(60);
/// The maximum number of transmissions of the first message once an unauthenticated source has sent an error. The
/// genuine answer may follow (section 2.21.1), but the failure should be reported soon. The same for IKE_AUTH if
/// there are other answers.
pub const DOUBTED_TRANSMISSIONS: u32 = 3;
/// The number of answers to the first message that are kept: any of them may be the genuine one (section 2.4).
pub const INIT_ANSWERS: usize = 8;
/// The maximum number of running jobs for half-open SAs; further first messages are not answered. With the slowest
/// groups, so many jobs take a few seconds.
pub const HALF_OPEN_JOBS: usize = 256;
/// The number of messages that are queued for an initiating session while its job is running, and the maximum size of
/// each.
pub const WAITING_MESSAGES: usize = 8;
/// See [`WAITING_MESSAGES`].
pub const WAITING_BYTES: usize = 8192;
/// How often a responder may ask for a cookie or another group before the initiator gives up (section 2.6.1).
pub const INIT_RETRIES: u32 = 6;

/// The size of the largest datagram that is sent unfragmented, if the peer supports fragmentation. It fits into the
/// minimum MTU of IPv6 with the headers of IPv6 and UDP and the non-ESP marker.
pub const FRAGMENT_SIZE: usize = 1280 - 40 - 8 - 4;
/// The maximum size of an unfragmented message: the limit of UDP over IPv4 (RFC 768).
pub const LONGEST_DATAGRAM: usize = 65_535 - 8 - 20 - 4;
/// The maximum number of fragments of a message.
pub const FRAGMENTS: u16 = 64;
/// The maximum size of a reassembled message.
pub const REASSEMBLED: usize = 65_536;

/// The minimum delay of a retry after TEMPORARY_FAILURE; the maximum is twice as long (section 2.25).
pub const TEMPORARY_FAILURE_DELAY: Duration = Duration::from_secs(2);
/// The shortest configurable lifetime of a Child SA.
pub const SHORTEST_LIFETIME: Duration = Duration::from_secs(30);
/// Key exchanges and Child SAs that a peer may ask for, for each of its SAs in a lifetime: one replacement, and some
/// retries.
pub const EXCHANGES_PER_LIFETIME: u32 = 4;
/// The burst on top of it: many Child SAs at once are rekeyed, or set up by a peer that was away.
pub const EXCHANGES_AT_ONCE: u32 = 12;
/// After this time of TEMPORARY_FAILURE, both sides disagree about which SAs exist (section 2.25).
pub const TEMPORARY_FAILURE_TIME: Duration = Duration::from_secs(240);
/// Failures that are further apart have nothing to do with each other: longer than any delay of a retry, with a request sent again.
pub const TEMPORARY_FAILURE_APART: Duration = Duration::from_secs(60);
/// A liveness check is sent after this time of sending without packets from the peer.
pub const SILENCE_TIME: Duration = Duration::from_secs(10);
/// A peer that holds packets of another peer gets a liveness check at once, unless it was heard within this time: the
/// other peer can ask at any rate.
pub const DOUBT_TIME: Duration = Duration::from_secs(2);
/// A peer that holds packets of another peer is dead if it has not answered for this time, which is six checks with
/// the default timers. It may have come back under another identity, and would otherwise wait for minutes.
pub const CONTESTED_TIME: Duration = Duration::from_secs(30);
/// The longest time before the end of its lifetime at which the responder replaces a session.
pub const LATE: Duration = Duration::from_secs(300);
/// The delay before a failed rekeying is tried again.
pub const REKEY_RETRY: Duration = Duration::from_secs(10);
/// An SA that the peer has replaced is deleted locally if the peer has not deleted it after this time.
pub const REPLACED_TIME: Duration = Duration::from_secs(30);
/// Two sessions that were initiated by different sides within this time are a collision. It is longer than a message
/// is retransmitted.
pub const CROSSING_TIME: Duration = Duration::from_secs(180);
/// The interval of NAT keepalives (RFC 3948 section 4).
pub const NAT_KEEPALIVE: Duration = Duration::from_secs(20);
/// The delay before a connection that should be up is tried again.
pub const RECONNECT_DELAY: Duration = Duration::from_secs(10);
/// The time during which packets do not trigger a set-up that was refused or has failed.
pub const TRAFFIC_DELAY: Duration = Duration::from_secs(10);
/// The maximum number of instances of a profile. Peers with a shared secret can claim any identity, and become one each.
pub const INSTANCES: usize = 4096;
/// The maximum number of sessions that one peer has initiated. Reauthentication needs two, but a peer may forget
/// sessions without deleting them.
pub const PEER_SESSIONS: usize = 4;
/// The maximum number of selectors of one side into which a peer may split the configured ones, unless more are
/// configured.
pub const SELECTORS: usize = 32;
/// The maximum number of Child SAs of a session.
pub const CHILDREN: usize = 256;
/// The same on top of it, during rekeying.
pub const REPLACED_CHILDREN: usize = 64;
/// The burst of reports about unauthenticated sources, for each connection and for packets of no connection: a flood
/// of datagrams must not become a flood of reports.
pub const UNAUTHENTICATED_REPORTS: u32 = 10;
/// The interval at which one further report is allowed.
pub const UNAUTHENTICATED_REPORT_INTERVAL: Duration = Duration::from_secs(1);
