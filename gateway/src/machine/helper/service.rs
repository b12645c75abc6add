//! Services of the machine that read their files again.

use super::place::{Place, PlaceError};

/// What starts services here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Init {
    Systemd,
    /// `service NAME restart` of System V.
    Scripts,
}

const SYSTEMCTL: &str = "/usr/bin/systemctl";
const SERVICE: &str = "/usr/sbin/service";

impl Init {
    /// What starts a service; none if nothing known does.
    pub(super) fn of(place: &Place, service: &str) -> Option<Self> {
        if place.has_systemd() {
            Some(Self::Systemd)
        } else if place.has(SERVICE) && place.has(&format!("/etc/init.d/{service}")) {
            Some(Self::Scripts)
        } else {
            None
        }
    }
}

/// Has systemd read units again.
pub(super) fn reload_units(place: &Place) -> Result<(), PlaceError> {
    systemctl(place, &["daemon-reload"])
}

/// Runs systemctl.
pub(super) fn systemctl(place: &Place, arguments: &[&str]) -> Result<(), PlaceError> {
    place.run(SYSTEMCTL, arguments)
}

/// Restarts a service, and starts it if it is to run; nothing is done where nothing known starts services.
pub(super) fn restart(place: &Place, service: &str, is_wanted: bool) -> Result<(), PlaceError> {
    match Init::of(place, service) {
        Some(Init::Systemd) if is_wanted => systemctl(place, &["restart", service]),
        // One that the administrator has stopped stays so.
        Some(Init::Systemd) => systemctl(place, &["try-restart", service]),
        Some(Init::Scripts) => place.run(SERVICE, &[service, "restart"]),
        None => Ok(()),
    }
}
