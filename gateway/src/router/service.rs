//! Keeps links beside the tunnels and static routes what the configuration says. All of it is compared with the kernel at once, and what
//! is refused has the path of its part.

use crate::dhcp::model::Client;
use crate::dhcp::supervisor;
use crate::host::netlink::NetlinkError;
use crate::host::wants::Wants;
use crate::host::{Compared, Router};
use crate::service::{Context, Phase, Planned, Policy, Refusal, Refused, Requirements, Service, Step, Work};
use config::settings::{DhcpClient, Link};
use config::{Path, Settings};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;

/// Links and static routes.
#[derive(Default)]
pub struct RouterService {
    /// What is in force. None before the first configuration: an earlier daemon may have left something.
    in_force: Option<Router>,
    /// What is planned, until the first step carries it out.
    planned: Option<Router>,
    /// What was in force before the plan.
    before: Router,
    /// What the first step was refused.
    refused: Refused,
    /// What is missing on the machine, and tried again.
    waiting: BTreeSet<Path>,
}

fn routes_path() -> Path {
    Path::new(["protocols", "static"])
}

impl RouterService {
    /// Has the host make it so; what is refused, by its path. Clients of DHCP run for the links that have none yet.
    async fn apply(&mut self, router: Router, context: &Context) -> Refused {
        let clients = clients(&router);
        // They give their addresses back before the host takes those away.
        context.dhcp.end_others(&clients, &context.host.handle()).await;
        let refused = self.set(router, context);
        context.dhcp.order(clients, &context.host.handle());
        refused
    }

    fn set(&mut self, router: Router, context: &Context) -> Refused {
        let former = self.in_force.replace(router.clone()).unwrap_or_default();
        let all = router.links.iter().chain(&former.links);
        let paths: BTreeMap<String, Path> =
            all.map(|(name, link)| (name.clone(), link.path.clone())).collect();
        let Compared { links, routes, leases, .. } = match context.host.route(router) {
            Ok(compared) => compared,
            Err(error) => return of_all(paths.into_values().chain([routes_path()]), &error),
        };
        let mut refused = Refused::new();
        for (name, error) in links {
            let path = paths.get(&name).cloned().unwrap_or_else(routes_path);
            let is_temporary = is_temporary(error.error);
            refused.insert(path, Refusal::new(error, is_temporary));
        }
        for (name, error) in leases {
            tracing::warn!("interface {name}: {error}");
        }
        for (_, error) in routes {
            let is_temporary = is_temporary(error.error);
            let entry = refused.entry(routes_path());
            entry.or_insert_with(|| Refusal::new(error, is_temporary));
        }
        self.waiting =
            refused.iter().filter(|(_, it)| it.is_temporary()).map(|(path, _)| path.clone()).collect();
        refused
    }
}

/// The clients of links that get their addresses by DHCP.
fn clients(router: &Router) -> Vec<Client> {
    let links = router.links.iter().filter(|(_, link)| !link.is_disabled);
    let client = |(name, link): (&String, &Link)| {
        let DhcpClient { client_id, host_name, vendor_class_id, .. } = link.dhcp.clone()?;
        Some(Client { interface: name.clone(), client_id, host_name, vendor_class_id })
    };
    links.filter_map(client).collect()
}

/// The same refusal for every part: nothing could be compared.
fn of_all(paths: impl Iterator<Item = Path>, error: &NetlinkError) -> Refused {
    paths.map(|path| (path, Refusal::new(error.clone(), false))).collect()
}

/// Whether a link or a way to a gateway may come later.
fn is_temporary(error: Errno) -> bool {
    matches!(error, Errno::NODEV | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN)
}

/// The parts that differ.
fn changed(before: &Router, wanted: &Router) -> BTreeMap<Path, Phase> {
    let mut changed = BTreeMap::new();
    let link = |router: &Router, name: &String| router.links.get(name).cloned();
    let names: BTreeSet<&String> = before.links.keys().chain(wanted.links.keys()).collect();
    for name in names {
        let (old, new): (Option<Link>, Option<Link>) = (link(before, name), link(wanted, name));
        let phase = match (&old, &new) {
            (None, _) => Phase::Prepare,
            (_, None) => Phase::Remove,
            _ => Phase::Switch,
        };
        if old != new
            && let Some(link) = new.or(old)
        {
            changed.insert(link.path, phase);
        }
    }
    if before.routes != wanted.routes {
        changed.insert(routes_path(), Phase::Switch);
    }
    changed
}

impl Service for RouterService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let served = vec![(settings.links.len(), "link"), (settings.routes.len(), "static route")];
        Requirements { served, ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Planned> {
        Box::pin(async move {
            let links = std::mem::take(&mut settings.links);
            let wanted = Router { links, routes: std::mem::take(&mut settings.routes) };
            let mut planned = Planned::default();
            // What an earlier daemon has left, and is not wanted, goes without a step of its own.
            if self.in_force.is_none() && wanted == Router::default() {
                for (path, refusal) in self.apply(wanted, context).await {
                    tracing::warn!("{path}: what an earlier daemon has left stays: {refusal}");
                }
                return planned;
            }
            self.before = self.in_force.clone().unwrap_or_default();
            let steps = changed(&self.before, &wanted).into_iter();
            let step = |(path, phase)| Step { path, phase, frees: Vec::new(), needs: Vec::new() };
            planned.steps = steps.map(step).collect();
            self.planned = Some(wanted).filter(|_| !planned.steps.is_empty());
            planned
        })
    }

    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async move {
            if let Some(wanted) = self.planned.take() {
                self.refused = self.apply(wanted, context).await;
            }
            match self.refused.remove(&step.path) {
                // It is tried again, and is not undone.
                Some(refusal) if refusal.is_temporary() => Err(Refusal::unfinished(refusal)),
                Some(refusal) => Err(refusal),
                None => Ok(()),
            }
        })
    }

    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        policy: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>> {
        self.planned = None;
        let mut wanted = self.before.clone();
        if policy == Policy::EachPath {
            // The other parts stay what they have become.
            wanted = self.in_force.clone().unwrap_or_default();
            wanted.links.retain(|_, link| link.path != step.path);
            let old = self.before.links.iter().filter(|(_, link)| link.path == step.path);
            wanted.links.extend(old.map(|(name, link)| (name.clone(), link.clone())));
            if step.path == routes_path() {
                wanted.routes.clone_from(&self.before.routes);
            }
        }
        Box::pin(async move {
            if self.in_force.as_ref() == Some(&wanted) {
                return Ok(());
            }
            self.apply(wanted, context).await.remove(&step.path).map_or(Ok(()), Err)
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.planned = None;
        self.refused = Refused::new();
        self.before = Router::default();
        Box::pin(ready(()))
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        let by_dhcp = settings.links.values().find(|link| link.dhcp.is_some());
        let missing = by_dhcp.filter(|_| supervisor::program().is_none());
        missing
            .map(|link| format!("{} address dhcp: {}", link.path, supervisor::MISSING))
            .into_iter()
            .collect()
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        context.dhcp.expire(&context.host.handle());
        Box::pin(async move {
            let Some(router) = self.in_force.clone().filter(|_| !self.waiting.is_empty()) else { return };
            let before = std::mem::take(&mut self.waiting);
            let refused = self.apply(router, context).await;
            for path in before.iter().filter(|path| !refused.contains_key(path)) {
                tracing::info!("{path} is in force");
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.waiting.clone()
    }

    fn serves(&self) -> bool {
        self.in_force.as_ref().is_some_and(|router| *router != Router::default())
    }

    fn stop(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(lines: &[&str]) -> Router {
        let text: String = lines.iter().map(|line| format!("set {line}\n")).collect();
        let (settings, _) = config::parse(&text).and_then(|tree| Settings::new(&tree)).expect("right");
        Router { links: settings.links, routes: settings.routes }
    }

    #[test]
    fn a_comparison_that_fails_is_the_refusal_of_each_part() {
        let error = NetlinkError::new("rtnetlink", &std::io::Error::from_raw_os_error(1));
        let paths = [Path::new(["interfaces", "ethernet", "eth0"]), routes_path()];
        let refused = of_all(paths.clone().into_iter(), &error);
        assert!(paths.iter().all(|path| refused.get(path).is_some_and(|it| !it.is_temporary())));
    }

    #[test]
    fn only_what_differs_is_a_step_of_its_phase() {
        let before = router(&[
            "interfaces ethernet eth0 address 192.0.2.1/24",
            "interfaces ethernet eth1 address 10.2.0.1/24",
            "interfaces dummy dum0",
        ]);
        let wanted = router(&[
            "interfaces ethernet eth0 address 192.0.2.1/24",
            "interfaces ethernet eth1 address 10.2.0.2/24",
            "interfaces ethernet eth1 vif 5 address 10.5.0.1/24",
            "protocols static route 0.0.0.0/0 next-hop 192.0.2.9",
        ]);
        let steps: Vec<String> =
            changed(&before, &wanted).into_iter().map(|(path, phase)| format!("{path} {phase:?}")).collect();
        assert_eq!(
            steps,
            [
                "interfaces dummy dum0 Remove",
                "interfaces ethernet eth1 Switch",
                "interfaces ethernet eth1 vif 5 Prepare",
                "protocols static Switch",
            ]
        );
        assert!(changed(&before, &before).is_empty());
    }
}
