//! `postern secgw` without `--check`: forwards packets until a signal ends it.
//!
//! ```text
//! settings ── plan: what is not served is refused ──> ports ──> few rights ──> keys ──> worker ──> statistics
//! ```

use super::{WORDS, text};
use crate::{Failure, Outcome, engines, log, privilege};
use config::secgw::settings::Settings;
use config::secgw::{CommandLine, Finding};
use gateway::rights::Rights;
use gateway::secgw::{FramePort, Plan, SecgwTables, Statistics, Stopper, Worker, open};
use privilege::Needs;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Runs the gateway of a file that was accepted.
pub(super) fn serve(
    file: &str,
    settings: Settings,
    command_line: &CommandLine,
    findings: &[Finding],
) -> Result<ExitCode, Failure> {
    eprint!("{}", text(file, findings));
    let plan = match Plan::new(settings, command_line) {
        Ok(plan) => plan,
        Err(refused) => {
            for finding in &refused {
                let place = if finding.line.is_some() { file } else { WORDS };
                eprintln!("{}", finding.in_file(place));
            }
            return Ok(ExitCode::from(2));
        }
    };
    log::start()?;
    start(&plan, &processors(command_line))?;
    Ok(ExitCode::SUCCESS)
}

/// The processors of the only lcore.
fn processors(command_line: &CommandLine) -> BTreeSet<u32> {
    let queues = command_line.application.queues.as_deref().unwrap_or_default();
    let core = queues.first().and_then(|entry| command_line.cores.get(&entry.core));
    core.cloned().unwrap_or_default()
}

fn start(plan: &Plan, processors: &BTreeSet<u32>) -> Outcome {
    for remark in &plan.remarks {
        tracing::warn!("{remark}");
    }
    // Threads inherit it; later, the filter of system calls refuses it.
    pin(processors);
    let ports = plan.ports.iter().map(open).collect::<Result<Vec<FramePort>, _>>()?;
    privilege::drop_unneeded(Needs { keys: true, ..Needs::default() })?;
    let runtime = privilege::runtime()?;
    let engines = engines::choice(&plan.subjects());
    engines::maintain(&engines)?;
    let tables = Arc::new(SecgwTables::new(plan, &*engines)?);
    let mut worker = Worker::new(tables, ports);
    let (statistics, stopper) = (worker.statistics(), Stopper::new()?);
    let (ended, mut end) = oneshot::channel();
    let of_worker = stopper.clone();
    let thread = std::thread::Builder::new().name("secgw".to_owned()).spawn(move || {
        Rights::Packets.keep();
        let _ = ended.send(worker.serve(&of_worker));
    })?;
    tracing::info!("{} ports, {} SAs: packets are forwarded", plan.ports.len(), plan.sas.len());
    let outcome = runtime.block_on(until_end(plan.statistics_seconds, &statistics, &mut end));
    stopper.stop();
    thread.join().map_err(|_| "the worker has panicked")?;
    print!("{statistics}");
    outcome
}

/// Keeps the calling thread, and those that it starts, on these processors.
fn pin(processors: &BTreeSet<u32>) {
    let mut set = CpuSet::new();
    for &processor in processors {
        set.set(processor as usize);
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("the lcore is not pinned to processors {processors:?}: {error}");
    }
}

/// Prints statistics each so many seconds, until SIGINT or SIGTERM comes or the worker ends.
async fn until_end(
    seconds: u32,
    statistics: &Statistics,
    end: &mut oneshot::Receiver<std::io::Result<()>>,
) -> Outcome {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let pause = Duration::from_secs(if seconds == 0 { u32::MAX.into() } else { seconds.into() });
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            outcome = &mut *end => {
                return Ok(outcome.map_err(|_| "the worker has panicked")??);
            }
            () = tokio::time::sleep(pause) => print!("{statistics}"),
        }
    }
}
