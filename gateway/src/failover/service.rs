//! `protocols failover`: which tunnels stand in for each other.

use super::{Kept, model};
use crate::host::sharing::{OWNER, closing};
use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, View, Work};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use config::settings::FailoverGroup;
use config::{Path, Settings};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

type Groups = BTreeMap<String, FailoverGroup>;

/// Leads packets as the configuration says.
#[derive(Default)]
pub struct FailoverService {
    kept: Arc<Kept>,
    served: Groups,
    planned: Option<Groups>,
    /// What was served before the plan.
    before: Option<Groups>,
}

fn path() -> Path {
    Path::new(["protocols", "failover"])
}

/// What keeps the networks of groups closed.
fn wants_of(groups: &Groups) -> Option<Wants> {
    (!groups.is_empty()).then(|| closing(groups.values().flat_map(|group| group.prefixes.iter().copied())))
}

impl FailoverService {
    fn serve(&mut self, groups: Groups, context: &Context) -> Result<(), Refusal> {
        context.host.set(OWNER, wants_of(&groups)).map_err(|error| Refusal::new(error, false))?;
        self.kept.order(&groups, context.host.handle());
        self.served = groups;
        Ok(())
    }
}

impl Service for FailoverService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        Requirements {
            served: vec![(settings.failover.len(), "group of tunnels")],
            ..Requirements::default()
        }
    }

    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants> {
        wants_of(&settings.failover).map(|wants| (OWNER.to_owned(), wants)).into_iter().collect()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let wanted = std::mem::take(&mut settings.failover);
        let mut planned = Planned::default();
        if wanted != self.served {
            let phase = if wanted.is_empty() { Phase::Remove } else { Phase::Switch };
            planned.steps.push(Step { path: path(), phase, frees: Vec::new(), needs: Vec::new() });
            self.planned = Some(wanted);
        }
        Box::pin(ready(planned))
    }

    fn carry_out<'a>(&'a mut self, _: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        let done = match self.planned.take() {
            Some(wanted) => {
                self.before = Some(self.served.clone());
                self.serve(wanted, context)
            }
            None => Ok(()),
        };
        Box::pin(ready(done))
    }

    fn undo<'a>(&'a mut self, _: &'a Step, _: Policy, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        let undone = match self.before.take() {
            Some(before) => self.serve(before, context),
            None => Ok(()),
        };
        Box::pin(ready(undone))
    }

    fn finish(&mut self) -> Work<'_, ()> {
        (self.planned, self.before) = (None, None);
        Box::pin(ready(()))
    }

    fn serves(&self) -> bool {
        !self.served.is_empty()
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(FailoverView(Arc::clone(&self.kept)))
    }

    fn stop(&mut self) {}
}

/// What the API shows.
struct FailoverView(Arc<Kept>);

impl View for FailoverView {
    fn routes(&self) -> Router {
        Router::new().route("/v1/failover", get(show)).with_state(Arc::clone(&self.0))
    }

    fn failover(&self) -> Option<Arc<Kept>> {
        Some(Arc::clone(&self.0))
    }
}

async fn show(State(kept): State<Arc<Kept>>) -> Json<model::Failover> {
    Json(kept.show())
}
