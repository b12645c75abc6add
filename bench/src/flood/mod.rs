//! `postern bench flood`: a gateway under a flood of datagrams from unauthenticated sources.
//!
//! Datagrams from a million addresses arrive at a fixed rate while one peer transfers data and another connects. The
//! same flood against a closed port shows the share of the loss that the machine itself causes.

mod ike;
mod scene;
mod wireguard;

pub use scene::{Flood, Options, Protocol};

use crate::Outcome;
use crate::report::{Machine, short, table};
use serde::Serialize;

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The requested rate in datagrams per second.
    pub rate: u32,
    /// The results by type of datagram.
    pub floods: Vec<Flood>,
}

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let floods = match options.protocol {
        Protocol::WireGuard => wireguard::run(options)?,
        Protocol::Ike => ike::run(options)?,
    };
    Ok(Report { machine: Machine::here(), rate: options.rate, floods })
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let row = |flood: &Flood| {
            let loss = (1.0 - flood.speed / flood.speed_elsewhere) * 100.0;
            let numbers = [
                flood.sent_rate / 1e3,
                flood.speed_without,
                flood.speed_elsewhere,
                flood.speed,
                loss,
                flood.handshake_ms,
                flood.grown,
            ];
            [flood.name.to_owned()].into_iter().chain(numbers.map(short)).collect()
        };
        let rows: Vec<Vec<String>> = self.floods.iter().map(row).collect();
        let head = [
            "",
            "kpackets/s",
            "Gbit/s, no flood",
            "closed port",
            "gateway",
            "lost %",
            "new peer ms",
            "grown MiB",
        ];
        format!(
            "{}{} datagrams per second from a million addresses\n\n{}",
            self.machine.head(),
            self.rate,
            table(&head, &rows)
        )
    }
}
