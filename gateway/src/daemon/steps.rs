//! Carries out what the services plan, and undoes it where a step is refused.
//!
//! ```text
//! plan     every service says what would change, and what of it cannot be served: nothing is touched
//! check    the ports that are needed are free, or become so: nothing is touched
//! tighten  what the new firewall forbids does not pass any more
//! free     what others are about to need goes: the port of an interface that is removed, disabled or gets another one
//! prepare  what is new comes beside what is there
//! switch   interfaces and peers become what they are to be
//! remove   what is no longer configured goes
//! loosen   what only the former firewall forbade passes
//! ```
//!
//! What cannot be undone without loss comes late, when little is left that may be refused. If the firewall is refused, nothing of the
//! rest is carried out under any policy: forwarding or NAT could let in what the firewall was to drop.

use super::fault;
use crate::host::occupied;
use crate::service::{Context, Phase, Policy, Refusal, Refused, Service, Step};
use crate::tunnel_interface::binding::{RELEASE, becomes_free};
use config::{Path, Settings};
use std::collections::{BTreeMap, BTreeSet};

/// A step of one of the services, by its number.
type Numbered = (usize, Step);

/// Another program has a port.
#[derive(Debug, thiserror::Error)]
#[error("{path}: UDP port {port} is in use{by}")]
struct PortInUse {
    path: Path,
    port: u16,
    /// Which program it is, and the fix.
    by: String,
}

/// A step was not begun, as the firewall was refused before it.
#[derive(Debug, thiserror::Error)]
#[error("{0}: not applied, as firewall was refused")]
struct NotBegun(Path);

/// What becomes of the rest if a part is refused.
pub(super) enum Terms {
    /// It is in force.
    EachPath,
    /// It is not either, unless the part is one of these, which were refused before, for these reasons. They are left as they are: to try
    /// them again may end what serves.
    AllBut(BTreeMap<Path, String>),
}

/// A part was refused before, and the commit does not change it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RefusedBefore(String);

impl Terms {
    /// The policy for a part.
    fn of(&self, path: &Path) -> Policy {
        match self {
            Self::AllBut(before) if !before.contains_key(path) => Policy::AllOrNothing,
            Self::EachPath | Self::AllBut(_) => Policy::EachPath,
        }
    }

    /// Whether a configuration is in force of which this was refused: what is tried again by itself does not keep the rest back.
    pub(super) fn allow(&self, refused: &Refused) -> bool {
        let is_allowed =
            |(path, refusal): (&Path, &Refusal)| refusal.is_temporary() || self.of(path) == Policy::EachPath;
        refused.iter().all(is_allowed)
    }

    /// Takes out the steps of what was refused before, which is refused still.
    fn leave(&self, steps: &mut Vec<Numbered>, refused: &mut Refused) {
        let Self::AllBut(before) = self else { return };
        steps.retain(|(_, step)| {
            let Some(why) = before.get(&step.path) else { return true };
            let refusal = || Refusal::new(RefusedBefore(why.clone()), false);
            refused.entry(step.path.clone()).or_insert_with(refusal);
            false
        });
    }

    /// What keeps a configuration from being in force.
    pub(super) fn faults(&self, mut refused: Refused) -> Refused {
        refused.retain(|path, _| self.of(path) == Policy::AllOrNothing);
        refused
    }
}

/// Makes everything what `settings` says, as far as the terms let it; what was refused.
pub(super) async fn apply(
    services: &mut [Box<dyn Service>],
    settings: Settings,
    terms: &Terms,
    context: &Context,
) -> Refused {
    let (steps, mut refused) = plan(services, settings, terms, context).await;
    if terms.allow(&refused) {
        carry_out(services, &steps, terms, context, &mut refused).await;
    }
    for service in services {
        service.finish().await;
    }
    refused
}

/// What would be refused of `settings`, as far as that is known before anything is touched.
pub(super) async fn would_refuse(
    services: &mut [Box<dyn Service>],
    settings: Settings,
    context: &Context,
) -> Refused {
    let (_, refused) = plan(services, settings, &Terms::AllBut(BTreeMap::new()), context).await;
    for service in services {
        service.finish().await;
    }
    refused
}

/// The steps that make everything what `settings` says, in their order; and what is refused before the first of them.
async fn plan(
    services: &mut [Box<dyn Service>],
    mut settings: Settings,
    terms: &Terms,
    context: &Context,
) -> (Vec<Numbered>, Refused) {
    let (mut steps, mut refused) = (Vec::new(), Refused::new());
    for (number, service) in services.iter_mut().enumerate() {
        let planned = service.plan(&mut settings, context).await;
        steps.extend(planned.steps.into_iter().map(|step| (number, step)));
        refused.extend(planned.refused);
    }
    terms.leave(&mut steps, &mut refused);
    let needed: BTreeSet<u16> = steps.iter().flat_map(|(_, step)| step.needs.iter().copied()).collect();
    steps.sort_by_key(|(_, step)| order(step, &needed));
    refuse_ports(services, &steps, terms, context, &mut refused).await;
    (steps, refused)
}

/// Refuses what needs a port that another program has, before anything is changed.
async fn refuse_ports(
    services: &mut [Box<dyn Service>],
    steps: &[Numbered],
    terms: &Terms,
    context: &Context,
    refused: &mut Refused,
) {
    let freed: BTreeSet<u16> = steps.iter().flat_map(|(_, step)| step.frees.iter().copied()).collect();
    for (number, step) in steps {
        if refused.contains_key(&step.path) {
            continue;
        }
        let needed = step.needs.iter().copied().filter(|port| !freed.contains(port));
        let Some(port) = first_taken(needed).await else { continue };
        let path = step.path.clone();
        let error = PortInUse { path: path.clone(), port, by: occupied::port(port) };
        refused.insert(path, Refusal::new(error, false));
        if terms.of(&step.path) == Policy::EachPath {
            // The path is refused already.
            let _ = undo(&mut services[*number], step, Policy::EachPath, context).await;
        }
    }
}

/// The first of these ports that another program has, and keeps.
async fn first_taken(ports: impl Iterator<Item = u16>) -> Option<u16> {
    for port in ports {
        if !becomes_free(port, RELEASE).await {
            return Some(port);
        }
    }
    None
}

/// When a step has its turn.
fn order(step: &Step, needed: &BTreeSet<u16>) -> u8 {
    let is_needed = step.frees.iter().any(|port| needed.contains(port));
    match (step.phase, is_needed) {
        (Phase::Tighten, _) => 0,
        (Phase::Free, _) | (Phase::Remove | Phase::Switch, true) => 1,
        (Phase::Prepare, true) => 2,
        (Phase::Prepare, false) => 3,
        (Phase::Switch, false) => 4,
        (Phase::Remove, false) => 5,
        (Phase::Loosen, _) => 6,
    }
}

async fn carry_out(
    services: &mut [Box<dyn Service>],
    steps: &[Numbered],
    terms: &Terms,
    context: &Context,
    refused: &mut Refused,
) {
    let mut done: Vec<&Numbered> = Vec::new();
    for step in steps {
        let (number, Step { path, .. }) = step;
        if refused.contains_key(path) {
            continue;
        }
        done.push(step);
        let Err(refusal) = services[*number].carry_out(&step.1, context).await else {
            fault::point("step-done");
            continue;
        };
        let is_unfinished = refusal.is_unfinished();
        refused.insert(path.clone(), refusal);
        if is_unfinished {
            continue;
        }
        let policy = terms.of(path);
        let (undone, rest): (Vec<&Numbered>, Vec<&Numbered>) =
            done.into_iter().partition(|(_, done)| policy == Policy::AllOrNothing || done.path == *path);
        done = rest;
        for (number, step) in undone.into_iter().rev() {
            if let Err(refusal) = undo(&mut services[*number], step, policy, context).await {
                refused.entry(step.path.clone()).or_insert(refusal);
            }
        }
        if policy == Policy::AllOrNothing {
            return;
        }
        if step.1.phase == Phase::Tighten {
            return refuse_rest(steps, refused);
        }
    }
}

/// Refuses what was not begun: it stays what it is.
fn refuse_rest(steps: &[Numbered], refused: &mut Refused) {
    for (_, Step { path, .. }) in steps {
        refused.entry(path.clone()).or_insert_with(|| Refusal::new(NotBegun(path.clone()), false));
    }
}

async fn undo(
    service: &mut Box<dyn Service>,
    step: &Step,
    policy: Policy,
    context: &Context,
) -> Result<(), Refusal> {
    let undone = service.undo(step, policy, context).await;
    undone.inspect_err(|refusal| tracing::error!("going back to the previous configuration: {refusal}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_sessions_comes_late_unless_others_need_its_port() {
        let step = |name, phase, frees: &[u16]| Step {
            path: Path::new([name]),
            phase,
            frees: frees.to_vec(),
            needs: Vec::new(),
        };
        let mut steps = [
            step("gone", Phase::Remove, &[7]),
            step("swaps", Phase::Prepare, &[]),
            step("swaps", Phase::Free, &[11]),
            step("in the way", Phase::Remove, &[8]),
            step("moves away", Phase::Switch, &[]),
            step("disabled", Phase::Switch, &[10]),
            step("new", Phase::Prepare, &[]),
            step("moves away", Phase::Prepare, &[9]),
        ];
        steps.sort_by_key(|step| order(step, &BTreeSet::from([8, 9, 10, 11])));
        let order = steps.map(|step| format!("{} {:?}", step.path, step.phase));
        let expected = [
            "swaps Free",
            "in the way Remove",
            "disabled Switch",
            "moves away Prepare",
            "swaps Prepare",
            "new Prepare",
            "moves away Switch",
            "gone Remove",
        ];
        assert_eq!(order, expected);
    }
}
