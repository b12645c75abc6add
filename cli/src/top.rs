//! `postern top`: interfaces and peers of all protocols with their rates, once a second.
//!
//! ```text
//! GET /v1/facts ──> readings: rates, history ──> view: order, filter, selected row ──> draw: the rows that fit
//!   each second                              └──> lines, or JSON
//! ```

mod draw;
mod lines;
mod readings;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use crate::answer::{Answer, Form};
use crate::request::Request;
use crate::{Failure, client, operational};
use gateway::api::model::Crypto;
use gateway::bottleneck::Processors;
use gateway::facts::model::Facts;
use readings::{Kind, Reading, Row};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often facts are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the engines are asked for: they seldom change, and the answer is long.
const ENGINES_EVERY: u32 = 10;

pub(crate) fn run(request: &Request) -> Result<Answer, Failure> {
    let mut source = Source::new(request);
    // So that it fails at once where nothing can be read.
    source.read()?;
    let (once, lines) = (request.has("once"), request.has("lines"));
    let request = request.clone();
    Ok(Answer::going(move |out, form| {
        let source = Source::new(&request);
        if form.terminal && !form.json && !once && !lines {
            screen::run(source, out)
        } else {
            lines::follow(source, once, out, form)
        }
    }))
}

/// Where facts come from.
struct Source {
    request: Request,
    reads: u32,
    ciphers: Vec<gateway::api::model::CryptoCipher>,
}

impl Source {
    fn new(request: &Request) -> Self {
        Self { request: request.clone(), reads: 0, ciphers: Vec::new() }
    }

    fn read(&mut self) -> Result<Reading, Failure> {
        let daemons: Vec<(PathBuf, Facts)> = self.request.ask_each()?;
        if daemons.is_empty() {
            return Err(client::no_daemon().into());
        }
        if self.reads.is_multiple_of(ENGINES_EVERY) {
            let found = client::ask_each::<Crypto>(self.request.api(), "/v1/crypto");
            self.ciphers = found.into_iter().flatten().flat_map(|(_, answer)| answer.ciphers).collect();
        }
        self.reads += 1;
        let ciphers = self.ciphers.clone();
        Ok(Reading { daemons, ciphers, processors: Processors::read(Path::new("/proc/stat")) })
    }
}

/// The commands that explain a row.
fn explanations(row: &Row) -> Vec<Vec<&str>> {
    let limit = vec!["show", "bottleneck", &row.interface];
    let (Kind::Peer, Some(peer)) = (row.kind, row.peer.as_deref()) else { return vec![limit] };
    use gateway::facts::model::Protocol::{Ipsec, OpenVpn, WireGuard};
    let peer = match row.protocol {
        Some(WireGuard) => vec!["explain", "interfaces", "wireguard", &row.interface, "peer", peer],
        Some(Ipsec) => vec!["explain", "vpn", "ipsec", "peer", peer],
        // The only other side of a client, or of a site, has no name.
        Some(OpenVpn) if matches!(peer, "server" | "site" | "") => vec!["explain", "openvpn", &row.interface],
        Some(OpenVpn) => vec!["explain", "openvpn", &row.interface, "client", peer],
        None => return vec![limit],
    };
    vec![peer, limit]
}

/// Why a row is as it is: what the commands that explain it print.
fn explain(row: &Row, api: Option<&Path>) -> String {
    let told = |words: Vec<&str>| {
        let (entry, values) = operational::find(&words)?;
        let mut out = Vec::new();
        let answer = entry.run(values, operational::Options::default(), api.map(Path::to_owned));
        let text = match answer.and_then(|answer| answer.write(&mut out, Form::default())) {
            Ok(()) => String::from_utf8_lossy(&out).into_owned(),
            Err(error) => format!("{error}\n"),
        };
        Some(format!("{text}  (postern {})\n", words.join(" ")))
    };
    explanations(row).into_iter().filter_map(told).collect::<Vec<_>>().join("\n")
}
