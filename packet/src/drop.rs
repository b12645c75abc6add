//! The reasons for which packets are dropped: each has a name, a counter and a sentence.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the reasons once: the enum, the list, the names and the sentences are generated from this.
macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $sentence:literal;)+) => {
        /// The reason why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// All reasons, in the order of the data path.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The reason's name in commands, JSON and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The meaning of the reason and what to do, for operators.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }
        }
    };
}

drop_reasons! {
    /// The kernel asks for a segmentation that is not possible.
    BadOffload = "bad-offload", "the kernel's segmentation request does not fit the packet";
    /// The received data do not fit into the buffer.
    Truncated = "truncated", "larger than the receive buffer";
    /// Neither a datagram of a supported protocol nor an IP packet.
    NotOurs = "not-ours", "not a message of any tunnel protocol served on this port";
    /// TCP: a length of zero, or one that no packet has; the connection is closed.
    BadFraming = "bad-framing", "the length before a packet on a TCP connection is zero or too large: the peer does not speak this protocol";
    /// TCP: too many connections that have not authenticated; the new one is closed.
    TooManyConnections = "too-many-connections", "a TCP connection was closed: too many that have not authenticated, in total or of its source";
    /// An Ethernet frame that carries no IP packet.
    NotIp = "not-ip", "a frame that carries no IP packet, such as ARP";
    /// An Ethernet frame with a VLAN tag.
    VlanTag = "vlan-tag", "a frame with a VLAN tag: the gateway carries frames without: have the switch take the tag off, or give the port the VLAN's own interface";
    /// An Ethernet frame for another station.
    OtherStation = "other-station", "a frame for another Ethernet address than that of the port: -P takes all frames";
    /// Shorter than its type requires.
    TooShort = "too-short", "shorter than its type requires";
    /// The inner IP header contradicts itself or the received length.
    Malformed = "malformed", "the inner packet is not a well-formed IP packet";
    /// The receiver index or SPI belongs to no security association.
    UnknownSa = "unknown-sa", "no session has this receiver index or SPI: it has ended, or the peer has not noticed our restart";
    /// The queue of the handshake thread is full.
    ControlQueueFull = "control-queue-full", "the queue of handshake messages is full";
    /// The first MAC of a handshake message is wrong: the sender does not know our public key.
    BadMac = "bad-mac", "a handshake message for another public key than ours";
    /// Under load, the sender has not proven its address: a cookie was sent instead.
    CookieRequired = "cookie-required", "under load, the sender must first return a cookie";
    /// Under load, the source exceeded its rate limit, or the peer sent two initiations within 20 ms.
    RateLimited = "rate-limited", "too many handshakes from this source or peer";
    /// A handshake message that does not authenticate, or does not fit the current state.
    BadHandshake = "bad-handshake", "a handshake message that fails authentication: check the keys of both sides";
    /// A malformed IKE message.
    BadIkeMessage = "bad-ike-message", "not a well-formed IKEv2 message, or an unsupported version of IKE";
    /// A message of an unknown IKE SA.
    UnknownIkeSa = "unknown-ike-sa", "no IKE SA has this SPI: it has ended, or the peer has not noticed our restart";
    /// An IKE message while no IPsec peer is configured.
    IkeNotServed = "ike-not-served", "IPsec has no peers yet, or ipsec0 is down";
    /// The initiation is not newer than the last one accepted from this peer.
    ReplayedHandshake = "replayed-handshake",
        "an initiation that is not newer than the last one: a replay, or the peer's clock was set back";
    /// TCP: the session of the packet is that of another connection.
    OtherConnection = "other-connection", "its session belongs to another TCP connection, or to the other of UDP and TCP";
    /// The key has expired.
    KeyExpired = "key-expired", "the key is past its lifetime, in time or in bytes";
    /// The sequence number was received before, or is behind the window.
    Replayed = "replayed", "its sequence number was received before, or is behind the replay window";
    /// The authentication tag is wrong.
    BadTag = "bad-tag", "fails authentication: damaged on the way, or forged";
    /// The decrypted packet claims more bytes than it has.
    BadPadding = "bad-padding", "wrong padding, or the decrypted packet is shorter than its IP header says";
    /// The framing of compression does not say that the packet is not compressed.
    Compressed = "compressed", "the peer compresses, or has other framing than we have: comp-lzo no on both ends ends that";
    /// The decrypted packet is neither IP nor, in transport mode, of the SA's protocol.
    BadNextHeader = "bad-next-header", "the ESP next header does not fit the decrypted packet, or its SA";
    /// A dummy packet for traffic flow confidentiality (RFC 4303 section 2.6).
    Dummy = "dummy", "a dummy packet, which the peer sends to hide its traffic volume; no loss";
    /// The inner source address is not allowed for this peer.
    ForeignSource = "foreign-source", "the peer may not send this inner packet: see its allowed-ips, or the selectors of its SA";
    /// RFC 6040: congestion was marked in the outer header, but the inner packet is not ECN-capable.
    EcnNotCapable = "ecn-not-capable", "the outer header is marked as congested, but the inner packet is not ECN-capable (RFC 6040)";
    /// No policy matches the packet, or the policy is to discard it.
    Denied = "denied", "no policy protects such packets, or a policy discards them";
    /// The policy is to bypass the tunnel, which a tunnel interface cannot do.
    Bypassed = "bypassed", "a bypass policy matches: the route of such packets must not lead into the tunnel";
    /// A fragment, which transport mode cannot carry, and whose ports policies cannot see (RFC 4301 section 7).
    Fragmented = "fragmented", "a fragment, which transport mode and policies with ports cannot carry: raise the tunnel's mtu, so that packets are not fragmented before it";
    /// A fragment with a length or an offset that no packet has.
    BadFragment = "bad-fragment", "a fragment without payload, with a length that is no multiple of 8, or beyond 65,535 bytes: a broken sender, or an attack";
    /// A fragment smaller than links cut packets.
    TinyFragment = "tiny-fragment", "a fragment smaller than any link cuts packets, or without all headers in the first: an attack on filters (RFC 1858, RFC 7112)";
    /// RFC 5722: fragments of one packet that contradict each other: none of them counts.
    OverlappingFragments = "overlapping-fragments", "fragments of one packet overlap or disagree about its end: all of them are dropped (RFC 5722)";
    /// The same fragment again; the packet is not affected.
    DuplicateFragment = "duplicate-fragment", "the same fragment came twice: one of them is enough, no loss";
    /// The other fragments of the packet did not come in time.
    ReassemblyTimeout = "reassembly-timeout", "other fragments of the packet did not come within the time of --frag-ttl";
    /// More fragments than are kept.
    ReassemblyFull = "reassembly-full", "more incomplete packets, or fragments of one packet, than are kept: raise --reassemble, or look for loss or an attack";
    /// The destination is in no peer's allowed IPs.
    NoRoute = "no-route", "the destination is in no peer's allowed-ips, or has no rt line";
    /// The endpoint of the peer is unknown.
    NoEndpoint = "no-endpoint", "the peer's address is not known yet: set address and port, or wait until the peer connects";
    /// There is no key, and the staging queue is full or the handshake has failed.
    NoKey = "no-key", "no key: the handshake failed, or too many packets were already waiting for it";
    /// The packet with its overhead exceeds the size of a UDP datagram.
    TooBig = "too-big", "larger than the tunnel can carry in one datagram";
    /// The key has reached its packet limit.
    CounterExhausted = "counter-exhausted", "the key has reached its limit of packets";
    /// The send queue of this peer is full.
    PeerCongested = "peer-congested", "more packets than the link to the peer, or a shaper before it, can send: see tc -s qdisc";
    /// The UDP socket refused the datagram.
    SendFailed = "send-failed", "the kernel refused to send: no route to the peer, a firewall, or a link that is down";
    /// TCP: the queue of the connection is full.
    TcpQueueFull = "tcp-queue-full", "more packets than the TCP connection to the peer can send: the peer reads slowly, or its link is full";
    /// The tunnel interface refused the packet.
    InsideRefused = "inside-refused", "the tunnel interface refused the packet: it is down or its queue is full";
    /// The ring of a port that carries frames is full.
    RingFull = "ring-full", "a ring of the port is full: more frames than its other end takes";
    /// The burst has no room for a further packet.
    BurstFull = "burst-full", "no room in the burst for fragments or an ICMP error: more arrives at once than the gateway carries";
    /// The crypto engine reported an internal error.
    EngineFailed = "engine-failed", "the crypto engine failed";
    /// Dropped on purpose by the fault injection of `port`.
    InjectedFault = "injected-fault", "dropped on purpose by fault injection";
}

/// One counter for each [`DropReason`], written by one worker and read by any thread.
pub struct DropCounters([AtomicU64; DropReason::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; DropReason::ALL.len()])
    }
}

impl DropCounters {
    /// Counts `packets` packets dropped for `reason`.
    #[inline]
    pub fn count(&self, reason: DropReason, packets: usize) {
        self.0[reason as usize].fetch_add(packets as u64, Ordering::Relaxed);
    }

    /// The number of packets dropped for `reason`.
    pub fn read(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_name_of_its_own_and_a_sentence() {
        let names: HashSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
        assert!(DropReason::ALL.iter().all(|reason| reason.sentence().len() > 10));
    }

    #[test]
    fn counters_count_each_reason_alone() {
        let counters = DropCounters::default();
        counters.count(DropReason::BadTag, 3);
        for reason in DropReason::ALL {
            assert_eq!(counters.read(*reason), if *reason == DropReason::BadTag { 3 } else { 0 });
        }
    }
}
