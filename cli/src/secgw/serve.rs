//! `postern secgw` without `--check`: forwards packets until a signal ends it.
//!
//! ```text
//! settings ── plan: what is not served is refused ──> ports ──> few rights ──> keys ──> worker ──> statistics
//!                  ^                                                            │
//!                  └──────────── SIGHUP, postern reload secgw <── show, reload ─┘
//! ```

use super::reread::Source;
use super::text;
use crate::{Failure, Outcome, engines, log, privilege};
use config::secgw::settings::Settings;
use config::secgw::{CommandLine, Finding};
use crypto::choice::{Choice, Rules};
use gateway::api::{self, Shown};
use gateway::ipsec::handle::IkeHandle;
use gateway::rights::Rights;
use gateway::secgw::api::{Gateways, ReloadOrder};
use gateway::secgw::{
    BUSY, Control, Ike, IkeSockets, Peers, Plan, Reopened, SecgwTables, Statistics, Stopper, Worker, dpdk,
    open_all,
};
use gateway::service::View;
use gateway::unix_socket::SocketError;
use gateway::{ipsec, openvpn, wireguard};
use privilege::Needs;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often lifetimes of SAs are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Its socket, without a path given.
const NAME: &str = "secgw";

/// Runs the gateway of a file that was accepted.
pub(super) fn serve(
    source: Source,
    settings: Settings,
    peers: &Peers,
    findings: &[Finding],
    socket: Option<&Path>,
) -> Result<ExitCode, Failure> {
    eprint!("{}", text(&source.file, findings));
    let mut plan = match Plan::new(settings, &source.command_line) {
        Ok(plan) => plan,
        Err(refused) => {
            for finding in &refused {
                eprintln!("{}", source.place(finding));
            }
            return Ok(ExitCode::from(2));
        }
    };
    plan.set_ike(peers);
    log::start()?;
    start(plan, source, socket)?;
    Ok(ExitCode::SUCCESS)
}

/// The processors of each lcore that has a worker.
fn processors(command_line: &CommandLine, plan: &Plan) -> Vec<BTreeSet<u32>> {
    plan.lcores.iter().map(|lcore| command_line.cores.get(lcore).cloned().unwrap_or_default()).collect()
}

fn start(mut plan: Plan, source: Source, socket: Option<&Path>) -> Outcome {
    for remark in &plan.remarks {
        tracing::warn!("{remark}");
    }
    // Threads inherit it.
    let processors = processors(&source.command_line, &plan);
    pin(&processors.iter().flatten().copied().collect());
    dpdk::start(&source.command_line, &mut plan)?;
    let plan = &plan;
    let ports = open_all(&plan.ports, plan.lcores.len(), BUSY)?;
    let stopper = Stopper::new(plan.lcores.len())?;
    // It keeps the rights to open them again.
    let (reopened, watch) = Reopened::watch(&plan.ports, &ports, stopper.clone())?;
    // A reload may bring the first peer.
    let sockets = source.ike.is_some().then(IkeSockets::bind).transpose()?;
    let files = source.files();
    privilege::drop_unneeded(Needs { keys: true, files: Some(&files), ..Needs::default() })?;
    let runtime = privilege::runtime()?;
    let engines = engines::choice(&plan.subjects());
    if dpdk::has_crypto_devices() {
        // They are given by name: cards are used where they are the fastest.
        engines.set_rules(Rules { accelerators: true, ..engines.rules() });
    }
    engines::maintain(&engines)?;
    let workers = Worker::several(SecgwTables::new(plan, &*engines)?, &plan.lcores, ports);
    let mut workers = Worker::reassembling(workers, plan.reassembly);
    let mut ike = None;
    if let Some(sockets) = &sockets {
        let (started, with_ike) = Ike::start(sockets, plan, workers, engines.clone(), &stopper)?;
        (ike, workers) = (Some(started), with_ike);
    }
    let statistics = Arc::new(Statistics::of(&workers));
    let workers = workers.into_iter().map(|worker| worker.with_reopened(Arc::clone(&reopened))).collect();
    drop(reopened);
    let (threads, ends) = run(workers, plan, processors, &stopper)?;
    let (orders, reloads) = mpsc::channel(1);
    let handle = ike.as_ref().map(Ike::handle);
    let gateways = Gateways::new(Arc::clone(&statistics), orders, handle.clone());
    show(&runtime, gateways, handle.clone(), &engines, socket);
    let control = Control::new(Arc::clone(&statistics), engines, &source.file).with_ike(handle);
    let (ports, sas, peers) = (plan.ports.len(), plan.sas.len(), plan.ike.len());
    tracing::info!("{ports} ports, {sas} SAs, {peers} IKE peers: packets are forwarded");
    let outcome = runtime.block_on(async {
        let reread = tokio::spawn(read_again(source, control, reloads, signal(SignalKind::hangup())?));
        let outcome = until_end(plan.statistics_seconds, &statistics, ends).await;
        reread.abort();
        outcome
    });
    // While packets still pass, the peers are told.
    drop(ike);
    stopper.stop();
    for thread in threads {
        thread.join().map_err(|_| "a worker has panicked")?;
    }
    drop(watch);
    print!("{statistics}");
    // Removes the socket.
    drop(runtime);
    outcome
}

/// How a worker has ended.
type Ended = oneshot::Receiver<std::io::Result<()>>;

/// Starts a thread for each worker, on the processors of its lcore.
fn run(
    workers: Vec<Worker>,
    plan: &Plan,
    processors: Vec<BTreeSet<u32>>,
    stopper: &Stopper,
) -> std::io::Result<(Vec<JoinHandle<()>>, Vec<Ended>)> {
    let (mut threads, mut ends) = (Vec::new(), Vec::new());
    let is_only = workers.len() == 1;
    for ((mut worker, lcore), processors) in workers.into_iter().zip(&plan.lcores).zip(processors) {
        let name = if is_only { NAME.to_owned() } else { format!("{NAME} {lcore}") };
        let (ended, end) = oneshot::channel();
        let stopper = stopper.clone();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            if !is_only {
                pin(&processors);
            }
            dpdk::enter_thread();
            Rights::Packets.keep();
            let _ = ended.send(worker.serve(&stopper));
        })?;
        threads.push(thread);
        ends.push(end);
    }
    Ok((threads, ends))
}

/// Serves the API for `postern show secgw`. Without it, packets are forwarded all the same.
fn show(
    runtime: &Runtime,
    gateways: Gateways,
    ike: Option<IkeHandle>,
    engines: &Arc<Choice>,
    socket: Option<&Path>,
) {
    let peers = ike.map_or_else(ipsec::api::Peers::absent, ipsec::api::Peers::of);
    let views: Vec<Arc<dyn View>> = vec![
        Arc::new(gateways),
        Arc::new(wireguard::api::Interfaces::default()),
        Arc::new(peers),
        Arc::new(openvpn::api::Interfaces::default()),
    ];
    let shown = Shown::new(Arc::clone(engines), views);
    match runtime.block_on(listen(socket)) {
        Ok(listener) => drop(runtime.spawn(api::serve(listener, shown))),
        Err(error) => tracing::warn!("postern show secgw will not find this gateway: {error}"),
    }
}

/// Makes the socket. Another network namespace may have a gateway, and its process the socket.
async fn listen(socket: Option<&Path>) -> Result<gateway::unix_socket::Listener, SocketError> {
    if let Some(path) = socket {
        return api::bind(path).await;
    }
    match api::bind(&api::path(NAME)).await {
        Err(SocketError::Busy(path)) => {
            let namespace = std::fs::metadata("/proc/thread-self/ns/net");
            let number = namespace.map_err(|error| SocketError::Io { path, error })?.ino();
            api::bind(&api::path(&format!("{NAME}@{number}"))).await
        }
        bound => bound,
    }
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

/// Reads the file again at each SIGHUP and each order.
async fn read_again(
    source: Source,
    control: Control,
    mut orders: mpsc::Receiver<ReloadOrder>,
    mut hangup: tokio::signal::unix::Signal,
) {
    loop {
        let order = tokio::select! {
            _ = hangup.recv() => None,
            // Without its socket nobody gives orders, and there is no end of them to wait for.
            Some(order) = orders.recv() => Some(order),
        };
        let reloaded = source.read_again(&control).await;
        if let Some(order) = order {
            // The client may have gone.
            let _ = order.send(reloaded);
        }
    }
}

/// Prints statistics each so many seconds, until SIGINT or SIGTERM comes, a worker fails, or all have ended.
async fn until_end(seconds: u32, statistics: &Statistics, ends: Vec<Ended>) -> Outcome {
    let mut ends: JoinSet<_> = ends.into_iter().collect();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut look = tokio::time::interval(LOOK);
    let pause = Duration::from_secs(seconds.max(1).into());
    let mut print = tokio::time::interval_at(Instant::now() + pause, pause);
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            Some(Ok(outcome)) = ends.join_next() => {
                outcome.map_err(|_| "a worker has panicked")??;
                if ends.is_empty() {
                    tracing::info!("the capture files have ended: all their frames are carried");
                    return Ok(());
                }
            }
            _ = print.tick(), if seconds > 0 => print!("{statistics}"),
            _ = look.tick() => statistics.news().iter().for_each(|text| tracing::warn!("{text}")),
        }
    }
}
