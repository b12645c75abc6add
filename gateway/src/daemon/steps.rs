//! Carries out what the services plan, and undoes it where a step is refused.
//!
//! ```text
//! plan     every service says what would change, and what of it cannot be served: nothing is touched
//! free     what others are about to need goes: the port of an interface that is removed
//! prepare  what is new comes beside what is there
//! switch   interfaces and peers become what they are to be
//! remove   what is no longer configured goes
//! ```
//!
//! What cannot be undone without loss comes late, when little is left that may be refused.

use super::{is_in_force, requirements};
use crate::service::{Context, Phase, Policy, Refused, Service, Step};
use config::Settings;

/// A step of one of the services, by its number.
type Numbered = (usize, Step);

/// Makes everything what `settings` says, as far as `policy` lets it; what was refused.
pub(super) async fn apply(
    services: &mut [Box<dyn Service>],
    mut settings: Settings,
    policy: Policy,
    context: &Context,
) -> Refused {
    let ports = requirements(&settings).ports;
    let (mut steps, mut refused) = (Vec::new(), Refused::new());
    for (number, service) in services.iter_mut().enumerate() {
        let planned = service.plan(&mut settings, context).await;
        steps.extend(planned.steps.into_iter().map(|step| (number, step)));
        refused.extend(planned.refused);
    }
    steps.sort_by_key(|(_, step)| order(step, &ports));
    if policy == Policy::EachPath || is_in_force(&refused) {
        carry_out(services, &steps, policy, context, &mut refused).await;
    }
    for service in services {
        service.finish().await;
    }
    refused
}

/// When a step has its turn.
fn order(step: &Step, ports: &[u16]) -> u8 {
    let is_needed = step.frees.iter().any(|port| ports.contains(port));
    match (step.phase, is_needed) {
        (Phase::Remove, true) => 0,
        (Phase::Prepare, true) => 1,
        (Phase::Prepare, false) => 2,
        (Phase::Switch, _) => 3,
        (Phase::Remove, false) => 4,
    }
}

async fn carry_out(
    services: &mut [Box<dyn Service>],
    steps: &[Numbered],
    policy: Policy,
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
        let Err(refusal) = services[*number].carry_out(&step.1, context).await else { continue };
        refused.insert(path.clone(), refusal);
        let is_undone = |(_, done): &&Numbered| policy == Policy::AllOrNothing || done.path == *path;
        for (number, step) in done.iter().copied().filter(is_undone).rev() {
            services[*number].undo(step, policy, context).await;
        }
        if policy == Policy::AllOrNothing {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Path;

    #[test]
    fn what_costs_sessions_comes_late_unless_others_need_its_port() {
        let step =
            |name, phase, frees: &[u16]| Step { path: Path::new([name]), phase, frees: frees.to_vec() };
        let mut steps = [
            step("gone", Phase::Remove, &[7]),
            step("in the way", Phase::Remove, &[8]),
            step("moves away", Phase::Switch, &[]),
            step("new", Phase::Prepare, &[]),
            step("moves away", Phase::Prepare, &[9]),
        ];
        steps.sort_by_key(|step| order(step, &[8, 9]));
        let order = steps.map(|step| format!("{} {:?}", step.path, step.phase));
        let expected =
            ["in the way Remove", "moves away Prepare", "new Prepare", "moves away Switch", "gone Remove"];
        assert_eq!(order, expected);
    }
}
