//! Temperatures, and how often processors were slowed down because of them: `/sys/class/hwmon`, `/sys/class/thermal` and
//! `thermal_throttle` of each processor (Documentation/hwmon/sysfs-interface, Documentation/admin-guide/thermal).

use crypto::machine::{Files, Known};
use std::collections::BTreeMap;

/// How near to its limit a sensor is hot, in thousandths of a degree.
const NEAR: i64 = 5_000;
/// The same while it has its alarm: that of many chips stays set, or is set without a cause.
const NEAR_WITH_ALARM: i64 = 10_000;

/// Temperatures of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Sensors that can be read.
    pub sensors: usize,
    /// Those that are at their limit.
    pub hot: Vec<Hot>,
    /// How often each core and each package was slowed down, by the processor whose counter it is; none where the kernel does not count it.
    /// Each processor of a package counts the package.
    pub throttled: BTreeMap<String, u64>,
}

impl Heat {
    /// How often the processor was slowed down that was it most often, since counters that were read before.
    pub(in super::super) fn throttled_since(&self, before: Option<&Self>) -> u64 {
        let then = |name: &str| match before {
            // One that was not there before was put in meanwhile.
            Some(before) => before.throttled.get(name).copied().unwrap_or(u64::MAX),
            None => 0,
        };
        self.throttled.iter().map(|(name, now)| now.saturating_sub(then(name))).max().unwrap_or_default()
    }
}

/// A sensor at its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Its chip and its label.
    pub name: String,
    /// Its temperature in degrees.
    pub celsius: i64,
    /// Its limit.
    pub limit: i64,
}

pub(super) fn read(files: Files<'_>) -> Known<Heat> {
    let chips = files.names("sys/class/hwmon");
    let zones = files.names("sys/class/thermal");
    let mut heat = Heat { throttled: throttled(files), ..Heat::default() };
    for chip in chips.iter().flatten() {
        read_chip(files, &format!("sys/class/hwmon/{chip}"), &mut heat);
    }
    let is_zone = |name: &&String| name.starts_with("thermal_zone");
    for zone in zones.iter().flatten().filter(is_zone) {
        read_zone(files, &format!("sys/class/thermal/{zone}"), &mut heat);
    }
    if heat.sensors == 0 && heat.throttled.is_empty() {
        return Err(chips
            .err()
            .unwrap_or_else(|| "/sys/class/hwmon has no sensor of a temperature".to_owned()));
    }
    Ok(heat)
}

/// Old drivers have the files one folder below.
fn read_chip(files: Files<'_>, chip: &str, heat: &mut Heat) {
    let chip = if files.has(&format!("{chip}/device/temp1_input")) {
        format!("{chip}/device")
    } else {
        chip.to_owned()
    };
    let chip = &chip;
    let name = files.text(&format!("{chip}/name")).unwrap_or_else(|_| "sensor".to_owned());
    let names = files.names(chip).unwrap_or_default();
    for sensor in
        names.iter().filter_map(|name| name.strip_suffix("_input")).filter(|it| it.starts_with("temp"))
    {
        let value = |what: &str| files.number::<i64>(&format!("{chip}/{sensor}_{what}")).ok();
        let Some(now) = value("input") else { continue };
        heat.sensors += 1;
        let critical = value("crit").filter(|limit| *limit > 0);
        // "max" is no limit: fans begin to turn there.
        let Some(limit) = critical.or_else(|| value("emergency").filter(|limit| *limit > 0)) else {
            continue;
        };
        let alarm = ["crit_alarm", "emergency_alarm"].iter().any(|what| value(what) == Some(1));
        if now >= limit - if alarm { NEAR_WITH_ALARM } else { NEAR } {
            let label = files.text(&format!("{chip}/{sensor}_label")).unwrap_or_else(|_| sensor.to_owned());
            heat.hot.push(hot(&format!("{name} {label}"), now, limit));
        }
    }
}

fn read_zone(files: Files<'_>, zone: &str, heat: &mut Heat) {
    let Ok(now) = files.number::<i64>(&format!("{zone}/temp")) else { return };
    heat.sensors += 1;
    let name = files.text(&format!("{zone}/type")).unwrap_or_else(|_| "thermal zone".to_owned());
    let points = (0..12).filter_map(|number| {
        let of = |what: &str| files.text(&format!("{zone}/trip_point_{number}_{what}")).ok();
        let is_limit = matches!(&*of("type")?, "critical" | "hot");
        is_limit.then_some(of("temp")?.parse::<i64>().ok()?).filter(|limit| *limit > 0)
    });
    if let Some(limit) = points.min().filter(|limit| now >= limit - NEAR) {
        heat.hot.push(hot(&name, now, limit));
    }
}

fn hot(name: &str, now: i64, limit: i64) -> Hot {
    Hot { name: name.chars().take(80).collect(), celsius: now / 1000, limit: limit / 1000 }
}

fn throttled(files: Files<'_>) -> BTreeMap<String, u64> {
    let processors = files.names("sys/devices/system/cpu").unwrap_or_default();
    let mut counts = BTreeMap::new();
    for processor in processors.iter().filter(|name| super::is_processor(name)) {
        for of in ["core", "package"] {
            let path = format!("sys/devices/system/cpu/{processor}/thermal_throttle/{of}_throttle_count");
            counts.extend(files.number::<u64>(&path).ok().map(|count| (format!("{processor} {of}"), count)));
        }
    }
    counts
}
