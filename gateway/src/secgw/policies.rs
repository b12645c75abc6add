//! SP: the policies of one direction, and what they say about a packet.

use super::access::{Access, FiveTuple, FlowCache, Ports, Rule, RuleIndex};
use crate::datapath::traffic::Traffic;
use config::secgw::settings::{Action, Direction, Family, Policy};
use packet::header::flow::{Upper, number};
use packet::header::ip::IpPacket;
use std::collections::{HashMap, VecDeque};

/// The policies of a direction.
pub struct Policies {
    access: Access,
    /// The rules as they are for packets without ports, if that is another table.
    without_ports: Option<Access>,
    rows: Vec<Row>,
    /// Whether there are policies for IPv4 and for IPv6.
    has: [bool; 2],
    unmatched: Count,
}

/// A policy and its packets so far.
struct Row {
    action: Action,
    count: Count,
    policy: Policy,
}

/// Packets and their bytes.
struct Count {
    now: Traffic,
    /// Those of the same policy in earlier tables.
    before: Traffic,
}

impl Count {
    fn of_workers(count: usize) -> Self {
        Self { now: Traffic::of_threads(count), before: Traffic::default() }
    }

    fn read(&self) -> (u64, u64) {
        let Self { now, before } = self;
        (now.packets() + before.packets(), now.bytes() + before.bytes())
    }

    fn inherit(&self, earlier: &Self) {
        let (packets, bytes) = earlier.read();
        self.before.count(packets, bytes);
    }
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
    /// The policies of `direction` among `all`, for so many workers.
    pub fn new(all: &[Policy], direction: Direction, workers: usize) -> Self {
        let all: Vec<&Policy> = all.iter().filter(|policy| policy.direction == direction).collect();
        let rules: Vec<Rule> = all.iter().map(|policy| rule(policy)).collect();
        let rows = all.iter().map(|policy| Row {
            action: policy.action,
            count: Count::of_workers(workers),
            policy: (*policy).clone(),
        });
        Self {
            access: Access::build(&rules),
            without_ports: without_ports(&all, &rules).map(|rules| Access::build(&rules)),
            rows: rows.collect(),
            has: Family::ALL.map(|family| all.iter().any(|policy| policy.family == family)),
            unmatched: Count::of_workers(workers),
        }
    }

    /// What the policies say about a packet that shows these of its fields.
    pub fn find(&self, flow: &FiveTuple, shown: Shown) -> Verdict {
        if !self.has[usize::from(!flow.is_v4)] {
            return Verdict { action: Some(Action::Bypass), row: None };
        }
        let row = match shown {
            Shown::All => self.access.find(flow),
            Shown::NoPorts => self.without_ports.as_ref().unwrap_or(&self.access).find(flow),
            Shown::NoProtocol => None,
        };
        Verdict { action: row.map(|RuleIndex(row)| self.rows[row as usize].action), row }
    }

    /// Counts packets with one verdict.
    #[inline]
    pub fn count(&self, verdict: Verdict, packets: u64, bytes: u64) {
        let count = match verdict {
            Verdict { row: Some(RuleIndex(row)), .. } => &self.rows[row as usize].count,
            Verdict { action: None, .. } => &self.unmatched,
            _ => return,
        };
        count.now.count(packets, bytes);
    }

    /// The lines of policies with their actions, and their packets and bytes so far.
    pub fn counts(&self) -> impl Iterator<Item = (u32, Action, (u64, u64))> {
        self.rows.iter().map(|row| (row.policy.line, row.action, row.count.read()))
    }

    /// Packets and bytes so far that matched no policy.
    pub fn unmatched(&self) -> (u64, u64) {
        self.unmatched.read()
    }

    /// The policies in order, without their places in the file.
    pub fn identities(&self) -> Vec<String> {
        self.rows.iter().map(|row| identity(&row.policy)).collect()
    }

    /// Adds the counts of the same policies in tables that no worker uses any more.
    pub fn inherit(&self, before: &Self) {
        self.unmatched.inherit(&before.unmatched);
        let mut counts: HashMap<String, VecDeque<&Count>> = HashMap::new();
        for row in &before.rows {
            counts.entry(identity(&row.policy)).or_default().push_back(&row.count);
        }
        for row in &self.rows {
            if let Some(count) = counts.get_mut(&identity(&row.policy)).and_then(VecDeque::pop_front) {
                row.count.inherit(count);
            }
        }
    }
}

/// A policy without its place in the file.
fn identity(policy: &Policy) -> String {
    format!("{:?}", Policy { line: 0, ..policy.clone() })
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

/// The rules for packets without ports, unless they are the same: those of any ports match, so that what is protected with some ports
/// is protected without them, and a packet passes in clear only if it would with any ports (RFC 4301 section 7).
fn without_ports(policies: &[&Policy], rules: &[Rule]) -> Option<Vec<Rule>> {
    let is_any = |ports: Ports| ports == Ports { low: 0, high: u16::MAX };
    let has_any = |rule: &Rule| is_any(rule.source_ports) && is_any(rule.destination_ports);
    if rules.iter().all(has_any) {
        return None;
    }
    let widened = policies.iter().zip(rules).map(|(policy, rule)| {
        // From 1 to 0 there is no port: the rule matches nothing.
        let is_kept = policy.action != Action::Bypass || has_any(rule);
        let ports = if is_kept { Ports { low: 0, high: u16::MAX } } else { Ports { low: 1, high: 0 } };
        Rule { source_ports: ports, destination_ports: ports, ..*rule }
    });
    Some(widened.collect())
}

/// Which of the fields that policies are about a packet shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Addresses, protocol and ports.
    All,
    /// No ports: a later fragment, or a packet that ends before them.
    NoPorts,
    /// Addresses only: a chain of IPv6 extension headers that cannot be followed to its end.
    NoProtocol,
}

/// The fields of a packet that policies are about. Ports are the 4 bytes behind the IP header, whatever the protocol is, and 0 if the
/// packet does not show them.
#[inline]
pub fn five_tuple(packet: &IpPacket<'_>) -> (FiveTuple, Shown) {
    let upper = Upper::of(packet);
    let is_v4 = matches!(packet, IpPacket::V4(..));
    let ports = if upper.is_later_fragment { None } else { upper.bytes.first_chunk() };
    let shown = match ports {
        _ if !is_v4 && upper.ends_in_extension() => Shown::NoProtocol,
        Some(_) => Shown::All,
        None => Shown::NoPorts,
    };
    let &[a, b, c, d] = ports.unwrap_or(&[0; 4]);
    let flow = FiveTuple {
        is_v4,
        protocol: upper.protocol,
        source_port: u16::from_be_bytes([a, b]),
        destination_port: u16::from_be_bytes([c, d]),
        source: number(packet.source()),
        destination: number(packet.destination()),
    };
    (flow, shown)
}

/// The verdicts about the flows of one direction that a worker has met.
#[derive(Default)]
pub struct Verdicts {
    flows: FlowCache<Verdict>,
    run: Option<Run>,
}

/// Consecutive packets with one verdict, which their policy does not count yet.
struct Run {
    verdict: Verdict,
    packets: u64,
    bytes: u64,
}

impl Verdicts {
    /// The verdict about a packet. The policies are the same in each call: new tables need new verdicts. They count the packet at
    /// [`count`](Self::count) at the latest.
    #[inline]
    pub fn verdict(&mut self, policies: &Policies, packet: &IpPacket<'_>) -> Verdict {
        let (flow, shown) = five_tuple(packet);
        let verdict = match shown {
            Shown::All => self.flows.get_or(&flow, || policies.find(&flow, shown)),
            // The flow with the ports 0 is another one.
            _ => policies.find(&flow, shown),
        };
        let bytes = packet.bytes().len() as u64;
        match &mut self.run {
            Some(run) if run.verdict == verdict => {
                run.packets += 1;
                run.bytes += bytes;
            }
            _ => {
                self.count(policies);
                self.run = Some(Run { verdict, packets: 1, bytes });
            }
        }
        verdict
    }

    /// Adds the packets of a burst to the counts of the policies: one step for all packets in turn that one policy decides.
    #[inline]
    pub fn count(&mut self, policies: &Policies) {
        if let Some(Run { verdict, packets, bytes }) = self.run.take() {
            policies.count(verdict, packets, bytes);
        }
    }
}
