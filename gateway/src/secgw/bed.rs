//! A gateway between two ports of the caller, for benchmarks: frames in memory take the way of frames from an interface.

use super::{FramePort, Plan, Queue, SecgwTables, Worker};
use config::secgw::{self, CommandLine, Finding};
use crypto::engine::Engine;
use port::{Receive, Transmit};

/// The Ethernet address of both ports.
pub const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The two halves of a port.
pub type Halves = (Box<dyn Receive>, Box<dyn Transmit>);

/// The worker of a file and of the words of a command line, with these ports in place of those that the words name.
///
/// # Errors
/// What is wrong with the file or the words, or is not served.
pub fn worker(
    file: &str,
    words: &str,
    engine: &dyn Engine,
    ports: impl IntoIterator<Item = Halves>,
) -> Result<Worker, String> {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let command_line = CommandLine::read(&words, u32::MAX).map_err(|finding| told(&[finding]))?;
    let loaded = secgw::read(file.as_bytes(), &command_line.context(false));
    let findings = secgw::check(&loaded, &command_line, false);
    if secgw::is_refused(&findings) {
        return Err(told(&findings));
    }
    let plan = Plan::new(loaded.settings, &command_line).map_err(|findings| told(&findings))?;
    let tables = SecgwTables::new(&plan, engine).map_err(|error| error.to_string())?;
    let ports = plan.ports.iter().zip(ports).map(|(port, (receive, transmit))| FramePort {
        number: port.number,
        name: port.interface.clone(),
        is_protected: port.is_protected,
        station: (!port.is_promiscuous).then_some(STATION),
        address: STATION,
        own: [].into(),
        queues: vec![Queue::new(receive)],
        transmit,
        is_received: port.is_received(),
        link: None,
    });
    let workers = vec![Worker::new(tables, ports.collect())];
    Ok(Worker::reassembling(workers, plan.reassembly).remove(0))
}

fn told(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(|finding| finding.in_file("file").to_string()).collect();
    lines.join("\n")
}
