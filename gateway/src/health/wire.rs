//! The messages between the daemon and the process that tells receivers: one line of JSON each.

use super::model::{Alert, AlertState, Receiver as Report, Severity};
use crate::api::model::SecretText;
use serde::{Deserialize, Serialize};

/// Bytes of a line.
pub const LONGEST: usize = 1 << 20;

/// What the daemon sends.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// Who hears of alerts from now on.
    Orders(Orders),
    /// Alerts of a rule that have changed.
    Notify(Notification),
    /// A line of the log.
    Log(Line),
}

/// Who hears of alerts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Orders {
    /// The receivers.
    pub receivers: Vec<Receiver>,
    /// The log, if there is one.
    pub log: Option<Log>,
}

/// A receiver of alerts.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Receiver {
    /// Its name.
    pub name: String,
    /// Whether it hears of no warnings.
    pub only_critical: bool,
    /// How it hears.
    pub way: Way,
}

/// How a receiver hears of alerts.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A program that is run.
    Exec(String),
    /// A URL that gets a POST.
    Webhook(Webhook),
    /// Mail, by a server.
    Mail(Mail),
    /// The syslog of the machine.
    Syslog,
}

impl Way {
    /// Its word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Webhook(_) => "webhook",
            Self::Mail(_) => "mail",
            Self::Syslog => "syslog",
        }
    }
}

/// A URL that gets a POST.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Webhook {
    /// The URL.
    pub url: SecretText,
    /// What is sent in the header `Authorization`.
    pub token: Option<SecretText>,
    /// The certificate of the only authority that is trusted, in base64; those of the machine if there is none.
    pub authority: Option<String>,
}

/// Mail, by a server.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Mail {
    /// Who gets it.
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
    pub login: Option<(String, SecretText)>,
    /// The certificate of the only authority that is trusted, in base64; those of the machine if there is none.
    pub authority: Option<String>,
}

/// How the conversation with a mail server is protected.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum MailTls {
    /// By TLS after STARTTLS.
    StartTls,
    /// By TLS from the first byte.
    Implicit,
    /// Not at all.
    Off,
}

/// The log of alerts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
pub struct Log {
    /// Days that are kept.
    pub days: u32,
    /// Kilobytes of a day at most.
    pub kilobytes: u32,
}

/// Alerts of a rule that have changed, with those that go on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Notification {
    /// The rule.
    pub rule: String,
    /// How bad it is.
    pub severity: Severity,
    /// The alerts: those that fire, then those that are resolved.
    pub alerts: Vec<Alert>,
    /// How many more there are.
    pub left_out: usize,
    /// Seconds since 1970 of the first change that no message has told before.
    pub changed_since: u64,
    /// Whether nothing has changed: what still fires is told again.
    #[serde(default)]
    pub is_repeated: bool,
}

impl Notification {
    /// Whether something fires.
    pub fn is_firing(&self) -> bool {
        self.alerts.iter().any(|alert| alert.state == AlertState::Firing)
    }

    /// The alerts that no message has told before; of one that is repeated all that fire.
    pub fn changes(&self) -> impl Iterator<Item = &Alert> {
        let is_new = |alert: &&Alert| {
            self.is_repeated
                || alert.resolved_at.or(alert.firing_since).is_some_and(|at| at >= self.changed_since)
        };
        self.alerts.iter().filter(is_new)
    }
}

/// A line of the log.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Line {
    /// Seconds since 1970: the day in whose file it is.
    pub at: u64,
    /// What it says.
    pub text: String,
}

/// What the process sends: all receivers, after each change.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Reports {
    /// The receivers.
    pub receivers: Vec<Report>,
    /// Whether it has just been started, and asks for its orders.
    #[serde(default)]
    pub is_new: bool,
}
