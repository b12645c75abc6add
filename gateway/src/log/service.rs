//! Keeps the levels of the log what the configuration says.

use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, View, Work};
use crate::tunnel_interface::Counters;
use axum::Router;
use config::settings::Log;
use config::{Path, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;

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

    fn maintain<'a>(&'a mut self, _: &'a Context) -> Work<'a, ()> {
        Box::pin(ready(()))
    }

    fn pending(&self) -> BTreeSet<Path> {
        BTreeSet::new()
    }

    fn serves(&self) -> bool {
        false
    }

    fn interface_removed(&mut self, _: &str) -> bool {
        false
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(Nothing)
    }

    fn stop(&mut self) {}
}

/// The API shows the log by requests of its own.
struct Nothing;

impl View for Nothing {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        Vec::new()
    }

    fn routes(&self) -> Router {
        Router::new()
    }
}
