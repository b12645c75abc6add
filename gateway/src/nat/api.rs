//! What the API shows of translation of addresses.
//!
//! ```text
//! GET /v1/nat
//! ```

use super::model;
use crate::host::TranslatedReader;
use crate::service::View;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use config::settings::Nat;
use config::settings::nat::NatRule;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The rules in force, and what reads their counters.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<Mutex<(Nat, Option<TranslatedReader>)>>);

impl Shown {
    pub(super) fn show(&self, nat: Nat, reader: TranslatedReader) {
        *self.lock() = (nat, Some(reader));
    }

    fn lock(&self) -> MutexGuard<'_, (Nat, Option<TranslatedReader>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View for Shown {
    fn routes(&self) -> Router {
        Router::new().route("/v1/nat", get(nat)).with_state(self.clone())
    }
}

async fn nat(State(shown): State<Shown>) -> Json<model::Nat> {
    let (nat, reader) = shown.lock().clone();
    let translated = reader.map(|reader| reader.read()).unwrap_or_default();
    let mut rules = listed(model::List::Source, &nat.source, &translated.source);
    rules.extend(listed(model::List::Destination, &nat.destination, &translated.destination));
    Json(model::Nat { rules })
}

fn listed(
    list: model::List,
    rules: &BTreeMap<u32, NatRule>,
    translated: &BTreeMap<u32, u64>,
) -> Vec<model::Rule> {
    let shown = |(&number, NatRule { packets, translation }): (&u32, &NatRule)| model::Rule {
        list,
        number,
        interface: packets
            .inbound
            .as_ref()
            .or(packets.outbound.as_ref())
            .map_or_else(|| "any".to_owned(), ToString::to_string),
        protocol: packets.protocol_names(),
        source: packets.source.to_string(),
        destination: packets.destination.to_string(),
        translation: translation.to_string(),
        connections: translated.get(&number).copied().unwrap_or(0),
    };
    rules.iter().map(shown).collect()
}
