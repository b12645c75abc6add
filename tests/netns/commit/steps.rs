//! The steps of the services, carried out and undone one by one.

use super::{Served, Sites, engines, machine, settings};
use crate::support::PATIENCE;
use gateway::api;
use gateway::daemon;
use gateway::host::Host;
use gateway::https::Process;
use gateway::ipsec::service::IpsecService;
use gateway::service::{Context, Phase, Policy, Refusal, Refused, Service, Step};
use gateway::wireguard::service::WireGuardService;
use lab::wait_until;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// The services, as the daemon has them, and what it lends them.
struct Services {
    all: Vec<Box<dyn Service>>,
    context: Context,
}

impl Services {
    /// Services of the first site that serve what is configured before, and its API.
    fn start(sites: &Sites, runtime: &Runtime) -> (Self, Served) {
        let host = Host::start(daemon::wanted(&settings(&sites.before()))).expect("root may");
        let (events, machine) = (mpsc::unbounded_channel().0, machine());
        let https = Process::default().into();
        let (choice, health) = (engines(), Arc::default());
        let context = Context {
            engines: choice,
            events,
            host,
            machine,
            https,
            health,
            snmp: Arc::default(),
            dhcp: gateway::dhcp::Clients::default(),
            name_servers: None,
            opener: None,
        };
        let all: Vec<Box<dyn Service>> =
            vec![Box::<WireGuardService>::default(), Box::<IpsecService>::default()];
        let shown = api::Shown::new(engines(), all.iter().map(|service| service.view()).collect());
        let mut services = Self { all, context };
        runtime.block_on(async {
            services.carry_out(&sites.before()).await;
            services.finish().await;
        });
        let served = sites.serve_api(shown);
        sites.come_up();
        (services, served)
    }

    /// Plans and does all, in the order of the phases.
    async fn carry_out(&mut self, text: &str) -> Vec<(usize, Step)> {
        let mut settings = settings(text);
        let mut steps = Vec::new();
        for (number, service) in self.all.iter_mut().enumerate() {
            let planned = service.plan(&mut settings, &self.context).await;
            assert!(planned.refused.is_empty(), "{:?}", planned.refused);
            steps.extend(planned.steps.into_iter().map(|step| (number, step)));
        }
        let phases = [Phase::Free, Phase::Prepare, Phase::Switch, Phase::Remove];
        steps.sort_by_key(|(_, step)| phases.iter().position(|phase| *phase == step.phase));
        let mut refused = Refused::new();
        for (number, step) in &steps {
            let done = self.all[*number].carry_out(step, &self.context).await;
            refused.extend(done.err().map(|refusal| (step.path.clone(), refusal)));
        }
        assert!(refused.is_empty(), "{refused:?}");
        steps
    }

    /// Undoes all; what cannot be undone.
    async fn undo(&mut self, steps: Vec<(usize, Step)>) -> Refused {
        let mut refused = Refused::new();
        for (number, step) in steps.into_iter().rev() {
            let undone = self.all[number].undo(&step, Policy::AllOrNothing, &self.context).await;
            refused.extend(undone.err().map(|refusal| (step.path, refusal)));
        }
        self.finish().await;
        refused
    }

    async fn maintain(&mut self) {
        for service in &mut self.all {
            service.maintain(&self.context).await;
        }
    }

    /// What is tried again.
    fn pending(&self) -> Vec<String> {
        let pending = self.all.iter().flat_map(|service| service.pending());
        pending.map(|path| path.to_string()).collect()
    }

    async fn finish(&mut self) {
        for service in &mut self.all {
            service.finish().await;
        }
    }
}

#[test]
fn every_step_that_was_done_can_be_undone() {
    let Some(sites) = Sites::new() else { return };
    sites.inside(|runtime| {
        let (mut services, _served) = Services::start(&sites, runtime);
        let before = (sites.kernel(), sites.sessions());
        let steps = runtime.block_on(services.carry_out(&sites.after()));
        assert_eq!(steps.len(), 6, "wg0 and IPsec in two steps, wg1 comes, wg2 goes: {steps:?}");
        assert_ne!(sites.kernel(), before.0);
        let refused = runtime.block_on(services.undo(steps));
        assert!(refused.is_empty(), "{refused:?}");
        assert_eq!((sites.kernel(), sites.sessions()), before, "what stayed kept its sessions");
        assert!(sites.carry() && !sites.a.peer("second").is_null() && sites.a.peer("third").is_null());
        let steps = runtime.block_on(services.carry_out("set system allow-empty\n"));
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert!(!sites.kernel().join("\n").contains("wg"));
        let refused = runtime.block_on(services.undo(steps));
        assert!(refused.is_empty(), "{refused:?}");
        sites.come_up();
        let same = || sites.kernel() == before.0;
        wait_until(PATIENCE, same).unwrap_or_else(|error| panic!("{error}: {:#?}", sites.kernel()));
    });
}

#[test]
fn what_was_removed_and_cannot_come_back_is_tried_again() {
    let Some(sites) = Sites::new() else { return };
    sites.inside(|runtime| {
        let (mut services, _served) = Services::start(&sites, runtime);
        let before = sites.kernel();
        let steps = runtime.block_on(services.carry_out("set system allow-empty\n"));
        let taken = [51972, 4500].map(|port| sites.lab.take("a", &format!("0.0.0.0:{port}")).expect("free"));
        let refused = runtime.block_on(services.undo(steps));
        let gone = ["interfaces wireguard wg2", "vpn ipsec"];
        assert_eq!(refused.keys().map(ToString::to_string).collect::<Vec<_>>(), gone, "{refused:?}");
        assert!(refused.values().all(Refusal::is_temporary), "{refused:?}");
        assert_eq!(services.pending(), gone);
        let there = |name: &str| sites.lab.ip("a", &format!("link show {name}")).is_ok();
        assert_eq!(["wg0", "wg2", "ipsec0"].map(there), [true, false, false], "the rest is undone");
        let route = sites.lab.ip("a", "route get 10.20.0.1");
        assert!(!route.is_ok_and(|route| route.contains("dev outside")), "what it is to protect is closed");
        runtime.block_on(services.maintain());
        assert_eq!(services.pending(), gone, "the ports are still taken");
        drop(taken);
        runtime.block_on(services.maintain());
        assert_eq!(services.pending(), Vec::<String>::new());
        sites.come_up();
        let same = || sites.kernel() == before;
        wait_until(PATIENCE, same).unwrap_or_else(|error| {
            let now = sites.kernel();
            let gone: Vec<&String> = before.iter().filter(|line| !now.contains(line)).collect();
            let new: Vec<&String> = now.iter().filter(|line| !before.contains(line)).collect();
            panic!("{error}: gone {gone:#?}, new {new:#?}")
        });
    });
}
