//! The objects of `docs/POSTERN-MIB.txt`, made of one snapshot of facts.
//!
//! Rows are sorted once, and a name is found by two binary searches: snmpd asks for one row after the other, also for a walk in
//! bulk.

use super::agentx::{Oid, Value};
use crate::api::model::{CryptoEngine, EngineState};
use crate::facts::model::{Drop, Facts, Protocol, State, Tunnel};
use crate::health::model::{AlertState, Health};
use crate::health::rules;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// `posternMIB`: below the numbers that Net-SNMP leaves for experiments, until the project has one of its own.
pub const POSTERN: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7678];

/// Bytes of a text (RFC 2579, `DisplayString`).
const LONGEST_TEXT: usize = 255;
/// What stands for the age of a handshake that never was.
const NEVER: u32 = u32::MAX;

const GATEWAY: &[u32] = &[1, 1];
const TUNNELS: &[u32] = &[1, 2, 1];
const DROPS: &[u32] = &[1, 3, 1];
const ENGINES: &[u32] = &[1, 4, 1];

/// A name below ours.
pub fn name(tail: &[u32]) -> Oid {
    [POSTERN, tail].concat()
}

/// Rows of the same columns; columns before the first one are parts of the index, and cannot be asked for.
#[derive(Debug)]
struct Table {
    entry: Oid,
    first_column: u32,
    columns: usize,
    /// Indices and values, in the order of the indices.
    rows: Vec<(Oid, Vec<Value>)>,
}

/// All objects at one moment.
#[derive(Debug, Default)]
pub struct Mib {
    /// In the order of their names.
    tables: Vec<Table>,
}

/// The numbers of tunnels. A number is made of the names, so that it is the same after a restart; where two would have the same, the one
/// that is seen later gets the next one that is free.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<Key, u32>,
}

/// The places of tunnels in the facts, by number.
pub type Numbered = BTreeMap<u32, usize>;

type Key = (Protocol, String, String, Option<u32>);

fn key(tunnel: &Tunnel) -> Key {
    (tunnel.protocol, tunnel.interface.clone(), tunnel.peer.clone(), tunnel.tunnel)
}

impl Numbers {
    /// The numbers of these tunnels. What is there no more is forgotten.
    pub fn assign(&mut self, tunnels: &[Tunnel]) -> Numbered {
        let mut keys: Vec<(Key, usize)> = tunnels.iter().enumerate().map(|(at, it)| (key(it), at)).collect();
        keys.sort_unstable();
        keys.dedup_by(|one, other| one.0 == other.0);
        let here: BTreeSet<&Key> = keys.iter().map(|(key, _)| key).collect();
        self.known.retain(|key, _| here.contains(key));
        let mut taken: BTreeSet<u32> = self.known.values().copied().collect();
        let mut numbered = BTreeMap::new();
        for (key, at) in keys {
            let number = *self.known.entry(key).or_insert_with_key(|key| {
                let mut number = preferred(key);
                while !taken.insert(number) {
                    number = number % MOST + 1;
                }
                number
            });
            numbered.insert(number, at);
        }
        numbered
    }
}

/// `Integer32 (1..2147483647)`
const MOST: u32 = i32::MAX as u32;

/// FNV-1a over the names, which are separated by a byte that UTF-8 does not have.
fn preferred((protocol, interface, peer, tunnel): &Key) -> u32 {
    let number = tunnel.map(|number| number.to_string()).unwrap_or_default();
    let parts = [protocol.name(), interface, peer, &number];
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0xff]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as u32 % MOST + 1
}

impl Mib {
    /// The objects of a snapshot, whose tunnels have these numbers.
    pub fn new(facts: &Facts, health: &Health, numbered: &Numbered) -> Self {
        let troubles: HashMap<&str, &str> = health
            .alerts
            .iter()
            .filter(|it| matches!(it.state, AlertState::Pending | AlertState::Firing))
            .map(|it| (&*it.subject, &*it.sentence))
            .collect();
        let tunnels = numbered.iter().map(|(number, at)| {
            let tunnel = &facts.tunnels[*at];
            (vec![*number], self::tunnel(tunnel, facts.at, troubles.get(&*rules::name(tunnel)).copied()))
        });
        let tables = vec![
            Table::new(GATEWAY, 1, vec![(vec![0], gateway(facts, health))]),
            Table::new(TUNNELS, 2, tunnels.collect()),
            Table::new(DROPS, 4, facts.drops.iter().flat_map(drops).collect()),
            Table::new(ENGINES, 2, facts.engines.iter().map(engine).collect()),
        ];
        Self { tables }
    }

    /// The value of a name.
    pub fn get(&self, name: &[u32]) -> Value {
        self.tables.iter().find_map(|table| table.get(name)).unwrap_or(Value::NoSuchObject)
    }

    /// The first name from `start` on and before `end`, and its value. An empty `end` is none.
    pub fn next(&self, start: &[u32], includes_start: bool, end: &[u32]) -> Option<(Oid, Value)> {
        let found = self.tables.iter().find_map(|table| table.next(start, includes_start))?;
        (end.is_empty() || *found.0 < *end).then_some(found)
    }
}

impl Table {
    fn new(entry: &[u32], first_column: u32, mut rows: Vec<(Oid, Vec<Value>)>) -> Self {
        rows.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        rows.dedup_by(|one, other| one.0 == other.0);
        let columns = rows.first().map_or(0, |(_, values)| values.len());
        Self { entry: name(entry), first_column, columns, rows }
    }

    fn get(&self, name: &[u32]) -> Option<Value> {
        let (column, index) = name.strip_prefix(&*self.entry)?.split_first()?;
        let column = column.checked_sub(self.first_column)? as usize;
        if column >= self.columns {
            return None;
        }
        let row = self.rows.binary_search_by(|(own, _)| (**own).cmp(index));
        Some(row.map_or(Value::NoSuchInstance, |row| self.rows[row].1[column].clone()))
    }

    fn next(&self, start: &[u32], includes_start: bool) -> Option<(Oid, Value)> {
        let (column, row) = match start.strip_prefix(&*self.entry) {
            // Another name: all of the table is behind it, or nothing.
            None if *start > *self.entry => return None,
            None | Some([]) => (0, 0),
            Some([column, ..]) if *column < self.first_column => (0, 0),
            Some([column, index @ ..]) => {
                let is_before = |own: &Oid| **own < *index || (!includes_start && **own == *index);
                ((column - self.first_column) as usize, self.rows.partition_point(|(own, _)| is_before(own)))
            }
        };
        let (column, row) = if row < self.rows.len() { (column, row) } else { (column.saturating_add(1), 0) };
        let (index, values) = self.rows.get(row)?;
        let value = values.get(column)?.clone();
        Some(([&*self.entry, &[self.first_column + column as u32], &**index].concat(), value))
    }
}

/// A text; what is longer than a `DisplayString` is cut off.
pub fn text(text: &str) -> Value {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Value::Text(text[..end].to_owned())
}

fn gauge(number: usize) -> Value {
    Value::Gauge(u32::try_from(number).unwrap_or(u32::MAX))
}

fn gateway(facts: &Facts, health: &Health) -> Vec<Value> {
    let of = |state| gauge(facts.tunnels.iter().filter(|it| it.state == state).count());
    let firing = health.alerts.iter().filter(|it| it.state == AlertState::Firing).count();
    // TimeTicks wrap after 497 days (RFC 2578 7.1.8).
    let uptime = facts.at.saturating_sub(facts.daemon.started).wrapping_mul(100) as u32;
    vec![
        text(&facts.daemon.version),
        Value::Ticks(uptime),
        gauge(facts.tunnels.len()),
        of(State::Up),
        of(State::Waiting),
        of(State::Down),
        gauge(firing),
    ]
}

/// `posternTunnelState`
pub fn state(state: State) -> Value {
    Value::Integer(match state {
        State::Up => 1,
        State::Waiting => 2,
        State::Down => 3,
    })
}

fn tunnel(tunnel: &Tunnel, now: u64, trouble: Option<&str>) -> Vec<Value> {
    let protocol = match tunnel.protocol {
        Protocol::WireGuard => 1,
        Protocol::Ipsec => 2,
        Protocol::OpenVpn => 3,
    };
    let age = |at| u32::try_from(now.saturating_sub(at)).unwrap_or(NEVER - 1);
    vec![
        Value::Integer(protocol),
        text(&tunnel.interface),
        text(&tunnel.peer),
        Value::Gauge(tunnel.tunnel.unwrap_or(0)),
        state(tunnel.state),
        Value::Counter(tunnel.received_bytes),
        Value::Counter(tunnel.sent_bytes),
        Value::Counter(tunnel.received_packets),
        Value::Counter(tunnel.sent_packets),
        Value::Gauge(tunnel.last_handshake.map_or(NEVER, age)),
        text(tunnel.endpoint.as_deref().unwrap_or_default()),
        text(tunnel.suite.as_deref().unwrap_or_default()),
        text(trouble.unwrap_or_default()),
    ]
}

/// A text as a part of an index: its length, then its bytes (RFC 2578 7.7).
fn indexed(text: &str) -> Oid {
    let bytes = &text.as_bytes()[..text.len().min(48)];
    std::iter::once(bytes.len() as u32).chain(bytes.iter().copied().map(u32::from)).collect()
}

fn drops(drop: &Drop) -> [(Oid, Vec<Value>); 3] {
    [(1, drop.outbound), (2, drop.inbound), (3, drop.handshake)].map(|(direction, packets)| {
        let index = [indexed(&drop.interface), vec![direction], indexed(&drop.reason)].concat();
        (index, vec![Value::Counter(packets)])
    })
}

fn engine(engine: &CryptoEngine) -> (Oid, Vec<Value>) {
    let state = match engine.state {
        EngineState::InUse => 1,
        EngineState::NotUsed => 2,
        EngineState::NotAllowed => 3,
        EngineState::Failed => 4,
        EngineState::Absent => 5,
    };
    (indexed(&engine.name), vec![Value::Integer(state), Value::Counter(engine.failures)])
}
