//! What the API shows of the zone firewall.
//!
//! ```text
//! GET /v1/firewall
//! ```

use super::model::{self, Count};
use crate::host::{self, Filtered, FilteredReader};
use crate::service::View;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use config::settings::Firewall;
use config::settings::firewall::{FirewallRule, RuleSet, SetName, State as OfConnection, Zone, icmp_name};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The policy in force, and what reads its counters.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<Mutex<(Firewall, Option<FilteredReader>)>>);

impl Shown {
    pub(super) fn show(&self, firewall: Firewall, reader: FilteredReader) {
        *self.lock() = (firewall, Some(reader));
    }

    fn lock(&self) -> MutexGuard<'_, (Firewall, Option<FilteredReader>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View for Shown {
    fn routes(&self) -> Router {
        Router::new().route("/v1/firewall", get(firewall)).with_state(self.clone())
    }
}

async fn firewall(State(shown): State<Shown>) -> Json<model::Firewall> {
    let (firewall, reader) = shown.lock().clone();
    let filtered = reader.map(|reader| reader.read()).unwrap_or_default();
    Json(answer(&firewall, &filtered))
}

fn answer(firewall: &Firewall, filtered: &Filtered) -> model::Firewall {
    let count = |of: String| {
        let host::Count { packets, bytes } = filtered.counts.get(&of).copied().unwrap_or_default();
        Count { packets, bytes }
    };
    let state = |(state, action): (&OfConnection, &config::settings::firewall::Action)| model::StatePolicy {
        state: state.word().to_owned(),
        action: action.word().to_owned(),
        count: count(format!("state {}", state.word())),
    };
    let zones =
        firewall.zones.iter().map(|(name, zone)| of_zone(name, zone, count(format!("zone {name} default"))));
    let used = firewall.used_sets();
    let sets = firewall.sets.iter().filter(|(name, _)| used.contains(name));
    model::Firewall {
        states: firewall.states.iter().map(state).collect(),
        zones: zones.collect(),
        rule_sets: sets.map(|(name, set)| of_set(name, set, &count)).collect(),
    }
}

fn of_zone(name: &str, zone: &Zone, default_count: Count) -> model::Zone {
    let from = zone.from.iter().map(|(from, [v4, v6])| model::From {
        zone: from.clone(),
        name: v4.clone(),
        ipv6_name: v6.clone(),
    });
    model::Zone {
        name: name.to_owned(),
        is_local: zone.is_local,
        interfaces: zone.members.iter().cloned().collect(),
        from: from.collect(),
        within: if zone.drops_within { "drop" } else { "accept" }.to_owned(),
        default_action: zone.default_action.word().to_owned(),
        default_count,
    }
}

fn of_set(name: &SetName, set: &RuleSet, count: &impl Fn(String) -> Count) -> model::RuleSet {
    let (family, set_name) = (name.family(), &name.name);
    let rule = |(number, rule): (&u32, &FirewallRule)| model::Rule {
        number: *number,
        action: rule.action.word().to_owned(),
        protocol: rule.packets.protocol_names(),
        source: rule.packets.source.to_string(),
        destination: rule.packets.destination.to_string(),
        conditions: conditions(rule, name.v6),
        count: count(format!("{family} {set_name} {number}")),
    };
    model::RuleSet {
        family: family.to_owned(),
        name: set_name.clone(),
        rules: set.rules.iter().map(rule).collect(),
        default_action: set.default_action.word().to_owned(),
        default_count: count(format!("{family} {set_name} default")),
    }
}

fn conditions(rule: &FirewallRule, v6: bool) -> String {
    let mut all = Vec::new();
    all.extend(rule.packets.inbound.as_ref().map(|link| format!("inbound-interface {link}")));
    all.extend(rule.packets.outbound.as_ref().map(|link| format!("outbound-interface {link}")));
    all.extend(rule.icmp.and_then(|kind| icmp_name(kind, v6)).map(|name| format!("type-name {name}")));
    let states: Vec<&str> = rule.states.iter().map(|state| state.word()).collect();
    all.extend((!states.is_empty()).then(|| format!("state {}", states.join(","))));
    all.extend(rule.log.then(|| "log".to_owned()));
    all.join(" ")
}
