//! `service health`, typed: what is different about rules, who hears of alerts, and the log of them.

use super::pki::Reference;
use super::{Reader, branches, set, set_or_default};
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
    /// Hours after which an alert that still fires is told again, unless the default is meant; 0 for never.
    pub repeat_hours: Option<u32>,
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
    /// Mail, by a server.
    pub mail: Option<Mail>,
    /// Whether the syslog of the machine has them.
    pub syslog: bool,
}

/// Mail, by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Who gets it; at least one address.
    pub to: Vec<String>,
    /// Who sends it; the machine if not set.
    pub from: Option<String>,
    /// The name or address of the server.
    pub server: String,
    /// Its TCP port.
    pub port: u16,
    /// How the conversation is protected.
    pub tls: MailTls,
    /// A user and a password.
    pub login: Option<(String, SecretBytes)>,
    /// The certificate of the only authority that is trusted, in DER; those of the machine if there is none.
    pub authority: Option<Vec<u8>>,
}

/// How the conversation with a mail server is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// By TLS after STARTTLS.
    StartTls,
    /// By TLS from the first byte.
    Implicit,
    /// Not at all.
    Off,
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

/// What is different about rules, by their names. A threshold that does not fit the rule is left out.
pub(super) fn tunings(root: &Tree) -> BTreeMap<String, Tuning> {
    let of = |(name, rule): (&str, &Tree)| {
        let fits = |it: &u32| range(name).is_some_and(|(low, high)| (low..=high).contains(it));
        let threshold = set(rule, "threshold").filter(fits);
        let tuning = Tuning { is_disabled: rule.has("disable"), seconds: set(rule, "duration"), threshold };
        (name.to_owned(), tuning)
    };
    branches(root, &["service", "health", "rule"]).map(of).collect()
}

/// The lowest and the highest threshold of a rule; `None` if it has none.
fn range(rule: &str) -> Option<(u32, u32)> {
    HEALTH_RULES.iter().find(|(name, _)| *name == rule).and_then(|(_, range)| *range)
}

impl Reader {
    pub(super) fn health(&mut self, root: &Tree) -> Option<Health> {
        let tree = root.at(&["service", "health"])?;
        let log = tree.at(&["log"]).map(|log| HealthLog {
            days: set_or_default(log, "service health log", "days"),
            kilobytes: set_or_default(log, "service health log", "size"),
        });
        let repeat_hours = set(tree, "repeat");
        let mut health = Health { log, repeat_hours, rules: tunings(root), ..Health::default() };
        for (name, rule) in branches(tree, &["rule"]) {
            self.check_threshold(name, rule);
        }
        for (name, receiver) in tree.at(&["alert"]).into_iter().flat_map(Tree::children) {
            if let Some(read) = self.receiver(root, name, receiver) {
                health.receivers.insert(name.to_owned(), read);
            }
        }
        Some(health)
    }

    fn check_threshold(&mut self, name: &str, tree: &Tree) {
        let path = format!("service health rule {name}");
        let threshold: Option<u32> = set(tree, "threshold");
        let range = range(name);
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
    }

    fn receiver(&mut self, root: &Tree, name: &str, tree: &Tree) -> Option<Receiver> {
        let path = format!("service health alert {name}");
        let webhook = match tree.value("webhook") {
            Some(url) => Some(self.webhook(root, &path, tree, url)?),
            None => None,
        };
        let mail = match tree.at(&["mail"]) {
            Some(mail) => Some(self.mail(root, &path, tree, mail)?),
            None => None,
        };
        if webhook.is_none() {
            let unused = |word: &&str| tree.has(word) && !(*word == "ca-certificate" && mail.is_some());
            for word in ["token", "ca-certificate"].into_iter().filter(unused) {
                self.warn(format!("{path} {word} has no effect without: {path} webhook URL"));
            }
        }
        let exec = tree.value("exec").map(str::to_owned);
        let receiver = Receiver {
            only_critical: tree.value("severity") == Some("critical"),
            exec,
            webhook,
            mail,
            syslog: tree.has("syslog"),
        };
        let tells = receiver.exec.is_some() || receiver.webhook.is_some() || receiver.mail.is_some();
        if !tells && !receiver.syslog {
            // So that its lines can be committed one after the other.
            self.warn(format!(
                "{path} has no destination, so no alert is sent: set {path} webhook URL, mail to ADDRESS, exec PATH or syslog"
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
        let authority = self.alert_authority(root, path, tree)?;
        Some(Webhook { url: SecretBytes::new(url.as_bytes().to_vec()), token, authority })
    }

    /// The only authority that is trusted, if one is named; nothing if it cannot be used, which has been said.
    #[expect(clippy::option_option, reason = "the outer one is for errors, as everywhere in this module")]
    fn alert_authority(&mut self, root: &Tree, path: &str, tree: &Tree) -> Option<Option<Vec<u8>>> {
        let Some(name) = tree.value("ca-certificate") else { return Some(None) };
        let from = format!("{path} ca-certificate");
        let reference = Reference { from, location: tree.location_of("ca-certificate"), kind: "ca", name };
        Some(Some(self.public(root, &reference, "certificate", &["certificate"])?.1))
    }

    fn mail(&mut self, root: &Tree, path: &str, receiver: &Tree, tree: &Tree) -> Option<Mail> {
        let to: Vec<String> = tree.values("to").into_iter().map(str::to_owned).collect();
        for (word, value, example) in [
            ("server", tree.value("server").is_some(), "mail.example.net"),
            ("to", !to.is_empty(), "operator@example.net"),
        ] {
            if !value {
                let fix = format!("set {path} mail {word} {example}");
                self.error(tree.location(), format!("{path} mail: {word} is not set"), fix);
                return None;
            }
        }
        let server = tree.value("server")?.to_owned();
        let (tls, port) = match tree.value("tls") {
            Some("none") => (MailTls::Off, 25),
            Some("implicit") => (MailTls::Implicit, 465),
            _ => (MailTls::StartTls, 587),
        };
        let password = tree.value("password").map(|password| SecretBytes::new(password.as_bytes().to_vec()));
        let login = match (tree.value("user"), password) {
            (Some(user), Some(password)) => Some((user.to_owned(), password)),
            (None, None) => None,
            (user, _) => {
                let word = if user.is_some() { "password" } else { "user" };
                let fix = format!("set {path} mail {word} VALUE, or delete the other");
                self.error(tree.location(), format!("{path} mail: {word} is not set"), fix);
                return None;
            }
        };
        let is_here = ["localhost", "127.0.0.1", "::1"].contains(&&*server);
        if login.is_some() && tls == MailTls::Off && !is_here {
            let reason = format!("{path} mail: tls none would send the password in clear");
            self.error(
                tree.location_of("tls"),
                reason,
                format!("delete {path} mail tls, or delete user and password"),
            );
            return None;
        }
        let authority = self.alert_authority(root, path, receiver)?;
        let from = tree.value("from").map(str::to_owned);
        Some(Mail { to, from, server, port: set(tree, "port").unwrap_or(port), tls, login, authority })
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
            ("alert a mail to operator", "an address of mail"),
            ("alert a mail to a@b.example,c@d.example", "an address of mail"),
            ("alert a mail to a@example.net", "mail: server is not set"),
            ("alert a mail server mail.example.net", "mail: to is not set"),
            ("repeat 9000", "from 0 to 8760"),
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
    fn mail_has_the_port_of_its_tls_and_sends_no_password_in_clear() {
        let mail = |more: &[&str]| {
            let lines = [
                "alert a mail to a@example.net",
                "alert a mail to b@example.net",
                "alert a mail server mx.example.net",
            ];
            checked(&[&lines, more].concat())
                .map(|(health, _)| health.receivers["a"].mail.clone().expect("mail"))
        };
        let plain = mail(&[]).expect("right");
        assert_eq!((plain.to.len(), plain.port, plain.tls, plain.login), (2, 587, MailTls::StartTls, None));
        assert_eq!(mail(&["alert a mail tls implicit"]).expect("right").port, 465);
        assert_eq!(mail(&["alert a mail tls none"]).expect("right").port, 25);
        let login = ["alert a mail user me", "alert a mail password secret", "alert a mail port 2525"];
        let with = mail(&login).expect("right");
        assert_eq!((with.port, with.login.map(|(user, _)| user).as_deref()), (2525, Some("me")));
        let no = mail(&[&login[..], &["alert a mail tls none"]].concat()).expect_err("in clear");
        assert!(no.contains("in clear") && !no.contains("secret\n"), "{no}");
        assert!(mail(&["alert a mail user me"]).expect_err("half").contains("password is not set"));
    }

    #[test]
    fn what_does_nothing_or_shows_a_secret_is_warned_of() {
        for (lines, said) in [
            (&["alert a severity critical"][..], "has no destination"),
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
