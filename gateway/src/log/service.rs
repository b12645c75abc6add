//! Keeps the levels of the log what the configuration says.

use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, Work};
use config::settings::Log;
use config::{Path, Settings};
use std::collections::BTreeMap;
use std::future::ready;

/// The levels of the log.
#[derive(Default)]
pub struct LogService {
    in_force: Log,
    planned: Option<Log>,
    before: Option<Log>,
}

impl LogService {
    fn apply(&mut self, log: Log) {
        super::apply(&log);
        self.in_force = log;
    }
}

impl Service for LogService {
    fn requirements(&self, _: &Settings) -> Requirements {
        Requirements::default()
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let wanted = std::mem::take(&mut settings.log);
        let mut planned = Planned::default();
        if self.in_force != wanted {
            let path = Path::new(["system", "log"]);
            planned.steps.push(Step { path, phase: Phase::Switch, frees: Vec::new(), needs: Vec::new() });
            self.before = Some(self.in_force.clone());
            self.planned = Some(wanted);
        }
        Box::pin(ready(planned))
    }

    fn carry_out<'a>(&'a mut self, _: &'a Step, _: &'a Context) -> Work<'a, Result<(), Refusal>> {
        if let Some(wanted) = self.planned.take() {
            self.apply(wanted);
        }
        Box::pin(ready(Ok(())))
    }

    fn undo<'a>(&'a mut self, _: &'a Step, _: Policy, _: &'a Context) -> Work<'a, Result<(), Refusal>> {
        if let Some(before) = self.before.take() {
            self.apply(before);
        }
        Box::pin(ready(Ok(())))
    }

    fn finish(&mut self) -> Work<'_, ()> {
        (self.planned, self.before) = (None, None);
        Box::pin(ready(()))
    }

    fn serves(&self) -> bool {
        false
    }

    fn stop(&mut self) {}
}
