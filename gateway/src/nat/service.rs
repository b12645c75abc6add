//! Keeps the rules of `nat` what the configuration says.

use super::api::Shown;
use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, View, Work};
use config::settings::Nat;
use config::{Path, Settings};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

/// Translation of addresses.
#[derive(Default)]
pub struct NatService {
    /// What is in force. None before the first configuration: an earlier daemon may have left rules.
    in_force: Option<Nat>,
    /// What is planned.
    planned: Option<Nat>,
    /// What was in force before the plan.
    before: Option<Nat>,
    shown: Shown,
}

fn path() -> Path {
    Path::new(["nat"])
}

impl NatService {
    fn apply(&mut self, nat: Nat, context: &Context) -> Result<(), Refusal> {
        context.host.translate(&nat).map_err(|error| Refusal::new(error, false))?;
        self.shown.show(nat.clone(), context.host.translated());
        self.in_force = Some(nat);
        Ok(())
    }
}

impl Service for NatService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let rules = settings.nat.source.len() + settings.nat.destination.len();
        Requirements { served: vec![(rules, "NAT rule")], ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let wanted = std::mem::take(&mut settings.nat);
        let mut planned = Planned::default();
        if self.in_force.as_ref() != Some(&wanted) {
            let phase = if wanted == Nat::default() { Phase::Remove } else { Phase::Switch };
            planned.steps.push(Step { path: path(), phase, frees: Vec::new(), needs: Vec::new() });
            self.before.clone_from(&self.in_force);
            self.planned = Some(wanted);
        }
        Box::pin(ready(planned))
    }

    fn carry_out<'a>(&'a mut self, _: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        let done = match self.planned.take() {
            // Without rules, a kernel without nf_tables is no error.
            Some(wanted) if wanted == Nat::default() && self.in_force.is_none() => {
                let _ = self.apply(wanted, context);
                Ok(())
            }
            Some(wanted) => self.apply(wanted, context),
            None => Ok(()),
        };
        Box::pin(ready(done))
    }

    fn undo<'a>(&'a mut self, _: &'a Step, _: Policy, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        let before = self.before.take().unwrap_or_default();
        let undone =
            if self.in_force.as_ref() == Some(&before) { Ok(()) } else { self.apply(before, context) };
        Box::pin(ready(undone))
    }

    fn finish(&mut self) -> Work<'_, ()> {
        (self.planned, self.before) = (None, None);
        Box::pin(ready(()))
    }

    fn serves(&self) -> bool {
        self.in_force.as_ref().is_some_and(|nat| *nat != Nat::default())
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {}
}
