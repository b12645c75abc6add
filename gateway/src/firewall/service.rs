//! Keeps the zones of `firewall` what the configuration says.
//!
//! ```text
//! first of all steps    packets must pass the former policy and the new one: what either forbids does not pass meanwhile
//! last of all steps     packets must pass the new one
//! ```
//!
//! Between the two, interfaces come and go, and may change their zones.
//!
//! If the kernel refuses the policy of the first configuration, no former one stays that is known. Then [`closed`] is in force, the rest
//! of the configuration is applied, and the policy is tried again. If the kernel refuses that too, nothing is applied.

use super::api::Shown;
use super::closed::closed;
use crate::host::FilterError;
use crate::host::netlink::NetlinkError;
use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, View, Work};
use config::settings::Firewall;
use config::{Path, Settings};
use std::collections::{BTreeMap, BTreeSet};
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
    /// The first policy, while the kernel refuses it: [`closed`] is in force instead.
    waiting: Option<Firewall>,
    shown: Shown,
}

impl FirewallService {
    /// Puts the new policy in force, beside the former one.
    fn tighten(&mut self, wanted: &Firewall, context: &Context) -> Result<(), Refusal> {
        let both = [wanted.clone(), self.before.clone().unwrap_or_default()];
        let Err(refused) = context.host.filter(&both) else { return Ok(()) };
        if self.in_force.is_some() || self.waiting.as_ref().is_some_and(|waiting| waiting != wanted) {
            return Err(refusal(refused));
        }
        let refused = refusal(refused);
        if let Err(error) = self.close(wanted, context) {
            tracing::error!(
                "firewall: no table of nf_tables can be set, so nothing is applied: {}",
                error.error
            );
            return Err(refused);
        }
        self.waiting = Some(wanted.clone());
        Err(Refusal::unfinished(Closed(refused)))
    }

    /// Puts [`closed`] in force.
    fn close(&self, wanted: &Firewall, context: &Context) -> Result<(), FilterError> {
        let closed = closed(wanted);
        context.host.filter(std::slice::from_ref(&closed))?;
        self.shown.show(closed, context.host.filtered());
        Ok(())
    }

    fn go_back_to_closed(&mut self, context: &Context) -> Result<(), Refusal> {
        self.in_force = None;
        self.waiting.as_ref().map_or(Ok(()), |waiting| self.close(waiting, context).map_err(refusal))
    }

    /// Puts a policy in force, and no other.
    fn settle(&mut self, wanted: Firewall, context: &Context) -> Result<(), Refusal> {
        context.host.filter(std::slice::from_ref(&wanted)).map_err(refusal)?;
        self.shown.show(wanted.clone(), context.host.filtered());
        (self.in_force, self.waiting) = (Some(wanted), None);
        Ok(())
    }
}

fn refusal(FilterError { error, line }: FilterError) -> Refusal {
    let what = line.unwrap_or_else(|| "rules of nf_tables".to_owned());
    let fix = "\n  fix: modprobe nft_ct nft_reject_inet nf_log_syslog, with Linux 5.2 or later".to_owned();
    Refusal::new(NetlinkError { fix, ..NetlinkError::new(what, &error) }, false)
}

/// The kernel refuses the first policy.
#[derive(Debug, thiserror::Error)]
#[error("{0}\n  until it takes the rules, nothing passes between zones, and only SSH reaches the local zone")]
struct Closed(Refusal);

fn path() -> Path {
    Path::new(["firewall"])
}

fn step(phase: Phase) -> Step {
    Step { path: path(), phase, frees: Vec::new(), needs: Vec::new() }
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
            (None, _) if self.waiting.is_some() => self.go_back_to_closed(context),
            // What an earlier daemon has left stays.
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

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        if let Some(waiting) = self.waiting.clone()
            && self.settle(waiting, context).is_ok()
        {
            tracing::info!("firewall: the kernel takes the rules now: they are in force");
        }
        Box::pin(ready(()))
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.waiting.iter().map(|_| path()).collect()
    }

    fn serves(&self) -> bool {
        self.waiting.is_some() || self.in_force.as_ref().is_some_and(|firewall| !firewall.is_empty())
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {}
}
