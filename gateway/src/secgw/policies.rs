//! SP: the policies of one direction, and what they say about a packet.

use super::access::{Access, FiveTuple, Rule, RuleIndex};
use config::secgw::settings::{Action, Direction, Family, Policy};
use packet::header::flow::{Upper, number};
use packet::header::ip::IpPacket;
use std::sync::atomic::{AtomicU64, Ordering};

/// The policies of a direction.
pub struct Policies {
    access: Access,
    rows: Vec<Row>,
    /// Whether there are policies for IPv4 and for IPv6.
    has: [bool; 2],
    unmatched: AtomicU64,
}

/// A policy and its packets so far.
struct Row {
    line: u32,
    action: Action,
    packets: AtomicU64,
}

/// What happens to a packet. Without any policy for its family and direction, a packet passes, as in ipsec-secgw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The action; none for a packet that no policy matches, which is dropped.
    pub action: Option<Action>,
    row: Option<RuleIndex>,
}

impl Verdict {
    /// Whether there is no policy for the family of the packet.
    pub fn is_default(self) -> bool {
        self.row.is_none()
    }
}

impl Policies {
    /// The policies of `direction` among `all`.
    pub fn new(all: &[Policy], direction: Direction) -> Self {
        let all: Vec<&Policy> = all.iter().filter(|policy| policy.direction == direction).collect();
        let rules: Vec<Rule> = all.iter().map(|policy| rule(policy)).collect();
        let rows = all.iter().map(|policy| Row {
            line: policy.line,
            action: policy.action,
            packets: AtomicU64::new(0),
        });
        Self {
            access: Access::build(&rules),
            rows: rows.collect(),
            has: Family::ALL.map(|family| all.iter().any(|policy| policy.family == family)),
            unmatched: AtomicU64::new(0),
        }
    }

    /// What the policies say about a packet.
    pub fn find(&self, flow: &FiveTuple) -> Verdict {
        if !self.has[usize::from(!flow.is_v4)] {
            return Verdict { action: Some(Action::Bypass), row: None };
        }
        let row = self.access.find(flow);
        Verdict { action: row.map(|RuleIndex(row)| self.rows[row as usize].action), row }
    }

    /// Counts packets with one verdict.
    #[inline]
    pub fn count(&self, verdict: Verdict, packets: u64) {
        let counter = match verdict {
            Verdict { row: Some(RuleIndex(row)), .. } => &self.rows[row as usize].packets,
            Verdict { action: None, .. } => &self.unmatched,
            _ => return,
        };
        counter.fetch_add(packets, Ordering::Relaxed);
    }

    /// The lines of policies with their actions and packets so far, and the packets that matched none.
    pub fn counts(&self) -> (Vec<(u32, Action, u64)>, u64) {
        let rows = self.rows.iter().map(|row| (row.line, row.action, row.packets.load(Ordering::Relaxed)));
        (rows.collect(), self.unmatched.load(Ordering::Relaxed))
    }
}

fn rule(policy: &Policy) -> Rule {
    Rule {
        priority: policy.priority,
        source: policy.source,
        destination: policy.destination,
        source_ports: policy.source_ports,
        destination_ports: policy.destination_ports,
        protocol: policy.protocol,
    }
}

/// The fields of a packet that policies are about. Ports are the 4 bytes behind the IP header, whatever the protocol is. They are 0
/// for a fragment that does not have them, and for a packet that ends before them.
#[inline]
pub fn five_tuple(packet: &IpPacket<'_>) -> FiveTuple {
    let upper = Upper::of(packet);
    let ports = if upper.is_later_fragment { None } else { upper.bytes.first_chunk() };
    let &[a, b, c, d] = ports.unwrap_or(&[0; 4]);
    FiveTuple {
        is_v4: matches!(packet, IpPacket::V4(..)),
        protocol: upper.protocol,
        source_port: u16::from_be_bytes([a, b]),
        destination_port: u16::from_be_bytes([c, d]),
        source: number(packet.source()),
        destination: number(packet.destination()),
    }
}

/// The verdict about the last flow: consecutive packets mostly belong to one.
#[derive(Default)]
pub struct Recent(Option<(FiveTuple, Verdict)>);

impl Recent {
    /// The verdict about a packet, counted.
    #[inline]
    pub fn verdict(&mut self, policies: &Policies, packet: &IpPacket<'_>) -> Verdict {
        let flow = five_tuple(packet);
        let verdict = match self.0 {
            Some((last, verdict)) if last == flow => verdict,
            _ => policies.find(&flow),
        };
        self.0 = Some((flow, verdict));
        policies.count(verdict, 1);
        verdict
    }
}
