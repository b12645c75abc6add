//! Keeps the gateways between Ethernet ports what the configuration says they are.
//!
//! ```text
//! other policies, SAs, routes, stations ── switch: tables are exchanged, and no packet is lost
//! other ports, threads, MTU, window ────── switch: it ends, and is made again
//! ```

use super::api::Gateways;
use super::configured::TooManyThreads;
use super::opener::OpenError;
use super::plan::Plan;
use super::reload::{Control, ReloadError};
use super::statistics::Statistics;
use super::stopper::Stopper;
use super::tables::{SecgwTables, TablesError};
use super::worker::Worker;
use crate::host::wants::Wants;
use crate::rights::Rights;
use crate::service::{
    Context, Phase, Planned, Policy, Refusal, Refused, Requirements, Service, Step, View, Work,
};
use config::settings::Secgw;
use config::{Path, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

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
    stopper: Stopper,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
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
    /// The tables of gateways that ended and were not made again yet: numbers of SAs must not begin again with their keys.
    ended: BTreeMap<String, (Numbers, Arc<SecgwTables>)>,
    /// Gateways whose ports could not be opened.
    missing: BTreeMap<String, Secgw>,
    intents: BTreeMap<String, Intent>,
    shown: Gateways,
}

impl Service for SecgwService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let plans = settings.secgw.values().map(Plan::configured);
        Requirements {
            served: vec![(settings.secgw.len(), "IPsec gateway between ports")],
            ciphers: plans.flat_map(|plan| plan.subjects()).collect(),
            ..Requirements::default()
        }
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
            let done = self.apply(name, wanted.clone(), context).await;
            done.map_err(|error| match error {
                // Rights do not.
                error @ ServiceError::Open(_, OpenError::NoBpf(_)) => Refusal::new(error, false),
                // An interface may come later.
                error @ ServiceError::Open(..) => {
                    self.missing.extend(wanted.map(|wanted| (name.to_owned(), wanted)));
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
            let undone = self.apply(name, before.clone(), context).await;
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
            for (name, settings) in self.missing.clone() {
                match self.apply(&name, Some(settings.clone()), context).await {
                    Ok(()) => tracing::info!("{}: its ports are open now", path_of(&name)),
                    Err(error) => {
                        tracing::debug!("{error}");
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

    fn interface_removed(&mut self, _: &str) -> bool {
        false
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
            if let Some(Err(error)) = wanted.as_ref().map(|wanted| plan_of(&name, wanted)) {
                planned.refused.insert(path_of(&name), Refusal::new(error, false));
                continue;
            }
            let phase = match (&before, &wanted) {
                (None, _) => Phase::Prepare,
                (Some(_), Some(_)) => Phase::Switch,
                (Some(_), None) => Phase::Remove,
            };
            planned.steps.push(Step::of_interface(path_of(&name), phase, None, None));
            self.intents.insert(name, Intent { wanted, before });
        }
        planned
    }

    /// Makes a gateway what it is to be, or ends it.
    async fn apply(
        &mut self,
        name: &str,
        wanted: Option<Secgw>,
        context: &Context,
    ) -> Result<(), ServiceError> {
        self.missing.remove(name);
        let Some(wanted) = wanted else {
            self.ended.remove(name);
            self.end(name);
            return Ok(());
        };
        if let Some(served) = self.served.get_mut(name)
            && takes_effect_at_once(&served.settings, &wanted)
        {
            return exchange(served, wanted).await;
        }
        let before = self.served.get(name).map(|served| (numbers(&served.settings), served.control.tables()));
        let before = before.or_else(|| self.ended.remove(name));
        self.end(name);
        // The other end drops numbers that begin again as replayed.
        let same = before.as_ref().filter(|(before, _)| *before == numbers(&wanted));
        let tables = same.map(|(_, tables)| Arc::clone(tables));
        let created = self.create(name, wanted, tables.as_deref(), context).await;
        if created.is_err() {
            self.ended.extend(before.map(|before| (name.to_owned(), before)));
        }
        created
    }

    async fn create(
        &mut self,
        name: &str,
        settings: Secgw,
        before: Option<&SecgwTables>,
        context: &Context,
    ) -> Result<(), ServiceError> {
        let path = path_of(name).to_string();
        let opener = context.opener.as_ref().ok_or_else(|| ServiceError::NoOpener(path.clone()))?;
        let plan = plan_of(name, &settings)?;
        let stopper =
            Stopper::new(plan.lcores.len()).map_err(|error| ServiceError::Resources(path.clone(), error))?;
        let opened = opener.open(plan.ports.clone(), stopper.clone()).await;
        let (ports, reopened) = opened.map_err(|error| ServiceError::Open(path.clone(), error))?;
        let tables = match before {
            Some(before) => SecgwTables::taking_over(before, &plan, &*context.engines)?,
            None => SecgwTables::new(&plan, &*context.engines)?,
        };
        let workers = Worker::reassembling(Worker::several(tables, &plan.lcores, ports), plan.reassembly);
        let statistics = Arc::new(Statistics::of(&workers));
        let workers = workers.into_iter().map(|worker| worker.with_reopened(Arc::clone(&reopened)));
        let threads = start(name, workers.collect(), &stopper)
            .map_err(|error| ServiceError::Resources(path.clone(), error))?;
        let control = Control::new(Arc::clone(&statistics), context.engines.clone(), &path);
        tracing::info!("{path}: {} ports, {} SAs: packets are forwarded", plan.ports.len(), plan.sas.len());
        self.shown.show(name, statistics);
        self.served.insert(name.to_owned(), Served { settings, control, stopper, threads });
        Ok(())
    }

    fn end(&mut self, name: &str) {
        self.shown.hide(name);
        self.served.remove(name);
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
    let workers = |it: &Secgw| (it.threads, it.reassemble, it.mtu);
    ports(before) == ports(after) && workers(before) == workers(after) && numbers(before) == numbers(after)
}

fn numbers(settings: &Secgw) -> Numbers {
    (settings.window, settings.extended_sequence)
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
