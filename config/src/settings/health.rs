//! `service health`, typed: what is different about rules, who hears of alerts, and the log of them.

use super::pki::Reference;
use super::{Reader, set, set_or_default};
use crate::schema::HEALTH_RULES;
use crate::tree::Tree;
use crypto::SecretBytes;
use std::collections::BTreeMap;

/// Rules, receivers and the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// What is different about rules, by their names.
    pub rules: BTreeMap<String, Tuning>,
    /// Who hears of alerts.
    pub receivers: BTreeMap<String, Receiver>,
    /// The log, if there is one.
    pub log: Option<HealthLog>,
}

/// What is different about a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// It is not checked.
    pub is_disabled: bool,
    /// Seconds that it must fail before it is an alert.
    pub seconds: Option<u32>,
    /// The number from which it fails.
    pub threshold: Option<u32>,
}

/// A receiver of alerts: one of these ways, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    /// It hears of no warnings.
    pub only_critical: bool,
    /// A program that is run.
    pub exec: Option<String>,
    /// A URL that gets a POST.
    pub webhook: Option<Webhook>,
    /// Whether the syslog of the machine has them.
    pub syslog: bool,
}

/// A URL that gets a POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The URL, which may have a secret in its path.
    pub url: SecretBytes,
    /// What is sent in the header `Authorization`.
    pub token: Option<SecretBytes>,
    /// The certificate of the only authority that is trusted, in DER; those of the machine if there is none.
    pub authority: Option<Vec<u8>>,
}

/// The log of alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLog {
    /// Days that are kept.
    pub days: u32,
    /// Kilobytes of a day at most.
    pub kilobytes: u32,
}

impl Reader {
    pub(super) fn health(&mut self, root: &Tree) -> Option<Health> {
        let tree = root.at(&["service", "health"])?;
        let log = tree.at(&["log"]).map(|log| HealthLog {
            days: set_or_default(log, "service health log", "days"),
            kilobytes: set_or_default(log, "service health log", "size"),
        });
        let mut health = Health { log, ..Health::default() };
        for (name, rule) in tree.at(&["rule"]).into_iter().flat_map(Tree::children) {
            let tuning = self.tuning(name, rule);
            health.rules.insert(name.to_owned(), tuning);
        }
        for (name, receiver) in tree.at(&["alert"]).into_iter().flat_map(Tree::children) {
            if let Some(read) = self.receiver(root, name, receiver) {
                health.receivers.insert(name.to_owned(), read);
            }
        }
        Some(health)
    }

    fn tuning(&mut self, name: &str, tree: &Tree) -> Tuning {
        let path = format!("service health rule {name}");
        let threshold: Option<u32> = set(tree, "threshold");
        let range = HEALTH_RULES.iter().find(|(rule, _)| *rule == name).and_then(|(_, range)| *range);
        if let Some(threshold) = threshold {
            let fits = range.map(|(low, high)| (low..=high).contains(&threshold));
            let reason = match (fits, range) {
                (Some(false), Some((low, high))) => Some(format!(
                    "{path} threshold {threshold}: {threshold} is not a number from {low} to {high}"
                )),
                (None, _) => Some(format!("{path} has no threshold: it fails or it does not")),
                _ => None,
            };
            if let Some(reason) = reason {
                self.error(
                    tree.location_of("threshold"),
                    reason,
                    format!("delete {path} threshold; duration sets how long it must fail"),
                );
            }
        }
        Tuning { is_disabled: tree.has("disable"), seconds: set(tree, "duration"), threshold }
    }

    fn receiver(&mut self, root: &Tree, name: &str, tree: &Tree) -> Option<Receiver> {
        let path = format!("service health alert {name}");
        let webhook = match tree.value("webhook") {
            Some(url) => Some(self.webhook(root, &path, tree, url)?),
            None => None,
        };
        if webhook.is_none() {
            for word in ["token", "ca-certificate"].into_iter().filter(|word| tree.has(word)) {
                self.warn(format!("{path} {word} has no effect without: {path} webhook URL"));
            }
        }
        let exec = tree.value("exec").map(str::to_owned);
        let receiver = Receiver {
            only_critical: tree.value("severity") == Some("critical"),
            exec,
            webhook,
            syslog: tree.has("syslog"),
        };
        if receiver.exec.is_none() && receiver.webhook.is_none() && !receiver.syslog {
            // So that its lines can be committed one after the other.
            self.warn(format!(
                "{path} says nowhere to send to, and hears nothing: set {path} webhook URL, exec PATH or syslog"
            ));
        }
        Some(receiver)
    }

    fn webhook(&mut self, root: &Tree, path: &str, tree: &Tree, url: &str) -> Option<Webhook> {
        let location = tree.location_of("webhook");
        let host = match host_of(url) {
            Ok(host) => host,
            Err(why) => {
                let fix = format!("set {path} webhook https://HOST/PATH");
                self.error(location, format!("{path} webhook: {why}"), fix);
                return None;
            }
        };
        let token = tree.value("token").map(|token| SecretBytes::new(token.as_bytes().to_vec()));
        let is_here = ["localhost", "127.0.0.1", "::1"].contains(&host);
        if token.is_some() && url.starts_with("http:") && !is_here {
            self.warn(format!("{path} token is sent in clear: use https in {path} webhook"));
        }
        let authority = match tree.value("ca-certificate") {
            Some(name) => {
                let from = format!("{path} ca-certificate");
                let reference =
                    Reference { from, location: tree.location_of("ca-certificate"), kind: "ca", name };
                Some(self.public(root, &reference, "certificate", &["certificate"])?.1)
            }
            None => None,
        };
        Some(Webhook { url: SecretBytes::new(url.as_bytes().to_vec()), token, authority })
    }
}

/// The host of a URL of http or https; the error does not repeat the URL, which may be a secret.
fn host_of(url: &str) -> Result<&str, &'static str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or("it does not begin with http:// or https://")?;
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['"', '<', '>', '\\', '`', '#']) {
        return Err("it has a character that a URL has only in the form %XX");
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("it has a user or a password: set a token instead");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or("the address has no closing bracket")?,
        None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Err("its port is not a number from 1 to 65535");
    }
    if host.is_empty() { Err("it has no host") } else { Ok(host) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn checked(lines: &[&str]) -> Result<(Health, Vec<String>), String> {
        let text: String = lines.iter().map(|line| format!("set service health {line}\n")).collect();
        let checked = crate::parse(&text).and_then(|tree| Settings::new(&tree));
        let (settings, warnings) = checked
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok((settings.health.expect("health"), warnings))
    }

    #[test]
    fn rules_and_receivers_are_read() {
        let (health, warnings) = checked(&[
            "rule drops-rising threshold 500",
            "rule drops-rising duration 60",
            "rule processor-stolen disable",
            "alert oncall webhook https://alerts.example.net/a/secret",
            "alert oncall token abc",
            "alert oncall severity critical",
            "alert local exec /config/scripts/alert.sh",
            "alert local syslog",
            "log days 30",
        ])
        .expect("right");
        assert_eq!(
            health.rules["drops-rising"],
            Tuning { is_disabled: false, seconds: Some(60), threshold: Some(500) }
        );
        assert!(health.rules["processor-stolen"].is_disabled);
        let oncall = &health.receivers["oncall"];
        assert!(oncall.only_critical && oncall.exec.is_none() && !oncall.syslog);
        let webhook = oncall.webhook.as_ref().expect("one");
        assert_eq!(webhook.url.expose(), b"https://alerts.example.net/a/secret");
        assert!(webhook.token.is_some() && webhook.authority.is_none());
        let local = &health.receivers["local"];
        assert!(local.syslog && local.exec.as_deref() == Some("/config/scripts/alert.sh"));
        assert_eq!(health.log, Some(HealthLog { days: 30, kilobytes: 1024 }));
        assert_eq!(warnings, [""; 0]);
        assert_eq!(checked(&[""]).expect("right").0, Health::default());
    }

    #[test]
    fn bad_words_are_refused_with_what_is_right() {
        for (line, said) in [
            ("rule tunnels-down disable", "tunnel-down"),
            ("rule tunnel-down threshold 5", "service health rule tunnel-down has no threshold"),
            ("rule memory-low threshold 100", "100 is not a number from 1 to 99"),
            ("rule memory-low duration 90000", "from 0 to 86400"),
            ("alert a webhook ftp://192.0.2.1/", "does not begin with http:// or https://"),
            ("alert a webhook https://", "it has no host"),
            ("alert a webhook http://192.0.2.1:0/", "its port is not a number"),
            ("alert a webhook http://[2001:db8::1/", "no closing bracket"),
            ("alert a webhook http://me:secret@192.0.2.1/", "set a token instead"),
            ("alert a exec alert.sh", "the whole path of a program"),
            ("alert a severity low", "one of warning, critical"),
            ("log days 0", "from 1 to 3650"),
        ] {
            let no = checked(&[line]).expect_err(line);
            assert!(no.contains(said), "{line}: {no}");
            assert!(!no.contains("secret@"), "{no}");
        }
        let no =
            checked(&["alert a webhook https://192.0.2.1/", "alert a ca-certificate own"]).expect_err("no");
        assert!(no.contains("there is no pki ca own"), "{no}");
    }

    #[test]
    fn what_does_nothing_or_shows_a_secret_is_warned_of() {
        for (lines, said) in [
            (&["alert a severity critical"][..], "says nowhere to send to"),
            (&["alert a syslog", "alert a token b"], "token has no effect"),
            (&["alert a webhook http://192.0.2.1/", "alert a token b"], "is sent in clear"),
        ] {
            let (_, warnings) = checked(lines).expect("right");
            assert!(warnings.len() == 1 && warnings[0].contains(said), "{warnings:?}");
        }
        assert_eq!(
            checked(&["alert a webhook http://[::1]:9/", "alert a token b"]).expect("right").1,
            [""; 0]
        );
    }
}
