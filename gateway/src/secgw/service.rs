//! Keeps the gateways between Ethernet ports what the configuration says they are.
//!
//! ```text
//! other policies, SAs, routes, stations, peers of IKE ── switch: tables are exchanged, and no packet is lost
//! other ports, threads, MTU, window, or the first peer ── switch: it ends, and is made again
//! ```

use super::api::Gateways;
use super::configured::TooManyThreads;
use super::ike::{Ike, IkeError, IkeSockets, why_not};
use super::opener::OpenError;
use super::plan::Plan;
use super::ports::BUSY;
use super::reload::{Control, ReloadError};
use super::reopen::Watch;
use super::statistics::Statistics;
use super::stopper::Stopper;
use super::tables::{SecgwTables, TablesError};
use super::used_keys::UsedKeys;
use super::worker::Worker;
use crate::daemon::needs::Needs;
use crate::host::wants::Wants;
use crate::ipsec::connections;
use crate::rights::Rights;
use crate::service::{
    Context, Phase, Planned, Policy, Refusal, Refused, Requirements, Service, Step, View, Work,
};
use config::settings::Secgw;
use config::{Path, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// Why a gateway is not what it is to be.
#[derive(Debug, thiserror::Error)]
enum ServiceError {
    /// The program that the daemon is part of has not started a thread that opens ports.
    #[error("{0}: this program opens no ports\n  fix: serve it by postern run")]
    NoOpener(String),
    /// The ports cannot be opened.
    #[error("{0}: {1}")]
    Open(String, OpenError),
    /// A port has fewer queues than there are threads.
    #[error(
        "{path} threads {threads}: {} of port {} has {} queues, and each thread receives from one at least\n  \
         fix: ethtool -L {} {}, or set {path} threads {}",
        .found.interface, .found.number, .found.queues, .found.interface, .found.words, .found.queues
    )]
    Threads { path: Path, threads: u32, found: TooManyThreads },
    /// There are no tables for it.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// A peer of IKE is not served.
    #[error("{0}: {1}\n  fix: {2}")]
    Peer(Path, String, String),
    /// IKE cannot be started.
    #[error("{0}: {1}")]
    Ike(String, IkeError),
    /// The tables cannot be exchanged.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// There is no thread, or no descriptor.
    #[error("{0}: {1}")]
    Resources(String, io::Error),
}

/// A running gateway. Dropping it ends its workers.
struct Served {
    settings: Secgw,
    control: Control,
    ike: Option<Ike>,
    stopper: Stopper,
    threads: Vec<JoinHandle<()>>,
    /// Ended behind the workers.
    _watch: Watch,
}

impl Drop for Served {
    fn drop(&mut self) {
        // While packets still pass, the peers are told.
        self.ike = None;
        self.stopper.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A step: what a gateway is to be, and what it was.
struct Intent {
    wanted: Option<Secgw>,
    before: Option<Secgw>,
}

/// What SAs depend on beside their own settings: the window, and whether numbers have 64 bits.
type Numbers = (u64, bool);

/// The gateways.
#[derive(Default)]
pub struct SecgwService {
    served: BTreeMap<String, Served>,
    /// The keys of SAs, with the numbers of those that are gone: they must not begin again.
    used_keys: UsedKeys,
    /// The tables of gateways that ended and were not made again yet.
    ended: BTreeMap<String, (Numbers, Arc<SecgwTables>)>,
    /// Gateways whose ports could not be opened.
    missing: BTreeMap<String, Secgw>,
    /// What was last said of each of these.
    said: BTreeMap<String, String>,
    intents: BTreeMap<String, Intent>,
    shown: Gateways,
}

impl Service for SecgwService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let plans = settings.secgw.values().map(Plan::configured);
        Requirements {
            served: vec![(settings.secgw.len(), "IPsec gateway between ports")],
            ports: settings.secgw.values().flat_map(ports_of_ike).collect(),
            ciphers: plans.flat_map(|plan| plan.subjects()).collect(),
            needs: Needs {
                local: settings.secgw.values().flat_map(own_addresses).collect(),
                ..Needs::default()
            },
        }
    }

    fn check(&self, settings: &Settings) -> (Vec<String>, Refused) {
        let peers = settings.secgw.values().flat_map(|gateway| &gateway.ike);
        let warnings = peers.filter_map(|(name, peer)| connections::check(name, peer).ok().flatten());
        let refused = settings.secgw.iter().filter_map(|(name, gateway)| {
            let error = refused_peer(name, gateway)?;
            Some((path_of(name), Refusal::new(error, false)))
        });
        (warnings.collect(), refused.collect())
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        let ports = settings.secgw.values().flat_map(|gateway| gateway.ports.values());
        ports.filter_map(|port| forwarded(&port.interface)).collect()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let planned = self.plan_gateways(std::mem::take(&mut settings.secgw));
        Box::pin(std::future::ready(planned))
    }

    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let name = step.path.last();
            let Some(wanted) = self.intents.get(name).map(|intent| intent.wanted.clone()) else {
                return Ok(());
            };
            let done = self.apply(name, wanted.clone(), BUSY, context).await;
            done.map_err(|error| match error {
                // Rights do not.
                error @ ServiceError::Open(_, OpenError::NoBpf(_)) => Refusal::new(error, false),
                // An interface may come later.
                error @ ServiceError::Open(..) => {
                    self.missing.extend(wanted.map(|wanted| (name.to_owned(), wanted)));
                    self.said.insert(name.to_owned(), error.to_string());
                    Refusal::unfinished(error)
                }
                error => Refusal::new(error, false),
            })
        })
    }

    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        _: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let name = step.path.last();
            let Some(before) = self.intents.get(name).map(|intent| intent.before.clone()) else {
                return Ok(());
            };
            let undone = self.apply(name, before.clone(), BUSY, context).await;
            undone.map_err(|error| {
                self.missing.extend(before.map(|before| (name.to_owned(), before)));
                Refusal::new(error, true)
            })
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.intents.clear();
        Box::pin(std::future::ready(()))
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        Box::pin(async {
            for (name, served) in &self.served {
                served.control.news().iter().for_each(|text| tracing::warn!("{}: {text}", path_of(name)));
            }
            for (name, settings) in self.missing.clone() {
                // Without patience: a commit waits for the thread that opens ports.
                match self.apply(&name, Some(settings.clone()), Duration::ZERO, context).await {
                    Ok(()) => tracing::info!("{}: its ports are open now", path_of(&name)),
                    Err(error) => {
                        let error = error.to_string();
                        if self.said.get(&name) != Some(&error) {
                            tracing::warn!("{error}");
                            self.said.insert(name.clone(), error);
                        }
                        self.missing.insert(name, settings);
                    }
                }
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.missing.keys().map(|name| path_of(name)).collect()
    }

    fn serves(&self) -> bool {
        !self.served.is_empty()
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {
        for name in std::mem::take(&mut self.served).into_keys() {
            self.shown.hide(&name);
        }
    }
}

impl SecgwService {
    fn plan_gateways(&mut self, mut settings: BTreeMap<String, Secgw>) -> Planned {
        self.intents.clear();
        let mut planned = Planned { steps: Vec::new(), refused: Refused::new() };
        let names: BTreeSet<String> =
            self.served.keys().chain(self.missing.keys()).chain(settings.keys()).cloned().collect();
        for name in names {
            let served = self.served.get(&name).map(|served| &served.settings);
            let (before, wanted) = (served.or(self.missing.get(&name)).cloned(), settings.remove(&name));
            if before == wanted && !self.missing.contains_key(&name) {
                continue;
            }
            // Known before what is there ends.
            let refused = |wanted| refused_peer(&name, wanted).or_else(|| plan_of(&name, wanted).err());
            if let Some(error) = wanted.as_ref().and_then(refused) {
                planned.refused.insert(path_of(&name), Refusal::new(error, false));
                continue;
            }
            let phase = match (&before, &wanted) {
                (None, _) => Phase::Prepare,
                (Some(_), Some(_)) => Phase::Switch,
                (Some(_), None) => Phase::Remove,
            };
            let [had, needs] = [served, wanted.as_ref()].map(|it| it.map_or(Vec::new(), ports_of_ike));
            let (frees, needs) = if had == needs { (Vec::new(), Vec::new()) } else { (had, needs) };
            planned.steps.push(Step { path: path_of(&name), phase, frees, needs });
            self.intents.insert(name, Intent { wanted, before });
        }
        planned
    }

    /// Makes a gateway what it is to be, or ends it.
    async fn apply(
        &mut self,
        name: &str,
        wanted: Option<Secgw>,
        patience: Duration,
        context: &Context,
    ) -> Result<(), ServiceError> {
        self.missing.remove(name);
        if let (Some(served), Some(wanted)) = (self.served.get_mut(name), &wanted)
            && takes_effect_at_once(&served.settings, wanted)
        {
            return exchange(served, wanted.clone()).await;
        }
        if let Some(served) = self.served.get(name) {
            let ended = (numbers(&served.settings), served.control.tables());
            self.ended.insert(name.to_owned(), ended);
        }
        self.end(name).await;
        let same = self
            .ended
            .get(name)
            .zip(wanted.as_ref())
            .is_some_and(|((numbers_of, _), wanted)| *numbers_of == numbers(wanted));
        if !same && let Some((_, tables)) = self.ended.remove(name) {
            tables.end();
        }
        match wanted {
            Some(wanted) => self.create(name, wanted, patience, context).await,
            None => Ok(()),
        }
    }

    async fn create(
        &mut self,
        name: &str,
        settings: Secgw,
        patience: Duration,
        context: &Context,
    ) -> Result<(), ServiceError> {
        let path = path_of(name).to_string();
        let opener = context.opener.as_ref().ok_or_else(|| ServiceError::NoOpener(path.clone()))?;
        let plan = plan_of(name, &settings)?;
        let stopper =
            Stopper::new(plan.lcores.len()).map_err(|error| ServiceError::Resources(path.clone(), error))?;
        let opened = opener.open(plan.ports.clone(), stopper.clone(), patience).await;
        let (ports, reopened, watch) = opened.map_err(|error| ServiceError::Open(path.clone(), error))?;
        let sockets = (!plan.ike_peers.is_empty()).then(IkeSockets::bind).transpose();
        let of_ike = |error| ServiceError::Ike(path.clone(), error);
        let sockets = sockets.map_err(of_ike)?;
        let tables = match self.ended.get(name) {
            Some((_, before)) => SecgwTables::taking_over(before, &plan, &*context.engines)?,
            None => SecgwTables::with_keys(self.used_keys.clone(), &plan, &*context.engines)?,
        };
        let mut workers = Worker::reassembling(Worker::several(tables, &plan.lcores, ports), plan.reassembly);
        // If something is refused from here on: those before have lost SAs.
        self.ended.insert(name.to_owned(), (numbers(&settings), workers[0].tables()));
        let mut ike = None;
        if let Some(sockets) = &sockets {
            let started = Ike::start(sockets, &plan, workers, context.engines.clone(), &stopper);
            let (started, with_ike) = started.map_err(of_ike)?;
            (ike, workers) = (Some(started), with_ike);
        }
        let statistics = Arc::new(Statistics::of(&workers));
        let workers = workers.into_iter().map(|worker| worker.with_reopened(Arc::clone(&reopened)));
        let threads = start(name, workers.collect(), &stopper)
            .map_err(|error| ServiceError::Resources(path.clone(), error))?;
        let handle = ike.as_ref().map(Ike::handle);
        if let Some(handle) = &handle {
            handle.set_patience(settings.retransmission);
        }
        let control = Control::new(Arc::clone(&statistics), context.engines.clone(), &path);
        let (ports, sas, peers) = (plan.ports.len(), plan.sas.len(), plan.ike.len());
        tracing::info!("{path}: {ports} ports, {sas} SAs, {peers} IKE peers: packets are forwarded");
        self.shown.show(name, statistics, handle.clone());
        let control = control.with_ike(handle);
        self.served
            .insert(name.to_owned(), Served { settings, control, ike, stopper, threads, _watch: watch });
        self.said.remove(name);
        self.ended.remove(name);
        Ok(())
    }

    /// Ends a gateway, in a thread of its own: IKE waits for the answers of its peers.
    async fn end(&mut self, name: &str) {
        self.shown.hide(name);
        let served = self.served.remove(name);
        // It fails only if that panics.
        let _ = tokio::task::spawn_blocking(move || drop(served)).await;
    }
}

/// The plan of a gateway, with the queues that its interfaces have now.
fn plan_of(name: &str, settings: &Secgw) -> Result<Plan, ServiceError> {
    let mut plan = Plan::configured(settings);
    plan.spread_queues().map_err(|found| ServiceError::Threads {
        path: path_of(name),
        threads: settings.threads,
        found,
    })?;
    Ok(plan)
}

/// Starts a thread for each worker.
fn start(name: &str, workers: Vec<Worker>, stopper: &Stopper) -> io::Result<Vec<JoinHandle<()>>> {
    let is_only = workers.len() == 1;
    let threads = workers.into_iter().enumerate().map(|(place, mut worker)| {
        let thread = if is_only { format!("{name} worker") } else { format!("{name} worker {place}") };
        let (of_worker, path) = (stopper.clone(), path_of(name));
        std::thread::Builder::new().name(thread).spawn(move || {
            // The filter of system calls refuses what DPDK looks at here.
            super::dpdk::enter_thread();
            Rights::Packets.keep();
            if let Err(error) = worker.serve(&of_worker) {
                tracing::error!("{path}: nothing more is forwarded: {error}");
            }
        })
    });
    // Those that have started end.
    threads.collect::<io::Result<_>>().inspect_err(|_| stopper.stop())
}

/// Exchanges the tables of a gateway, in a thread of its own: it waits for the end of a burst.
async fn exchange(served: &mut Served, wanted: Secgw) -> Result<(), ServiceError> {
    let (control, plan) = (served.control.clone(), Plan::configured(&wanted));
    let exchanged = tokio::task::spawn_blocking(move || control.replace(&plan)).await;
    exchanged.map_err(|error| ServiceError::Resources("interfaces secgw".to_owned(), error.into()))??;
    if let Some(ike) = &served.ike {
        ike.handle().set_patience(wanted.retransmission);
    }
    served.settings = wanted;
    Ok(())
}

/// Whether only tables are different.
fn takes_effect_at_once(before: &Secgw, after: &Secgw) -> bool {
    let ports = |settings: &Secgw| {
        let mut ports = settings.ports.clone();
        for port in ports.values_mut() {
            port.neighbour = [0; 6];
        }
        ports
    };
    let workers = |it: &Secgw| (it.threads, it.reassemble, it.mtu, it.ike_peers.is_empty());
    ports(before) == ports(after) && workers(before) == workers(after) && numbers(before) == numbers(after)
}

fn numbers(settings: &Secgw) -> Numbers {
    (settings.window, settings.extended_sequence)
}

/// Why a peer that policies name is not served.
fn refused_peer(name: &str, settings: &Secgw) -> Option<ServiceError> {
    let (text, fix) = settings.ike.iter().find_map(|(peer, settings)| why_not(peer, settings))?;
    Some(ServiceError::Peer(path_of(name), text, fix))
}

/// The UDP ports that IKE of a gateway has.
fn ports_of_ike(settings: &Secgw) -> Vec<u16> {
    if settings.ike_peers.is_empty() { Vec::new() } else { vec![IKE_PORT, NAT_PORT] }
}

/// Our addresses for IKE, with where the configuration has them.
fn own_addresses(settings: &Secgw) -> Vec<(IpAddr, Path)> {
    let path = |peer: &str| Path::new(["vpn", "ipsec", "site-to-site", "peer", peer, "local-address"]);
    let own = settings.ike.iter().filter_map(|(name, peer)| Some((peer.local_address?, path(name))));
    own.collect()
}

/// The warning if the kernel forwards packets of a port, too.
fn forwarded(interface: &str) -> Option<String> {
    let families = ["ipv4", "ipv6"].map(|family| format!("net/{family}/conf/{interface}/forwarding"));
    let set = families.iter().find(|name| {
        std::fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|value| value.trim() == "1")
    })?;
    Some(format!(
        "the kernel forwards packets of {interface} in clear where it sees them: with driver packet, and while the gateway does not run\n  \
         fix: sysctl -w {}=0",
        set.replace('/', ".")
    ))
}

fn path_of(name: &str) -> Path {
    Path::new(["interfaces", "secgw", name])
}
