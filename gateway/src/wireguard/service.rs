//! Keeps the interfaces what the configuration says they are: only those that changed are touched.
//!
//! ```text
//! not there ── prepare: it is made ──────────────> served
//! served ── prepare ── switch: it changes ───────> served
//! served ── switch: it goes down ────────────────> served
//! served ── remove ──────────────────────────────> not there
//! ```

use super::api::Interfaces;
use super::labels::Labels;
use super::names::Known;
use super::served::{Change, Served, ServiceError};
use super::{names, plan, requirements};
use crate::host::Host;
use crate::host::wants::Wants;
use crate::resolver;
use crate::service::{
    Context, Phase, Planned, Policy, Refusal, Refused, Requirements, Service, Step, View, Work,
};
use config::settings::WireGuard;
use config::{Path, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where WireGuard is configured.
const PATH: [&str; 2] = ["interfaces", "wireguard"];

/// A step for an interface, with what is needed to undo it.
enum Intent {
    /// It is made; its settings until then.
    Create(Option<WireGuard>, Left),
    /// It is changed.
    Change(Change),
    /// It stays what it is, and gets its link again if another program has changed that.
    Keep,
    /// It goes; its settings afterwards, if it was served.
    Remove(Option<WireGuard>, Left),
}

/// What there was of an interface besides itself.
struct Left {
    /// Whether the configuration had it.
    was_configured: bool,
    /// What the host was to have for it.
    wants: Option<Wants>,
    /// What is closed if it is refused.
    closed: Option<Wants>,
}

/// The interfaces.
#[derive(Default)]
pub struct WireGuardService {
    served: BTreeMap<String, Served>,
    /// All that the last configuration has. Of those that were refused or deleted, only what they are for is closed.
    configured: BTreeSet<String>,
    /// Interfaces that were removed and could not be made again when that was undone.
    missing: BTreeMap<String, WireGuard>,
    /// What is known of the names of peers.
    known: Known,
    /// What is planned, by the names of the interfaces.
    intents: BTreeMap<String, Intent>,
    shown: Interfaces,
}

impl Service for WireGuardService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        requirements::requirements(settings)
    }

    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants> {
        settings.wireguard.iter().map(|(name, link)| (name.clone(), plan::wants(link))).collect()
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        names::cut_off(settings, &resolver::of_this_machine())
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Planned> {
        let steps = self.plan_interfaces(std::mem::take(&mut settings.wireguard), &context.host);
        Box::pin(std::future::ready(Planned { steps, refused: Refused::new() }))
    }

    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(mut intent) = self.intents.remove(step.path.last()) else { return Ok(()) };
            let done = self.carry_out_on(step, &mut intent, context).await;
            self.intents.insert(step.path.last().to_owned(), intent);
            done.map_err(|error| Refusal::new(error, false))
        })
    }

    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        policy: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(mut intent) = self.intents.remove(step.path.last()) else { return Ok(()) };
            let undone = self.undo_on(step, &mut intent, policy, context).await;
            self.intents.insert(step.path.last().to_owned(), intent);
            undone.map_err(|error| Refusal::new(error, true))
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.intents.clear();
        Box::pin(std::future::ready(()))
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        Box::pin(async {
            self.make_missing(context).await;
            for served in self.served.values_mut() {
                served.open_window().await;
                served.come_back(&context.host).await;
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        let unknown = self.served.iter().filter(|(_, served)| !served.is_known()).map(|(name, _)| name);
        self.missing.keys().chain(unknown).map(|name| path_of(name)).collect()
    }

    fn serves(&self) -> bool {
        !self.served.is_empty()
    }

    fn interface_removed(&mut self, name: &str) -> Option<Path> {
        self.shown.hide(name);
        self.served.remove(name).map(|_| path_of(name))
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {
        for name in self.served.keys() {
            self.shown.hide(name);
        }
        self.served.clear();
    }
}

impl WireGuardService {
    fn plan_interfaces(&mut self, settings: BTreeMap<String, WireGuard>, host: &Host) -> Vec<Step> {
        self.intents.clear();
        let mut steps = Vec::new();
        let left =
            |was_configured, name: &str| Left { was_configured, wants: host.wanted(name), closed: None };
        for name in self.configured.iter().filter(|name| !settings.contains_key(*name)) {
            let port = self.served.get(name).and_then(|served| bound(&served.settings));
            steps.push(step(name, Phase::Remove, port, None));
            self.intents.insert(name.clone(), Intent::Remove(None, left(true, name)));
        }
        let has_another = |(name, wanted): (&String, &WireGuard)| {
            let before = self.served.get(name).and_then(|served| bound(&served.settings));
            bound(wanted).filter(|port| before != Some(*port))
        };
        let needed: BTreeSet<u16> = settings.iter().filter_map(has_another).collect();
        for (name, wanted) in settings {
            let intent = match self.served.get(&name) {
                Some(served) if served.is(&wanted) => {
                    steps.push(step(&name, Phase::Prepare, None, None));
                    Intent::Keep
                }
                Some(served) => {
                    let (before, after) = (bound(&served.settings), bound(&wanted));
                    let freed = before.filter(|_| before != after);
                    if wanted.disable {
                        // At once: it lets go of its port only when it is down.
                        steps.push(step(&name, Phase::Switch, freed, None));
                    } else {
                        let free_first = freed.filter(|port| needed.contains(port));
                        if free_first.is_some() {
                            steps.push(step(&name, Phase::Free, freed, None));
                        }
                        let freed = freed.filter(|_| free_first.is_none());
                        steps.push(step(&name, Phase::Prepare, freed, after.filter(|_| before != after)));
                        steps.push(step(&name, Phase::Switch, None, None));
                    }
                    Intent::Change(Change::new(wanted))
                }
                None => {
                    steps.push(step(&name, Phase::Prepare, None, bound(&wanted)));
                    let closed = Some(plan::wants(&wanted).without_interface());
                    let left = Left { closed, ..left(self.configured.contains(&name), &name) };
                    Intent::Create(Some(wanted), left)
                }
            };
            self.intents.insert(name, intent);
        }
        steps
    }

    async fn carry_out_on(
        &mut self,
        step: &Step,
        intent: &mut Intent,
        context: &Context,
    ) -> Result<(), ServiceError> {
        let name = step.path.last();
        match intent {
            Intent::Create(wanted, _) => {
                if let Some(wanted) = wanted.take() {
                    self.create(name, wanted, context).await?;
                }
            }
            Intent::Remove(settings, _) => {
                // Addresses and routes go with the interface, and all else that was for it.
                *settings = self.end(name).await.or_else(|| self.missing.remove(name));
                self.configured.remove(name);
                context.host.set_absent(name, None);
            }
            Intent::Keep => {
                if let Some(served) = self.served.get(name) {
                    served.restore_link();
                }
            }
            Intent::Change(change) => {
                let Some(served) = self.served.get_mut(name) else { return Ok(()) };
                if step.phase == Phase::Free {
                    return served.free_port(change).await;
                }
                if step.phase == Phase::Prepare || change.goes_down {
                    served.prepare(change, &context.host).await?;
                }
                if step.phase == Phase::Prepare {
                    return Ok(());
                }
                served.switch(change, &context.host).await?;
                self.show(name);
            }
        }
        Ok(())
    }

    async fn undo_on(
        &mut self,
        step: &Step,
        intent: &mut Intent,
        policy: Policy,
        context: &Context,
    ) -> Result<(), ServiceError> {
        let name = step.path.last();
        match intent {
            Intent::Create(_, left) => {
                self.end(name).await;
                if policy == Policy::EachPath {
                    self.configured.insert(name.to_owned());
                    self.missing.remove(name);
                } else if !left.was_configured {
                    self.configured.remove(name);
                }
                let wants = match policy {
                    Policy::EachPath => left.closed.take(),
                    Policy::AllOrNothing => left.wants.take(),
                };
                context.host.set_absent(name, wants);
            }
            Intent::Remove(settings, left) => {
                self.configured.insert(name.to_owned());
                context.host.set_absent(name, left.wants.take());
                if let Some(settings) = settings.take() {
                    self.missing.insert(name.to_owned(), settings.clone());
                    self.create(name, settings, context).await?;
                }
            }
            Intent::Keep => {}
            Intent::Change(change) => {
                let Some(served) = self.served.get_mut(name) else { return Ok(()) };
                let mut undone = Ok(());
                if step.phase == Phase::Free {
                    undone = served.undo_free_port(change).await;
                }
                if step.phase == Phase::Switch {
                    undone = served.undo_switch(change, &context.host).await;
                }
                if step.phase == Phase::Prepare || change.goes_down {
                    undone = undone.and(served.undo_prepare(change, &context.host).await);
                }
                self.show(name);
                undone?;
            }
        }
        Ok(())
    }

    /// Makes the interfaces again that should be there and are not.
    async fn make_missing(&mut self, context: &Context) {
        for (name, settings) in self.missing.clone() {
            match self.create(&name, settings, context).await {
                Ok(()) => tracing::info!("interface {name} is there again"),
                Err(error) => tracing::debug!("{error}"),
            }
        }
    }

    /// What an interface is for is closed before it is made.
    async fn create(&mut self, name: &str, wanted: WireGuard, context: &Context) -> Result<(), ServiceError> {
        self.configured.insert(name.to_owned());
        let closed = plan::wants(&wanted).without_interface();
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        context.host.set(name, Some(closed)).map_err(refused)?;
        let mut served = Served::create(name, wanted, self.known.clone(), context).await?;
        served.open_window().await;
        self.missing.remove(name);
        self.served.insert(name.to_owned(), served);
        self.show(name);
        Ok(())
    }

    /// Ends an interface, if it is there; what it was.
    async fn end(&mut self, name: &str) -> Option<WireGuard> {
        self.shown.hide(name);
        Some(self.served.remove(name)?.end().await)
    }

    fn show(&self, name: &str) {
        if let Some(served) = self.served.get(name) {
            self.shown
                .show(Arc::clone(&served.interface), Labels::new(&served.settings, served.known.clone()));
        }
    }
}

fn path_of(name: &str) -> Path {
    Path::new(PATH.into_iter().chain([name]))
}

fn step(name: &str, phase: Phase, frees: Option<u16>, needs: Option<u16>) -> Step {
    Step::of_interface(path_of(name), phase, frees, needs)
}

/// The port that an interface with these settings has, unless the kernel chooses it.
fn bound(settings: &WireGuard) -> Option<u16> {
    settings.port.filter(|_| !settings.disable)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_grammar_names_the_offloads_that_there_are() {
        assert_eq!(config::schema::OFFLOADS, port::Offloads::NAMES);
    }
}
