//! Keeps the zones of `firewall` what the configuration says.
//!
//! ```text
//! first of all steps    packets must pass the former policy and the new one: what either forbids does not pass meanwhile
//! last of all steps     packets must pass the new one
//! ```
//!
//! Between the two, interfaces come and go, and may change their zones.

use super::api::Shown;
use crate::host::FilterError;
use crate::host::netlink::NetlinkError;
use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, View, Work};
use config::settings::Firewall;
use config::settings::firewall::{Action, Zone};
use config::{Path, Settings};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

/// The zone firewall.
#[derive(Default)]
pub struct FirewallService {
    /// What is in force. None before the first configuration: an earlier daemon may have left zones.
    in_force: Option<Firewall>,
    /// What is planned.
    planned: Option<Firewall>,
    /// What was in force before the plan.
    before: Option<Firewall>,
    shown: Shown,
}

impl FirewallService {
    /// Puts the new policy in force, beside the former one.
    fn tighten(&self, wanted: &Firewall, context: &Context) -> Result<(), Refusal> {
        let both = [wanted.clone(), self.before.clone().unwrap_or_default()];
        let Err(refused) = context.host.filter(&both) else { return Ok(()) };
        if self.in_force.is_none() {
            // There is no former policy that would stay.
            if let Err(error) = context.host.filter(&[closed(wanted)]) {
                tracing::error!(
                    "firewall: packets pass between zones, as nothing can be filtered: {}",
                    error.error
                );
            } else {
                tracing::error!(
                    "firewall: nothing passes between zones, until the rules can be put in force"
                );
            }
        }
        Err(refusal(refused))
    }

    /// Puts a policy in force, and no other.
    fn settle(&mut self, wanted: Firewall, context: &Context) -> Result<(), Refusal> {
        context.host.filter(std::slice::from_ref(&wanted)).map_err(refusal)?;
        self.shown.show(wanted.clone(), context.host.filtered());
        self.in_force = Some(wanted);
        Ok(())
    }
}

fn refusal(FilterError { error, line }: FilterError) -> Refusal {
    let what = line.unwrap_or_else(|| "rules of nf_tables".to_owned());
    let fix = "\n  fix: modprobe nft_ct nft_reject_inet nf_log_syslog, with Linux 5.2 or later".to_owned();
    Refusal::new(NetlinkError { fix, ..NetlinkError::new(what, &error) }, false)
}

/// The same zones with nothing that passes between them. This machine is reached as before.
fn closed(firewall: &Firewall) -> Firewall {
    let zones = firewall.zones.iter().filter(|(_, zone)| !zone.is_local).map(|(name, zone)| {
        let zone =
            Zone { default_action: Action::Drop, default_log: false, from: BTreeMap::new(), ..zone.clone() };
        (name.clone(), zone)
    });
    Firewall { zones: zones.collect(), ..Firewall::default() }
}

fn step(phase: Phase) -> Step {
    Step { path: Path::new(["firewall"]), phase, frees: Vec::new(), needs: Vec::new() }
}

impl Service for FirewallService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let served = vec![(settings.firewall.zones.len(), "firewall zone")];
        Requirements { served, ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let wanted = std::mem::take(&mut settings.firewall);
        let mut planned = Planned::default();
        if self.in_force.as_ref() != Some(&wanted) {
            planned.steps.extend((!wanted.is_empty()).then(|| step(Phase::Tighten)));
            planned.steps.push(step(Phase::Loosen));
            self.before.clone_from(&self.in_force);
            self.planned = Some(wanted);
        }
        Box::pin(ready(planned))
    }

    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        let done = match self.planned.clone() {
            Some(wanted) if step.phase == Phase::Tighten => self.tighten(&wanted, context),
            // Without zones, a kernel without nf_tables is no error.
            Some(wanted) if wanted.is_empty() && self.in_force.is_none() => {
                let _ = self.settle(wanted, context);
                Ok(())
            }
            Some(wanted) => self.settle(wanted, context),
            None => Ok(()),
        };
        Box::pin(ready(done))
    }

    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        _: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>> {
        let undone = match (&self.before, &self.planned) {
            // What was closed at first stays so, and what an earlier daemon has left.
            (None, _) | (_, None) => Ok(()),
            // The steps before this one are still to be undone.
            (Some(before), Some(wanted)) if step.phase == Phase::Loosen && !wanted.is_empty() => {
                context.host.filter(&[wanted.clone(), before.clone()]).map_err(refusal)
            }
            (Some(before), _) => self.settle(before.clone(), context),
        };
        Box::pin(ready(undone))
    }

    fn finish(&mut self) -> Work<'_, ()> {
        (self.planned, self.before) = (None, None);
        Box::pin(ready(()))
    }

    fn serves(&self) -> bool {
        self.in_force.as_ref().is_some_and(|firewall| !firewall.is_empty())
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {}
}
