//! `postern bench openvpn`: the same transfers through pairs of OpenVPN gateways, ours and OpenVPN itself, and where their CPU time
//! goes.
//!
//! ```text
//! pairs: ours, stock, one of each, our IPsec; over TCP: ours, stock, stock with our server; stock and ours with less and less protection
//! for each measurement and round: all pairs that it is for in turn, every second round backwards
//! CPU: of each gateway, user and system, by thread; of the machine, in softirqs
//! ```
//!
//! The bottleneck is found by subtraction: what the same transfer costs without the cipher, and without cipher and digest.

mod chart;
mod measure;
mod report;
mod subtract;

pub use report::{Comparison, Cost, Measurement, PairNames, Report, Run};

use crate::Outcome;
use crate::report::Machine;
use crate::tunnel::progress_bar;
use lab::openvpn::{DataChannel, Program, Transport, join};
use lab::wireguard::Tunnel;
use lab::{Lab, ipsec, traffic};
use measure::{TESTS, Test};
use std::path::PathBuf;

/// What to measure.
pub struct Options {
    /// The program of our gateways.
    pub program: PathBuf,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Number of measurements of each kind.
    pub rounds: u32,
    /// Only the measurements whose name contains this.
    pub only: Option<String>,
    /// Only these pairs, by name; all if there is none.
    pub pairs: Vec<String>,
    /// Whether to show progress.
    pub progress: bool,
}

/// Ours at both ends, with AES-256-GCM.
pub(crate) const OURS: &str = "postern";
/// OpenVPN at both ends, with AES-256-GCM.
pub(crate) const STOCK: &str = "openvpn";
/// OpenVPN as the client of our server.
pub(crate) const OUR_SERVER: &str = "openvpn-to-postern";
/// Our client of OpenVPN as the server.
pub(crate) const OUR_CLIENT: &str = "postern-to-openvpn";
/// Ours at both ends, over TCP.
pub(crate) const OURS_TCP: &str = "postern-tcp";
/// OpenVPN at both ends, over TCP.
pub(crate) const STOCK_TCP: &str = "openvpn-tcp";
/// OpenVPN as the client of our server, over TCP.
pub(crate) const OUR_SERVER_TCP: &str = "openvpn-to-postern-tcp";
/// OpenVPN with AES-256-CBC and HMAC-SHA256.
pub(crate) const STOCK_BOTH: &str = "openvpn-cbc-sha256";
/// OpenVPN with HMAC-SHA256 alone.
pub(crate) const STOCK_DIGEST: &str = "openvpn-sha256";
/// OpenVPN with `cipher none` and `auth none`.
pub(crate) const STOCK_BARE: &str = "openvpn-none";
/// Ours with AES-256-CBC and HMAC-SHA256.
pub(crate) const OURS_BOTH: &str = "postern-cbc-sha256";
/// Ours with HMAC-SHA256 alone.
pub(crate) const OURS_DIGEST: &str = "postern-sha256";
/// Ours with an engine that does nothing.
pub(crate) const OURS_BARE: &str = "postern-none";
/// Our IPsec with AES-256-GCM.
pub(crate) const IPSEC: &str = "postern-ipsec";

/// The names of all pairs, in the order of the report.
pub const PAIRS: [&str; 14] = [
    OURS,
    STOCK,
    OUR_SERVER,
    OUR_CLIENT,
    IPSEC,
    OURS_TCP,
    STOCK_TCP,
    OUR_SERVER_TCP,
    STOCK_BOTH,
    STOCK_DIGEST,
    STOCK_BARE,
    OURS_BOTH,
    OURS_DIGEST,
    OURS_BARE,
];

/// Whether TCP carries the packets of a pair.
fn is_over_tcp(pair: &str) -> bool {
    matches!(pair, OURS_TCP | STOCK_TCP | OUR_SERVER_TCP)
}

/// Whether a pair only shows what is left of the cost without a part of the protection.
fn is_for_subtraction(pair: &str) -> bool {
    matches!(pair, STOCK_BOTH | STOCK_DIGEST | STOCK_BARE | OURS_BOTH | OURS_DIGEST | OURS_BARE)
}

/// A running pair: its tunnel lives as long as what it was made of.
enum Pair {
    OpenVpn(lab::openvpn::Pair),
    Ipsec(ipsec::Pair),
}

impl Pair {
    fn start(lab: &mut Lab, name: &str, options: &Options, namespaces: [&str; 2], net: u8) -> Outcome<Self> {
        let ours = Program::Postern(options.program.clone());
        let bare = Program::PosternWithoutCipher(options.program.clone());
        let stock = Program::Stock;
        let (ends, channel) = match name {
            OURS | OURS_TCP => ([&ours; 2], DataChannel::Aead),
            STOCK | STOCK_TCP => ([&stock; 2], DataChannel::Aead),
            OUR_SERVER | OUR_SERVER_TCP => ([&stock, &ours], DataChannel::Aead),
            OUR_CLIENT => ([&ours, &stock], DataChannel::Aead),
            STOCK_BOTH => ([&stock; 2], DataChannel::CipherAndDigest),
            STOCK_DIGEST => ([&stock; 2], DataChannel::Digest),
            STOCK_BARE => ([&stock; 2], DataChannel::Bare),
            OURS_BOTH => ([&ours; 2], DataChannel::CipherAndDigest),
            OURS_DIGEST => ([&ours; 2], DataChannel::Digest),
            OURS_BARE => ([&bare; 2], DataChannel::Aead),
            _ => {
                let daemon = ipsec::Daemon::Postern(options.program.clone());
                return Ok(Self::Ipsec(daemon.join(lab, namespaces, net)?));
            }
        };
        let transport = if is_over_tcp(name) { Transport::Tcp } else { Transport::Udp };
        Ok(Self::OpenVpn(join(lab, ends, (transport, channel), namespaces, net)?))
    }

    fn tunnel(&self) -> &Tunnel {
        match self {
            Self::OpenVpn(pair) => &pair.tunnel,
            Self::Ipsec(pair) => &pair.tunnel,
        }
    }

    fn names(name: &str, options: &Options) -> PairNames {
        let (ours, stock) = (Program::Postern(options.program.clone()).version(), Program::Stock.version());
        let [client, server] = match name {
            OUR_SERVER | OUR_SERVER_TCP => [&stock, &ours],
            OUR_CLIENT => [&ours, &stock],
            name if name.starts_with(STOCK) => [&stock, &stock],
            _ => [&ours, &ours],
        };
        PairNames { name: name.to_owned(), client: client.clone(), server: server.clone() }
    }
}

/// The pairs and the measurements that are wanted.
fn wanted(options: &Options) -> Outcome<(Vec<&'static str>, Vec<Test>)> {
    let is_wanted = |name: &&str| options.pairs.is_empty() || options.pairs.iter().any(|it| it == name);
    let pairs: Vec<&str> = PAIRS.into_iter().filter(is_wanted).collect();
    let tests = TESTS.iter().copied();
    let tests: Vec<Test> =
        tests.filter(|test| options.only.as_ref().is_none_or(|only| test.name().contains(only))).collect();
    if tests.is_empty() {
        let known: Vec<String> = TESTS.iter().map(|test| test.name()).collect();
        let only = options.only.as_deref().unwrap_or_default();
        let known = known.join("; ");
        return Err(format!("no measurement has {only:?} in its name\n  fix: one of: {known}").into());
    }
    Ok((pairs, tests))
}

/// Measures all pairs in turn.
pub fn run(options: &Options) -> Outcome<Report> {
    let (names, tests) = wanted(options)?;
    let namespaces: Vec<[String; 2]> =
        (0..names.len()).map(|pair| ["a", "b"].map(|end| format!("{end}{pair}"))).collect();
    let all: Vec<&str> = namespaces.iter().flatten().map(String::as_str).collect();
    let mut lab = Lab::new(&all)?;
    let mut pairs = Vec::new();
    for ((name, [client, server]), net) in names.iter().zip(&namespaces).zip(91..) {
        lab.connect((client, "outside", "192.168.77.1/24"), (server, "outside", "192.168.77.2/24"))?;
        pairs.push(Pair::start(&mut lab, name, options, [client, server], net)?);
        traffic::serve(&mut lab, server)?;
    }
    let tunnels: Vec<&Tunnel> = pairs.iter().map(Pair::tunnel).collect();
    let (mut measurements, mut failures) = (Vec::new(), Vec::new());
    let progress = progress_bar(options.progress, tests.len() as u64 * u64::from(options.rounds));
    for test in tests {
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); names.len()];
        for round in 0..options.rounds {
            progress.set_message(test.name());
            for position in 0..names.len() {
                let index = if round % 2 == 0 { position } else { names.len() - 1 - position };
                if !test.is_for(names[index]) {
                    continue;
                }
                match test.measure(&lab, tunnels[index], &namespaces[index][1], options.seconds) {
                    Ok(run) => runs[index].push(run),
                    Err(error) => failures.push([test.name(), names[index].to_owned(), error.to_string()]),
                }
            }
            progress.inc(1);
        }
        let (unit, cost_unit) = test.units();
        measurements.push(Measurement { name: test.name(), unit, cost_unit, runs });
    }
    progress.finish_and_clear();
    let pairs: Vec<PairNames> = names.iter().map(|name| Pair::names(name, options)).collect();
    let (seconds, rounds) = (options.seconds, options.rounds);
    Ok(Report::new(Machine::here(), seconds, rounds, pairs, measurements, failures))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(only: &str, pairs: &[&str]) -> Options {
        Options {
            program: "postern".into(),
            seconds: 1,
            rounds: 1,
            only: Some(only.to_owned()),
            pairs: pairs.iter().map(|&name| name.to_owned()).collect(),
            progress: false,
        }
    }

    #[test]
    fn pairs_are_chosen_by_name_and_measurements_by_a_part_of_theirs() {
        let (pairs, tests) = wanted(&options("UDP", &[OURS, OUR_SERVER])).expect("there are some");
        assert_eq!((pairs, tests.len()), (vec![OURS, OUR_SERVER], 2));
        let (pairs, _) = wanted(&options("TCP", &[])).expect("there are some");
        assert_eq!(pairs, PAIRS);
        assert!(
            wanted(&options("SCTP", &[])).is_err_and(|error| error.to_string().contains("download by HTTP"))
        );
    }
}
