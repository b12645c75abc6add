//! `postern run`: keeps the interfaces what the configuration says they are.
//!
//! A new configuration is applied in steps that the services plan. If one is refused, what it belongs to goes back to what it
//! was, or everything does, and the error is reported.

pub mod archive;
pub mod candidate;
pub mod fault;
pub mod file;
pub mod ledger;
pub mod needs;
pub mod order;
mod provisional;
pub mod rejected;
pub mod running;
pub mod serve;
mod start;
mod steps;
pub mod transactions;

use crate::api::Shown;
use crate::api::model;
use crate::dhcp::Clients;
use crate::dns::NameServers;
use crate::failover::FailoverService;
use crate::firewall::FirewallService;
use crate::health;
use crate::health::service::HealthService;
use crate::helper::Connection;
use crate::host::Host;
use crate::host::wants::Wants;
use crate::https::{EnrollmentService, HttpsService, MetricsService, PageService, Process};
use crate::ipsec::service::IpsecService;
#[cfg(not(feature = "openvpn"))]
use crate::left_out::OpenVpnService;
#[cfg(not(feature = "secgw"))]
use crate::left_out::SecgwService;
use crate::log::service::LogService;
use crate::machine::{Client, MachineService};
use crate::nat::NatService;
#[cfg(feature = "openvpn")]
use crate::openvpn::service::OpenVpnService;
use crate::path::service::PathService;
use crate::router::RouterService;
use crate::secgw::Opener;
#[cfg(feature = "secgw")]
use crate::secgw::service::SecgwService;
use crate::service::{Context, Policy, Refusal, Refused, Requirements, Service, View};
use crate::tunnel_interface::Removed;
use crate::wireguard::service::WireGuardService;
use config::settings::FailoverGroup;
use config::{Path, Settings};
use crypto::choice::{Choice, Rules as EngineRules, Subject};
use crypto::machine::Machine;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steps::Terms;
use tokio::sync::mpsc;

/// What is served: one line each.
fn services() -> Vec<Box<dyn Service>> {
    vec![
        Box::<WireGuardService>::default(),
        Box::<OpenVpnService>::default(),
        Box::<IpsecService>::default(),
        Box::<SecgwService>::default(),
        Box::<MachineService>::default(),
        Box::<RouterService>::default(),
        Box::<NatService>::default(),
        Box::<FirewallService>::default(),
        Box::<HttpsService>::default(),
        Box::<MetricsService>::default(),
        Box::<PageService>::default(),
        Box::<EnrollmentService>::default(),
        Box::<HealthService>::default(),
        Box::<PathService>::default(),
        Box::<FailoverService>::default(),
        Box::<LogService>::default(),
    ]
}

/// What the configuration decides about crypto engines.
pub fn engine_rules(
    config::settings::Crypto { pinned, accelerators }: config::settings::Crypto,
) -> EngineRules {
    EngineRules { pinned, accelerators }
}

/// What the host is to know for these settings, by interface.
pub fn wanted(settings: &Settings) -> BTreeMap<String, Wants> {
    services().iter().flat_map(|service| service.wants(settings)).collect()
}

/// The prefixes that tunnels of other interfaces than this one protect, with the names of those. What a fail-over group has on both is
/// not counted.
pub fn protected_elsewhere(settings: &Settings, interface: &str) -> Vec<(String, IpNet)> {
    let is_member = |group: &&FailoverGroup| group.members.iter().any(|member| member.interface == interface);
    let shared: BTreeSet<IpNet> = settings
        .failover
        .values()
        .filter(is_member)
        .flat_map(|group| group.prefixes.iter().copied())
        .collect();
    let others = wanted(settings).into_iter().filter(|(name, _)| name != interface);
    let prefixes = |(name, wants): (String, Wants)| {
        wants.prefixes().map(|prefix| (name.clone(), prefix)).collect::<Vec<_>>()
    };
    others.flat_map(prefixes).filter(|(_, prefix)| !shared.contains(prefix)).collect()
}

/// What settings need of the machine.
pub fn requirements(settings: &Settings) -> Requirements {
    let mut all = Requirements::default();
    for service in services() {
        all.extend(service.requirements(settings));
    }
    all.ciphers.sort_unstable();
    all.ciphers.dedup();
    // Forwarding that the configuration switches on needs no warning.
    let machine = &settings.machine;
    all.needs.forwarded.retain(|(_, prefix)| {
        let is_set = if prefix.addr().is_ipv4() { machine.forwards_v4 } else { machine.forwards_v6 };
        is_set != Some(true)
    });
    all
}

/// Finds what would be refused when it is served, as far as that can be known before; and what is probably a
/// mistake.
pub fn check(settings: &Settings) -> (Vec<String>, Refused) {
    let (mut warnings, mut refused) = (Vec::new(), Refused::new());
    for service in services() {
        let (warned, found) = service.check(settings);
        warnings.extend(warned);
        refused.extend(found);
    }
    (warnings, refused)
}

/// What of settings will not work on this machine, as it is now.
pub fn warnings(settings: &Settings) -> Vec<String> {
    let accelerators = settings.crypto.accelerators.then(no_accelerator).flatten();
    let services = services();
    let warnings = services.iter().flat_map(|service| service.warnings(settings));
    accelerators.into_iter().chain(warnings).collect()
}

/// The warning if accelerators are allowed but none can be used.
fn no_accelerator() -> Option<String> {
    (!crypto::choice::find().has_accelerator()).then(|| {
        format!(
            "system acceleration qat has no effect: this machine has no usable accelerator, so software encrypts\n  \
             looked for: {}\n  details: postern doctor crypto",
            Machine::here().accelerators_found()
        )
    })
}

/// The daemon.
pub struct Daemon {
    context: Context,
    services: Vec<Box<dyn Service>>,
    /// What the configuration in force decides about the engines.
    engine_rules: EngineRules,
    /// Whether nothing is to stay closed at the end.
    open_at_exit: bool,
    /// What the machine does not have, as was logged.
    advised: BTreeSet<String>,
    shown: Shown,
}

impl Daemon {
    /// A daemon without interfaces; `host` keeps closed what they will be for, `machine` may change settings of the machine, and
    /// `https` serves the API over HTTPS, `alerts` tells receivers of alerts, `snmp` is the sub-agent of snmpd,
    /// `dhcp` runs DHCP clients, `name_servers` sets those of this machine, `opener` opens Ethernet ports.
    /// If another program deletes an interface, `events` is told.
    #[allow(clippy::too_many_arguments, reason = "each is a process or a thread of its own")]
    pub fn new(
        engines: Arc<Choice>,
        events: mpsc::UnboundedSender<Removed>,
        host: Host,
        machine: Client,
        https: Process,
        alerts: health::Connection,
        snmp: Connection,
        dhcp: Connection,
        name_servers: Option<NameServers>,
        opener: Option<Opener>,
    ) -> Self {
        let services = services();
        let dhcp = Clients::new(dhcp, name_servers.clone());
        let mut views: Vec<Arc<dyn View>> = services.iter().map(|service| service.view()).collect();
        views.push(Arc::new(dhcp.shown().clone()));
        let shown = Shown::new(Arc::clone(&engines), views);
        shown.set_held(host.held());
        let health = Arc::clone(shown.health());
        health.connect(alerts);
        let agent = Arc::clone(shown.snmp());
        agent.connect(snmp);
        let https = https.into();
        let context = Context {
            engines,
            events,
            host,
            machine,
            https,
            health,
            snmp: agent,
            dhcp,
            name_servers,
            opener,
        };
        let engine_rules = EngineRules::default();
        Self { context, services, engine_rules, open_at_exit: false, advised: BTreeSet::new(), shown }
    }

    /// Whether there is any interface.
    pub fn serves(&self) -> bool {
        self.services.iter().any(|service| service.serves())
    }

    /// What the API shows.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Makes everything what `settings` says. What was refused, by its path in the configuration, is what it was before; and so
    /// is everything else, if that is the policy, unless what was refused is tried again by itself.
    pub async fn apply(&mut self, settings: Settings, policy: Policy) -> Refused {
        let terms = match policy {
            Policy::EachPath => Terms::EachPath,
            Policy::AllOrNothing => Terms::AllBut(BTreeMap::new()),
        };
        self.apply_on(&terms, settings).await
    }

    async fn apply_on(&mut self, terms: &Terms, mut settings: Settings) -> Refused {
        let Requirements { needs, ciphers, .. } = requirements(&settings);
        self.measure(ciphers);
        // First: it may be stopped meanwhile.
        let open_at_exit = std::mem::replace(&mut self.open_at_exit, settings.open_at_exit);
        let protected = wanted(&settings);
        let rules = engine_rules(std::mem::take(&mut settings.crypto));
        self.context.engines.set_rules(rules.clone());
        // A prefix may go from one tunnel to another: it is closed in between.
        self.context.host.hold();
        let refused = steps::apply(&mut self.services, settings, terms, &self.context).await;
        if !terms.allow(&refused) {
            self.context.host.release(None);
            self.context.engines.set_rules(self.engine_rules.clone());
            self.open_at_exit = open_at_exit;
            // What could not go back is not in force either.
            let pending = self.pending();
            self.shown.add_refused(shown_refusals(&refused).filter(|(path, _)| pending.contains(path)));
            return refused;
        }
        let unchanged = interfaces(&refused);
        if !refused.is_empty() {
            self.context.host.close_refused(&protected);
        }
        self.context.host.release(Some((&protected, &unchanged)));
        self.engine_rules = rules;
        self.shown.set_refused(shown_refusals(&refused).collect());
        let advised =
            needs.warnings().into_iter().map(|it| format!("{}\n  fix: {}", it.what, it.fix)).collect();
        let before = std::mem::replace(&mut self.advised, advised);
        for advice in self.advised.difference(&before) {
            tracing::warn!("{advice}");
        }
        self.shown.set_needs(needs);
        refused
    }

    /// Has the engines measured for ciphers that the configuration is the first to need. The first key would wait for it
    /// otherwise, in a thread of low priority. The commit does not wait for it.
    fn measure(&self, ciphers: Vec<Subject>) {
        let engines = Arc::clone(&self.context.engines);
        let new: Vec<Subject> = ciphers.into_iter().filter(|cipher| !engines.knows(*cipher)).collect();
        if !new.is_empty() {
            tokio::task::spawn_blocking(move || new.into_iter().for_each(|cipher| drop(engines.row(cipher))));
        }
    }

    /// What would be refused of `settings`, as far as that is known before anything is changed.
    pub async fn would_refuse(&mut self, settings: Settings) -> Refused {
        let (_, mut refused) = check(&settings);
        refused.extend(steps::would_refuse(&mut self.services, settings, &self.context).await);
        refused
    }

    /// Looks again at what could not be served, and where those are who do not answer.
    pub async fn maintain(&mut self) {
        for service in &mut self.services {
            service.maintain(&self.context).await;
        }
        let pending = self.pending();
        self.shown.keep_refused(|path, refused| !refused.is_temporary || pending.contains(path));
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.services.iter().flat_map(|service| service.pending()).collect()
    }

    /// Forgets an interface that another program has deleted; it is made again with the next configuration. What it was for
    /// stays closed. Whether it was still there for us.
    pub fn forget(&mut self, name: &str) -> bool {
        let Some(path) = self.services.iter_mut().find_map(|service| service.interface_removed(name)) else {
            return false;
        };
        let deleted = Deleted(name.to_owned());
        tracing::warn!("{deleted}");
        let refused = Refused::from([(path, Refusal::new(deleted, false))]);
        self.shown.add_refused(shown_refusals(&refused));
        if let Err(error) = self.context.host.close(name) {
            tracing::warn!("{error}");
        }
        true
    }

    /// Ends everything as the configuration says, or opened: then nothing is left behind. What was protected stays closed
    /// otherwise, until the next start or `postern open`.
    pub fn stop(self, open: bool) {
        let open = open || self.open_at_exit;
        self.end(open);
    }

    /// Ends what could not be started; what it was to protect stays closed.
    pub fn give_up(self) {
        self.end(false);
    }

    fn end(mut self, open: bool) {
        for service in &mut self.services {
            service.stop();
        }
        self.context.host.end(open);
    }
}

/// An interface that another program has deleted.
#[derive(Debug, thiserror::Error)]
#[error("interface {0} was deleted by another program\n  fix: postern reload")]
struct Deleted(String);

/// The interfaces of which something was refused: they may be as they were before.
fn interfaces(refused: &Refused) -> BTreeSet<String> {
    let lasting = refused.iter().filter(|(_, refusal)| !refusal.is_temporary());
    let name = |path: &Path| match path.words()[..] {
        ["interfaces", _, name, ..] => Some(name.to_owned()),
        ["vpn", "ipsec", ..] => Some(crate::ipsec::NAME.to_owned()),
        _ => None,
    };
    lasting.filter_map(|(path, _)| name(path)).collect()
}

/// Refusals as the API shows them.
fn shown_refusals(refused: &Refused) -> impl Iterator<Item = (Path, model::Refused)> {
    refused.iter().map(|(path, refusal)| {
        let (place, why) = (path.to_string(), refusal.to_string());
        (path.clone(), model::Refused { place, why, is_temporary: refusal.is_temporary() })
    })
}
