//! Metrics: counters and states in the text of OpenMetrics, for Prometheus.
//!
//! ```text
//! scrape ──> token ──> page, at most one second old ──> GET /v1/facts ──> collector ──> text ──> gzip
//! ```
//! The families are made of one snapshot of facts, which names tunnels as the configuration does: no label changes when keys,
//! endpoints or processes do.

mod families;
mod page;
mod serve;
mod tunnels;
mod writer;

pub(crate) use serve::{Metrics, Serving};

use gateway::facts::model::Facts;
use gateway::https::wire::Peers;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::fmt;
use writer::Writer;

/// Which metrics there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Peers that have metrics of their own.
    pub peers: Peers,
    /// The names of other WireGuard exporters are there too.
    pub wireguard_names: bool,
}

/// Bytes of the metrics of a gateway with a few interfaces, and of a tunnel, about.
const OF_GATEWAY: usize = 128 << 10;
const OF_TUNNEL: usize = 1600;

/// A snapshot as metrics.
#[derive(Debug)]
struct Snapshot {
    facts: Facts,
    options: Options,
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer::new(encoder);
        families::write(&mut writer, &self.facts)?;
        tunnels::write(&mut writer, &self.facts.tunnels, self.options)
    }
}

/// The text of all metrics.
pub fn text(facts: Facts, options: Options) -> String {
    // Copying a text that grows takes as long as writing it.
    let mut text = String::with_capacity(OF_GATEWAY + facts.tunnels.len() * OF_TUNNEL);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot { facts, options }));
    encode(&mut text, &registry).expect("text takes all that is written");
    text
}

#[cfg(test)]
mod tests;
