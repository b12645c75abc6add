//! `service dhcp-server` and `service dns forwarding`: a dnsmasq of our own for each, which reads no other file. The machine's own one,
//! if there is one, is left alone.

use super::place::{Content, Place, PlaceError};
use super::service::{reload_units, systemctl};
use super::{Wanted, missing};
use crate::machine::model::Finding;
use config::settings::machine::Part;

const PROGRAM: &str = "/usr/sbin/dnsmasq";
const FOLDER: &str = "/etc/postern-machine";

/// The name of the file and of the unit of a part.
fn name(part: Part) -> &'static str {
    if part == Part::DhcpServer { "postern-dhcp-server" } else { "postern-dns-forwarding" }
}

fn file(part: Part) -> String {
    format!("{FOLDER}/{}.conf", name(part))
}

fn unit(part: Part) -> String {
    format!("/etc/systemd/system/{}.service", name(part))
}

pub(super) fn known(part: Part) -> Vec<String> {
    vec![file(part), unit(part)]
}

pub(super) fn check(place: &Place, part: Part) -> Vec<Finding> {
    if !place.has(PROGRAM) {
        return vec![missing(part, "dnsmasq is not installed", "apt-get install dnsmasq-base")];
    }
    if !place.has_systemd() {
        let why = format!(
            "{} is written, and nothing here starts dnsmasq with it: there is no systemd",
            file(part)
        );
        return vec![missing(
            part,
            why,
            format!("start it: dnsmasq --keep-in-foreground --conf-file={}", file(part)),
        )];
    }
    Vec::new()
}

/// The files of a part whose dnsmasq reads `text`; none where there is nothing to do.
pub(super) fn wanted(place: &Place, part: Part, text: Option<String>) -> Wanted {
    let Some(text) = text else { return Wanted { known: known(part), ..Wanted::default() } };
    let content = |path, text: String| Content { path, mode: 0o644, text: text.into() };
    let mut files = vec![content(file(part), text)];
    if place.has_systemd() {
        files.push(content(unit(part), unit_text(part)));
    }
    let read = format!("--conf-file={}", place.at(&file(part)).display());
    let verify = place.has(PROGRAM).then(|| (PROGRAM, vec!["--test".to_owned(), read]));
    Wanted { files, known: known(part), verify, ..Wanted::default() }
}

/// Starts dnsmasq with its new file, or ends it.
pub(super) fn tell(place: &Place, part: Part, is_wanted: bool) -> Result<(), PlaceError> {
    if !place.has_systemd() || !place.has(PROGRAM) {
        return Ok(());
    }
    reload_units(place)?;
    if is_wanted {
        systemctl(place, &["enable", name(part)])?;
        return systemctl(place, &["restart", name(part)]);
    }
    Ok(())
}

/// Ends dnsmasq while its unit is there.
pub(super) fn end(place: &Place, part: Part) -> Result<(), PlaceError> {
    if place.has_systemd() && place.has(&unit(part)) {
        systemctl(place, &["disable", "--now", name(part)])?;
    }
    Ok(())
}

/// dnsmasq forks once it has its ports, so that systemd, and the commit, hear of one that cannot have them.
fn unit_text(part: Part) -> String {
    let pid = format!("/run/{}.pid", name(part));
    format!(
        "[Unit]\nDescription={part} of Postern\nAfter=network.target\n[Service]\nType=forking\nPIDFile={pid}\n\
         ExecStart={PROGRAM} --pid-file={pid} --conf-file={}\nRestart=always\nRestartSec=2\n[Install]\n\
         WantedBy=multi-user.target\n",
        file(part)
    )
}
