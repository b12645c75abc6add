//! `system syslog`: a file of rsyslog, or where there is none, as much of it as journald can do.

use super::place::{Content, Place, PlaceError};
use super::service::{self, Init};
use super::{Wanted, missing, render};
use crate::machine::model::Finding;
use config::settings::machine::{Part, Selector, Syslog};

const RSYSLOG: &str = "/usr/sbin/rsyslogd";
const RSYSLOG_FILE: &str = "/etc/rsyslog.d/postern.conf";
const ROTATION: &str = "/etc/logrotate.d/postern";
const JOURNALD: &str = "/usr/lib/systemd/systemd-journald";
const JOURNALD_FILE: &str = "/etc/systemd/journald.conf.d/postern.conf";
const INSTALL: &str = "apt-get install rsyslog";

pub(super) fn known() -> Vec<String> {
    [RSYSLOG_FILE, ROTATION, JOURNALD_FILE].map(str::to_owned).to_vec()
}

fn has_journald(place: &Place) -> bool {
    place.has_systemd() && place.has(JOURNALD)
}

pub(super) fn check(place: &Place, syslog: &Syslog) -> Vec<Finding> {
    let part = Part::Syslog;
    if place.has(RSYSLOG) {
        let is_told = Init::of(place, "rsyslog").is_some();
        let why = format!("{RSYSLOG_FILE} is written, and nothing here restarts rsyslogd, which reads it");
        let finding = missing(format!("{part} local"), why, "restart rsyslogd");
        return if is_told { Vec::new() } else { vec![finding] };
    }
    if !has_journald(place) {
        return vec![missing(part, "there is no rsyslog", INSTALL)];
    }
    let alone = |path: String, what: &str| missing(path, format!("journald {what}"), INSTALL);
    let facilities = syslog.local.iter().filter_map(|selector| selector.facility.as_ref());
    let mut findings: Vec<Finding> = facilities
        .map(|name| alone(format!("{part} local facility {name}"), "does not tell facilities apart"))
        .collect();
    let remotes = syslog.remotes.keys();
    findings.extend(remotes.map(|name| alone(format!("{part} remote {name}"), "sends to no other machine")));
    let files = syslog.files.keys();
    findings.extend(files.map(|name| alone(format!("{part} file {name}"), "writes no other files")));
    let users = syslog.users.keys();
    findings.extend(users.map(|name| alone(format!("{part} user {name}"), "shows users no messages")));
    if !syslog.console.is_empty() {
        findings.push(alone(format!("{part} console"), "does not tell facilities apart"));
    }
    findings
}

pub(super) fn wanted(place: &Place, syslog: Option<&Syslog>) -> Wanted {
    let mut files = Vec::new();
    let mut verify = None;
    let mut write = |path: &str, text: String| {
        files.push(Content { path: path.to_owned(), mode: 0o644, text: text.into() });
    };
    if let Some(syslog) = syslog {
        // Where there is neither, it is there once rsyslog is installed.
        if place.has(RSYSLOG) || !has_journald(place) {
            write(RSYSLOG_FILE, render::syslog(syslog));
            // Debian 11 rotates it.
            let is_rotated = std::fs::read_to_string(place.at("/etc/logrotate.d/rsyslog"))
                .is_ok_and(|text| text.contains(render::MESSAGES));
            let rotation = render::rotation(syslog, !is_rotated);
            if !rotation.is_empty() {
                write(ROTATION, rotation);
            }
            // A part of a configuration: the rest is not ours.
            let file = place.at(RSYSLOG_FILE).display().to_string();
            verify = place.has(RSYSLOG).then(|| (RSYSLOG, vec!["-N2".to_owned(), "-f".to_owned(), file]));
        } else if has_journald(place)
            && let Some(level) = level_of_all(&syslog.local)
        {
            write(JOURNALD_FILE, format!("[Journal]\nMaxLevelStore={level}\n"));
        }
    }
    Wanted { files, known: known(), verify, ..Wanted::default() }
}

/// The level from which everything is logged.
fn level_of_all(selectors: &[Selector]) -> Option<&str> {
    let all = selectors.iter().find(|selector| selector.facility.is_none())?;
    Some(all.level.as_deref().unwrap_or("debug"))
}

pub(super) fn tell(place: &Place, is_wanted: bool) -> Result<(), PlaceError> {
    if place.has(RSYSLOG) {
        service::restart(place, "rsyslog", is_wanted)?;
    }
    if has_journald(place) {
        service::systemctl(place, &["try-restart", "systemd-journald"])?;
    }
    Ok(())
}
