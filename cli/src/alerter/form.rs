//! The form of Alertmanager's webhooks, version 4, which many receivers read:
//! <https://prometheus.io/docs/alerting/latest/configuration/#webhook_config>

use crate::output::timestamp;
use gateway::health::model::{Alert, AlertState};
use gateway::health::wire::Notification;
use serde_json::{Value, json};

/// The end of an alert that fires, as Go writes a time that is not set.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// A message as JSON.
pub(super) fn json(receiver: &str, notification: &Notification) -> Vec<u8> {
    let instance = rustix::system::uname().nodename().to_string_lossy().into_owned();
    document(receiver, &instance, notification).to_string().into_bytes()
}

/// The word for what a message says as a whole.
pub(super) fn status(notification: &Notification) -> &'static str {
    if notification.is_firing() { "firing" } else { "resolved" }
}

fn document(receiver: &str, instance: &str, notification: &Notification) -> Value {
    let Notification { rule, severity, alerts, left_out, .. } = notification;
    json!({
        "version": "4",
        "groupKey": format!("{{}}:{{alertname={rule:?}, instance={instance:?}}}"),
        "truncatedAlerts": left_out,
        "status": status(notification),
        "receiver": receiver,
        "groupLabels": { "alertname": rule, "instance": instance },
        "commonLabels": { "alertname": rule, "instance": instance, "severity": severity },
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": alerts.iter().map(|alert| one(instance, alert)).collect::<Vec<_>>(),
    })
}

fn one(instance: &str, alert: &Alert) -> Value {
    let Alert { rule, severity, subject, sentence, remedy, since, resolved_at, .. } = alert;
    let is_firing = alert.state == AlertState::Firing;
    json!({
        "status": if is_firing { "firing" } else { "resolved" },
        "labels": { "alertname": rule, "instance": instance, "severity": severity, "subject": subject },
        "annotations": { "summary": sentence, "remedy": remedy },
        "startsAt": timestamp(*since),
        "endsAt": resolved_at.map_or_else(|| NEVER.to_owned(), timestamp),
        "generatorURL": "",
        "fingerprint": fingerprint(&[rule, instance, subject]),
    })
}

/// 64 bits of what an alert is known by: the same from its beginning to its end.
fn fingerprint(parts: &[&str]) -> String {
    let bytes: Vec<&[u8]> = parts.iter().flat_map(|part| [part.as_bytes(), &[0xff]]).collect();
    let hash = crypto::hash::sha256(&bytes);
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use gateway::health::model::Severity;

    /// A tunnel that is down, and one that is up again.
    pub(in super::super) fn notification() -> Notification {
        let alert = |subject: &str, state, resolved_at| Alert {
            rule: "tunnel-down".to_owned(),
            severity: Severity::Critical,
            subject: subject.to_owned(),
            sentence: format!("The tunnel {subject} is down."),
            remedy: "postern explain interfaces wireguard wg0 peer berlin".to_owned(),
            state,
            since: 951_782_400,
            firing_since: Some(951_782_410),
            resolved_at,
        };
        let alerts = vec![
            alert("wg0 berlin", AlertState::Firing, None),
            alert("wg0 \"rome\"", AlertState::Resolved, Some(951_782_500)),
        ];
        let (rule, severity) = ("tunnel-down".to_owned(), Severity::Critical);
        Notification { rule, severity, alerts, left_out: 3, changed_since: 951_782_490, is_repeated: false }
    }

    #[test]
    fn a_message_has_the_form_of_alertmanager() {
        let sent = document("oncall", "gw1", &notification());
        assert_eq!(
            (&sent["version"], &sent["status"], &sent["receiver"]),
            (&json!("4"), &json!("firing"), &json!("oncall"))
        );
        assert_eq!(sent["truncatedAlerts"], 3);
        assert_eq!(sent["groupKey"], "{}:{alertname=\"tunnel-down\", instance=\"gw1\"}");
        let [firing, resolved] = [&sent["alerts"][0], &sent["alerts"][1]];
        assert_eq!(
            firing["labels"],
            json!({ "alertname": "tunnel-down", "instance": "gw1", "severity": "critical", "subject": "wg0 berlin" })
        );
        assert_eq!(firing["annotations"]["summary"], "The tunnel wg0 berlin is down.");
        assert_eq!((&firing["startsAt"], &firing["endsAt"]), (&json!("2000-02-29T00:00:00Z"), &json!(NEVER)));
        assert_eq!(
            (&resolved["status"], &resolved["endsAt"]),
            (&json!("resolved"), &json!("2000-02-29T00:01:40Z"))
        );
        let fingerprints = [firing, resolved].map(|it| it["fingerprint"].as_str().expect("one").to_owned());
        assert!(fingerprints[0].len() == 16 && fingerprints[0] != fingerprints[1], "{fingerprints:?}");
        let mut ended = notification();
        ended.alerts.remove(0);
        assert_eq!(document("a", "b", &ended)["status"], "resolved");
    }
}
