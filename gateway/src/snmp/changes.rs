//! What receivers of traps hear: tunnels that fail and work again, alerts that fire and are resolved.

use super::agentx::{Oid, Value, VarBind};
use super::mib::{Numbered, name, state, text};
use crate::facts::model::{Facts, State};
use crate::health::model::{Alert, AlertState, Health, Severity};
use std::collections::{BTreeMap, HashMap};

const TUNNEL_DOWN: u32 = 1;
const TUNNEL_UP: u32 = 2;
const ALERT_FIRING: u32 = 3;
const ALERT_RESOLVED: u32 = 4;

/// Traps at once. The alert says how many tunnels are down, if there are more.
const MOST: usize = 64;

/// An event, and the objects that say what it is about.
pub type Trap = (Oid, Vec<VarBind>);

/// What was so at the last look.
#[derive(Debug, Default)]
pub struct Changes {
    before: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    tunnels: HashMap<u32, State>,
    alerts: BTreeMap<(String, String), Alert>,
}

impl Changes {
    /// What has changed since the last look. The first look only remembers.
    pub fn look(&mut self, facts: &Facts, health: &Health, numbered: &Numbered) -> Vec<Trap> {
        let firing = health.alerts.iter().filter(|it| it.state == AlertState::Firing);
        let now = Seen {
            tunnels: numbered.iter().map(|(number, at)| (*number, facts.tunnels[*at].state)).collect(),
            alerts: firing.map(|it| ((it.rule.clone(), it.subject.clone()), it.clone())).collect(),
        };
        let mut traps = Vec::new();
        if let Some(before) = &self.before {
            for (number, at) in numbered {
                let tunnel = &facts.tunnels[*at];
                let event = match (before.tunnels.get(number), tunnel.state) {
                    (Some(State::Up | State::Waiting), State::Down) => TUNNEL_DOWN,
                    (Some(State::Down), State::Up) => TUNNEL_UP,
                    _ => continue,
                };
                let binds = vec![
                    (name(&[1, 2, 1, 4, *number]), text(&tunnel.peer)),
                    (name(&[1, 2, 1, 6, *number]), state(tunnel.state)),
                ];
                traps.push((name(&[0, event]), binds));
            }
            let new = now.alerts.iter().filter(|(key, _)| !before.alerts.contains_key(key));
            traps.extend(new.map(|(_, it)| alert(ALERT_FIRING, it)));
            let over = before.alerts.iter().filter(|(key, _)| !now.alerts.contains_key(key));
            traps.extend(over.map(|(_, it)| alert(ALERT_RESOLVED, it)));
        }
        self.before = Some(now);
        traps.truncate(MOST);
        traps
    }
}

fn alert(event: u32, alert: &Alert) -> Trap {
    let severity = match alert.severity {
        Severity::Warning => 1,
        Severity::Critical => 2,
    };
    let values = [text(&alert.rule), Value::Integer(severity), text(&alert.subject), text(&alert.sentence)];
    let binds = (1..).zip(values).map(|(number, value)| (name(&[1, 5, number, 0]), value));
    (name(&[0, event]), binds.collect())
}
