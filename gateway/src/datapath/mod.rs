//! The path of a packet, one file for each stage.
//!
//! An outbound stage takes the result of the previous stage, so that a packet cannot be encrypted before it is
//! routed. All inbound stages work on the same SA batches, in the order of the calls in `worker.rs`, and a packet
//! discarded by one stage is skipped by the next ones. Outbound, decisions are made for whole trains, except about
//! size. Inbound, they are made for each packet, as the network may have mixed valid and invalid ones.
//!
//! Where protocols differ, a stage asks [`protocol`], or, about packets under a key, [`tunnel::Protection`].

pub mod accept;
pub mod admit;
pub mod assign;
pub mod capture;
pub mod check;
pub mod classify;
pub mod decrypt;
pub mod egress;
pub mod encrypt;
pub mod endpoint_cell;
pub mod fit;
pub mod forward;
pub mod handoff;
pub mod held;
pub mod icmp_errors;
pub mod idle_cores;
pub mod indexed;
pub mod pre_sa_queue;
pub mod protocol;
pub mod punt;
pub mod receive;
pub mod relay;
pub mod resent;
pub mod route;
pub mod stage_times;
pub mod staging;
pub mod tables;
pub mod traffic;
pub mod transmit;
pub mod worker;
pub mod wrap;

use held::Held;
use packet::{Batch, DropReason, Endpoint, PackedEndpoint};
use std::fmt::Write;
use std::net::IpAddr;
use std::ops::Range;
use tables::{Peer, Session};
use tunnel::{OutboundSa, PeerId, Time};

/// The description of a stage.
#[derive(Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name, which is also its file's.
    pub name: &'static str,
    /// The function of the stage in one sentence.
    pub does: &'static str,
    /// The reasons for which the stage drops packets.
    pub drops: &'static [DropReason],
}

/// From the inside to the outside.
pub const OUTBOUND: &[&Stage] = &[
    &receive::OUTBOUND,
    &classify::OUTBOUND,
    &route::STAGE,
    &fit::STAGE,
    &assign::STAGE,
    &encrypt::STAGE,
    &wrap::STAGE,
    &transmit::OUTBOUND,
];

/// From the outside to the inside.
pub const INBOUND: &[&Stage] = &[
    &receive::INBOUND,
    &classify::INBOUND,
    &punt::STAGE,
    &check::STAGE,
    &decrypt::STAGE,
    &accept::STAGE,
    &admit::STAGE,
    &forward::STAGE,
    &relay::STAGE,
    &transmit::INBOUND,
];

/// Observes the stages, for benchmarks; workers pass `()`.
pub trait Observer {
    /// Called when `stage` has processed the batch.
    fn finished(&mut self, stage: &'static Stage);

    /// Called once for each burst, while its inner packets can be read.
    #[inline]
    fn inner(&mut self, _: &Batch, _now: Time) {}
}

impl Observer for () {
    #[inline(always)]
    fn finished(&mut self, _: &'static Stage) {}
}

/// A data path event: a message from a worker to the handshake thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPathEvent {
    /// Packets are staged for lack of a key.
    NoKey(PeerId),
    /// A timer of a peer was armed.
    Activity(PeerId),
    /// The key in use should be replaced.
    Renewal(PeerId),
    /// The first authentic packet under this index has arrived.
    Confirmed(u32),
    /// The endpoint of a peer has changed, and its protocol finds control packets by address.
    Moved(PeerId),
    /// A peer has said in a data packet that it exits.
    Exited(PeerId),
}

/// A train whose inner header was read.
pub struct Classified {
    packets: Range<usize>,
    destination: IpAddr,
    ds_field: u8,
}

/// Packets for one peer, with the SA to send them.
pub struct Routed<'t> {
    /// The indices of the packets.
    pub packets: Range<usize>,
    /// The receiving peer.
    pub peer: Held<'t, Peer>,
    /// The SA.
    pub sa: Held<'t, OutboundSa>,
    /// The DS field of the inner headers.
    pub ds_field: u8,
    /// Whether they are data, and not a keepalive.
    pub is_data: bool,
}

/// Packets that fit into the tunnel, with their path.
pub struct Fitted<'t> {
    pub(crate) packets: Range<usize>,
    pub(crate) peer: Held<'t, Peer>,
    pub(crate) sa: Held<'t, OutboundSa>,
    pub(crate) endpoint: PackedEndpoint,
    pub(crate) ds_field: u8,
    pub(crate) is_data: bool,
}

/// Packets with header, padding and space for the tag, ready for encryption.
pub struct Assigned<'t> {
    pub(crate) fitted: Fitted<'t>,
    /// The sequence number of the first packet; the others follow.
    pub(crate) first_sequence: u64,
}

/// Packets received under one security association from one endpoint.
pub struct SaBatch<'t> {
    pub(crate) packets: Range<usize>,
    pub(crate) session: Held<'t, Session>,
    pub(crate) endpoint: Endpoint,
    /// The DS field of the outer header.
    pub(crate) ds_field: u8,
}

/// A stage's diagram, as ARCHITECTURE.md shows it and `postern show datapath` prints it.
pub fn diagram() -> String {
    let mut text = String::new();
    for (direction, stages) in
        [("outbound, inside to outside", OUTBOUND), ("inbound, outside to inside", INBOUND)]
    {
        let names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
        let _ = writeln!(text, "{direction}\n  {}\n", names.join(" → "));
        for stage in stages {
            let drops: Vec<&str> = stage.drops.iter().map(|reason| reason.name()).collect();
            let _ = writeln!(text, "  {:<9} {}", stage.name, stage.does);
            if !drops.is_empty() {
                let _ = writeln!(text, "  {:<9} may drop as {}", "", drops.join(", "));
            }
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_but_those_of_the_slow_path_and_the_ports_belongs_to_a_stage() {
        let stages: Vec<DropReason> =
            OUTBOUND.iter().chain(INBOUND).flat_map(|stage| stage.drops.iter().copied()).collect();
        let elsewhere = [
            DropReason::BadMac,
            DropReason::CookieRequired,
            DropReason::RateLimited,
            DropReason::BadHandshake,
            DropReason::BadIkeMessage,
            DropReason::UnknownIkeSa,
            DropReason::IkeNotServed,
            DropReason::ReplayedHandshake,
            DropReason::RingFull,
            DropReason::BurstFull,
            DropReason::NotIp,
            DropReason::VlanTag,
            DropReason::OtherStation,
            DropReason::BadFragment,
            DropReason::TinyFragment,
            DropReason::OverlappingFragments,
            DropReason::DuplicateFragment,
            DropReason::ReassemblyTimeout,
            DropReason::ReassemblyFull,
            DropReason::InjectedFault,
        ];
        for reason in DropReason::ALL {
            assert_ne!(stages.contains(reason), elsewhere.contains(reason), "{}", reason.name());
        }
    }
}
