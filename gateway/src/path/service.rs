//! `service path-monitor`: which tunnels are probed, and where probes of others are answered.

use super::model::Paths;
use super::monitor::{Monitor, Results, lock};
use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, View, Work};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use config::settings::PathMonitor;
use config::{Path, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Measures what the configuration says.
#[derive(Default)]
pub struct PathService {
    monitor: Monitor,
    served: Option<PathMonitor>,
    planned: Option<Intent>,
}

/// What is to be, and what was.
struct Intent {
    wanted: Option<PathMonitor>,
    before: Option<PathMonitor>,
    is_begun: bool,
}

impl Service for PathService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let monitor = settings.path_monitor.as_ref();
        let targets = monitor.map_or(0, |monitor| monitor.targets.len());
        let reflectors = usize::from(monitor.is_some_and(|monitor| monitor.reflector.is_some()));
        let served = vec![(targets, "probed tunnel"), (reflectors, "STAMP reflector")];
        Requirements { served, ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let wanted = settings.path_monitor.take();
        let mut plan = Planned::default();
        if wanted != self.served {
            let phase = if wanted.is_none() { Phase::Remove } else { Phase::Switch };
            plan.steps.push(Step { path: path(), phase, frees: Vec::new(), needs: Vec::new() });
            self.planned = Some(Intent { wanted, before: self.served.clone(), is_begun: false });
        }
        Box::pin(std::future::ready(plan))
    }

    fn carry_out<'a>(&'a mut self, _: &'a Step, _: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(planned) = &mut self.planned else { return Ok(()) };
            planned.is_begun = true;
            let wanted = planned.wanted.clone();
            self.monitor.order(wanted.as_ref()).await.map_err(|error| Refusal::new(error, false))?;
            self.served = wanted;
            Ok(())
        })
    }

    fn undo<'a>(&'a mut self, _: &'a Step, _: Policy, _: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(planned) = self.planned.take().filter(|planned| planned.is_begun) else { return Ok(()) };
            // If another program has taken a port meanwhile, that is only logged: probes carry no traffic of users.
            if let Err(error) = self.monitor.order(planned.before.as_ref()).await {
                tracing::error!("{error}");
            }
            self.served = planned.before;
            Ok(())
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.planned = None;
        Box::pin(std::future::ready(()))
    }

    fn serves(&self) -> bool {
        self.served.is_some()
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(PathView(self.monitor.results()))
    }

    fn stop(&mut self) {
        self.monitor.stop();
    }
}

fn path() -> Path {
    Path::new(["service", "path-monitor"])
}

/// What the API shows.
struct PathView(Results);

impl View for PathView {
    fn routes(&self) -> Router {
        Router::new().route("/v1/path", get(paths)).with_state(Arc::clone(&self.0))
    }

    fn paths(&self) -> Option<Arc<Paths>> {
        Some(Arc::clone(&lock(&self.0)))
    }
}

async fn paths(State(results): State<Results>) -> Json<Paths> {
    let latest = Arc::clone(&lock(&results));
    Json((*latest).clone())
}
