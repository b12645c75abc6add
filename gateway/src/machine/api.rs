//! What the API shows of the machine.
//!
//! ```text
//! GET /v1/machine
//! ```

use super::model;
use crate::service::View;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use config::settings::machine::Part;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What there is of each part.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<Mutex<BTreeMap<Part, model::Part>>>);

impl Shown {
    pub(super) fn show(&self, part: Part, shown: model::Part) {
        self.lock().insert(part, shown);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Part, model::Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View for Shown {
    fn routes(&self) -> Router {
        Router::new().route("/v1/machine", get(machine)).with_state(self.clone())
    }
}

async fn machine(State(shown): State<Shown>) -> Json<model::Machine> {
    let mut parts: Vec<model::Part> = shown.lock().values().cloned().collect();
    // What the kernel has now, not what it had then.
    for setting in parts.iter_mut().flat_map(|part| &mut part.settings) {
        if let Some(file) = &setting.file {
            setting.now = std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
        }
    }
    Json(model::Machine { parts })
}
