//! What the worker counts: by port, by SA, by policy, and by the reason of a drop.

use super::policies::Policies;
use super::tables::SecgwTables;
use config::secgw::settings::{Action, Direction};
use packet::{Batch, DropCounters, DropReason};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The frames of a port. One worker writes, any thread reads.
pub struct PortCounters {
    number: u16,
    name: String,
    received: [AtomicU64; 2],
    sent: [AtomicU64; 2],
}

impl PortCounters {
    /// No frames.
    pub fn new(number: u16, name: &str) -> Self {
        Self { number, name: name.to_owned(), received: Default::default(), sent: Default::default() }
    }

    /// Counts received frames.
    pub fn received(&self, batch: &Batch) {
        let bytes: usize = batch.live(0..batch.len()).map(|index| batch.packet(index).len()).sum();
        self.received[0].fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.received[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a sent frame.
    #[inline]
    pub fn sent(&self, bytes: usize) {
        self.sent[0].fetch_add(1, Ordering::Relaxed);
        self.sent[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The counters of a gateway; they are printed as tables.
#[derive(Clone)]
pub struct Statistics {
    pub(super) tables: Arc<SecgwTables>,
    pub(super) drops: Arc<DropCounters>,
    pub(super) ports: Arc<Vec<PortCounters>>,
}

impl Statistics {
    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.read(reason)
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = |[packets, bytes]: &[AtomicU64; 2]| {
            (packets.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
        };
        for port in &*self.ports {
            let ((received, received_bytes), (sent, sent_bytes)) = (read(&port.received), read(&port.sent));
            writeln!(
                f,
                "port {} {}: received {received} frames, {received_bytes} bytes; sent {sent} frames, {sent_bytes} bytes",
                port.number, port.name
            )?;
        }
        for sa in &self.tables.sas {
            let traffic = match sa.direction {
                Direction::Outbound => &sa.peer.sent,
                Direction::Inbound => &sa.peer.received,
            };
            let (word, packets, bytes) = (sa.direction.word(), traffic.packets(), traffic.bytes());
            writeln!(f, "sa {word} {} {}: {packets} packets, {bytes} bytes", sa.spi, sa.algorithms)?;
        }
        policies(f, "out", &self.tables.policies_out)?;
        policies(f, "in", &self.tables.policies_in)?;
        for reason in DropReason::ALL {
            let count = self.drops.read(*reason);
            if count > 0 {
                writeln!(f, "dropped {}: {count} ({})", reason.name(), reason.sentence())?;
            }
        }
        Ok(())
    }
}

fn policies(f: &mut fmt::Formatter<'_>, direction: &str, policies: &Policies) -> fmt::Result {
    let (rows, unmatched) = policies.counts();
    for (line, action, packets) in rows {
        let action = match action {
            Action::Protect(spi) => format!("protect {spi}"),
            Action::Bypass => "bypass".to_owned(),
            Action::Discard => "discard".to_owned(),
        };
        writeln!(f, "sp {direction}, line {line}, {action}: {packets} packets")?;
    }
    if unmatched > 0 { writeln!(f, "sp {direction}, no match: {unmatched} packets") } else { Ok(()) }
}
