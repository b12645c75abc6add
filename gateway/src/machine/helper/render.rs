//! What the files of other programs hold. Values cannot end a line or a word there: the types of the configuration see to that,
//! and what a program gives a meaning is quoted here.

mod dnsmasq;
mod snmp;

pub use dnsmasq::{dhcp, dns};
pub use snmp::{Agents, snmp};

use config::schema::Times;
use config::settings::machine::{Archive, Protocol, Remote, Selector, Syslog, Task};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Where messages of this machine are logged.
pub(super) const MESSAGES: &str = "/var/log/messages";
/// Where further files are.
const FILES: &str = "/var/log/user";

fn word_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp => "tcp",
    }
}

/// The configuration of rsyslog.
pub fn syslog(syslog: &Syslog) -> String {
    let mut text = String::new();
    if syslog.whole_names {
        text += "global(preserveFQDN=\"on\")\n";
    }
    if let Some(seconds) = syslog.marker_seconds {
        let _ = writeln!(text, "module(load=\"immark\" interval=\"{seconds}\")");
    }
    let file = |path: &str| {
        format!(
            "type=\"omfile\" file=\"{path}\" fileOwner=\"root\" fileGroup=\"adm\" fileCreateMode=\"0640\""
        )
    };
    let mut log = |selectors: &[Selector], action: String| {
        if !selectors.is_empty() {
            let _ = writeln!(text, "{} action({action})", filter(selectors));
        }
    };
    log(&syslog.local, file(MESSAGES));
    for (name, (selectors, _)) in &syslog.files {
        log(selectors, file(&format!("{FILES}/{name}")));
    }
    log(&syslog.console, "type=\"omfile\" file=\"/dev/console\"".to_owned());
    for (name, selectors) in &syslog.users {
        log(selectors, format!("type=\"omusrmsg\" users=\"{name}\""));
    }
    for (name, remote) in &syslog.remotes {
        log(&remote.selectors, forward(name, remote));
    }
    text
}

fn forward(name: &str, remote: &Remote) -> String {
    let (port, protocol) = (remote.port, word_of(remote.protocol));
    let mut action = format!("type=\"omfwd\" target=\"{name}\" port=\"{port}\" protocol=\"{protocol}\"");
    if remote.octet_counted {
        action += " TCP_Framing=\"octet-counted\"";
    }
    if remote.with_timezone {
        action += " template=\"RSYSLOG_SyslogProtocol23Format\"";
    }
    // A machine that is away neither blocks the others nor loses what is logged meanwhile, up to 10,000 messages.
    action + " action.resumeRetryCount=\"-1\" queue.type=\"LinkedList\" queue.size=\"10000\""
}

/// The selectors of messages: the level of one facility replaces the level of all.
fn filter(selectors: &[Selector]) -> String {
    let has_all = selectors.iter().any(|selector| selector.facility.is_none());
    let mut parts = Vec::new();
    for Selector { facility, level } in selectors {
        let level = level.as_deref().unwrap_or("*");
        match facility {
            Some(facility) if has_all => parts.push(format!("{facility}.none;{facility}.{level}")),
            Some(facility) => parts.push(format!("{facility}.{level}")),
            None => parts.push(format!("*.{level}")),
        }
    }
    parts.join(";")
}

/// The configuration of logrotate for our files.
pub fn rotation(syslog: &Syslog, with_messages: bool) -> String {
    let mut text = String::new();
    let mut rotate = |path: &str, Archive { files, kilobytes }: Archive| {
        let _ = writeln!(
            text,
            "{path} {{\n\trotate {files}\n\tsize {kilobytes}k\n\tmissingok\n\tnotifempty\n\tcompress\n\
             \tpostrotate\n\t\t/usr/lib/rsyslog/rsyslog-rotate\n\tendscript\n}}"
        );
    };
    if with_messages && !syslog.local.is_empty() {
        rotate(MESSAGES, syslog.local_archive);
    }
    for (name, (_, archive)) in &syslog.files {
        rotate(&format!("{FILES}/{name}"), *archive);
    }
    text
}

/// Where tasks look for programs. The last folder is that of `postern generate programs`: scripts that were written for VyOS call `show`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/lib/postern";

/// A file for `/etc/cron.d`.
pub fn crontab(tasks: &[(String, Task)]) -> String {
    let mut text = format!("SHELL=/bin/sh\nPATH={PATH}\n");
    for (name, task) in tasks {
        let _ = writeln!(text, "# {name}\n{}", cron_line(&task.path, task));
    }
    text
}

/// A line of cron, which has a shell run it. Also between quotes, a percent sign is the end of the command for cron, unless a
/// backslash precedes it, and of two backslashes cron hands on one.
pub(super) fn cron_line(path: &str, task: &Task) -> String {
    let words = std::iter::once(path).chain(task.arguments.iter().map(String::as_str));
    let words: Vec<String> = words.map(|word| format!("'{}'", word.replace('\'', "'\"'\"'"))).collect();
    let words = words.join(" ").replace('\\', r"\\").replace('%', r"\%");
    format!("{} root {words}", task.times.crontab)
}

/// A service of systemd for a task.
pub fn task_service(name: &str, task: &Task) -> String {
    let words = std::iter::once(task.path.as_str()).chain(task.arguments.iter().map(String::as_str));
    let quote = |word: &str| {
        let word = word.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
        format!("\"{word}\"")
    };
    let words: Vec<String> = words.map(quote).collect();
    format!(
        "[Unit]\nDescription=Task {name} of Postern\n[Service]\nType=oneshot\nEnvironment=PATH={PATH}\nExecStart={}\n",
        words.join(" ")
    )
}

/// A timer of systemd for a task.
pub fn task_timer(name: &str, task: &Task) -> String {
    let mut text =
        format!("[Unit]\nDescription=Times of the task {name} of Postern\n[Timer]\nAccuracySec=1s\n");
    for calendar in calendars(&task.times) {
        let _ = writeln!(text, "OnCalendar={calendar}");
    }
    text + "[Install]\nWantedBy=timers.target\n"
}

/// The same times as systemd writes them: two where one of two kinds of days is enough.
fn calendars(times: &Times) -> Vec<String> {
    let list = |set: &BTreeSet<u8>, count| {
        let numbers: Vec<String> = set.iter().map(u8::to_string).collect();
        if set.len() == count { "*".to_owned() } else { numbers.join(",") }
    };
    let names = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let weekdays: Vec<&str> =
        times.weekdays.iter().filter_map(|day| names.get(usize::from(*day)).copied()).collect();
    let weekdays = if weekdays.len() == names.len() { String::new() } else { weekdays.join(",") + " " };
    let [hours, minutes] = [list(&times.hours, 24), list(&times.minutes, 60)];
    let (months, days) = (list(&times.months, 12), list(&times.days, 31));
    let calendar = |weekdays: &str, days: &str| format!("{weekdays}*-{months}-{days} {hours}:{minutes}:00");
    if times.either_day {
        vec![calendar("", &days), calendar(&weekdays, "*")]
    } else {
        vec![calendar(&weekdays, &days)]
    }
}
