//! `service snmp`: snmpd reads a folder of ours in place of its own. What Debian's file allows, as asking the machine's name as
//! `public`, would otherwise be added to what is configured.

use super::place::{Content, Place, PlaceError};
use super::render::Agents;
use super::service::{self, Init};
use super::{Wanted, missing, render};
use crate::machine::model::Finding;
use crate::snmp::MASTER;
use config::settings::machine::{Part, Snmp};
use zeroize::Zeroizing;

const PROGRAM: &str = "/usr/sbin/snmpd";
const FILE: &str = "/etc/snmp/postern/snmpd.conf";
/// Where snmpd listens for sub-agents by itself, as those of other programs expect.
const USUAL: &str = "/var/agentx/master";
const UNIT: &str = "/etc/systemd/system/snmpd.service.d/postern.conf";
const UNIT_TEXT: &str = "[Service]\nEnvironment=SNMPCONFPATH=/etc/snmp/postern\n";

pub(super) fn known() -> Vec<String> {
    vec![FILE.to_owned(), UNIT.to_owned()]
}

pub(super) fn check(place: &Place) -> Vec<Finding> {
    if !place.has(PROGRAM) {
        return vec![missing(Part::Snmp, "snmpd is not installed", "apt-get install snmpd")];
    }
    if Init::of(place, "snmpd") != Some(Init::Systemd) {
        let why = format!("{FILE} is written, and nothing here starts snmpd with it: there is no systemd");
        return vec![missing(
            format!("{} community", Part::Snmp),
            why,
            "start it: SNMPCONFPATH=/etc/snmp/postern snmpd",
        )];
    }
    Vec::new()
}

pub(super) fn wanted(place: &Place, snmp: Option<&Snmp>, group: u32) -> Wanted {
    let agents = Agents {
        sockets: [MASTER, USUAL].map(|socket| place.at(socket).display().to_string()).into(),
        group,
    };
    let content = |path: &str, mode, text: Zeroizing<String>| Content { path: path.to_owned(), mode, text };
    // Communities are passwords; snmpd reads them before it gives up root.
    let mut files: Vec<Content> = snmp
        .map(|snmp| content(FILE, 0o600, render::snmp(snmp, place.has("/proc/net/if_inet6"), &agents)))
        .into_iter()
        .collect();
    if snmp.is_some() && place.has_systemd() {
        files.push(content(UNIT, 0o644, UNIT_TEXT.to_owned().into()));
    }
    Wanted { files, known: known(), ..Wanted::default() }
}

pub(super) fn tell(place: &Place, is_wanted: bool) -> Result<(), PlaceError> {
    // Without systemd, snmpd reads what it is told by hand.
    if !place.has_systemd() || !place.has(PROGRAM) {
        return Ok(());
    }
    service::reload_units(place)?;
    service::restart(place, "snmpd", is_wanted)
}
