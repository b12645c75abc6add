//! `postern show environment sensors`: temperatures, fans and voltages, from `/sys/class/hwmon` (Documentation/hwmon).

use crate::answer::Answer;
use crate::host;
use config::tree::natural_order;
use serde::Serialize;
use std::path::Path;

/// A chip with its sensors.
#[derive(Debug, Serialize, PartialEq)]
struct Chip {
    name: String,
    sensors: Vec<Sensor>,
}

/// One sensor.
#[derive(Debug, Serialize, PartialEq)]
struct Sensor {
    label: String,
    unit: &'static str,
    value: f64,
    /// From here on it is too much.
    high: Option<f64>,
    /// From here on the machine protects itself.
    critical: Option<f64>,
}

/// The kinds of sensors: the name of their files, what one of the file's numbers is in the unit, and the unit.
const KINDS: [(&str, f64, &str); 5] =
    [("temp", 1e-3, "C"), ("fan", 1.0, "RPM"), ("in", 1e-3, "V"), ("curr", 1e-3, "A"), ("power", 1e-6, "W")];

pub(crate) fn show() -> Answer {
    Answer::new(read(&host::root()), |chips| text(chips))
}

fn read(root: &Path) -> Vec<Chip> {
    let monitors = host::entries(&root.join("sys/class/hwmon"));
    let mut chips: Vec<Chip> = monitors.iter().filter_map(|path| chip(path)).collect();
    // Boards without a driver for their chip still have thermal zones.
    if !chips.iter().flat_map(|chip| &chip.sensors).any(|sensor| sensor.unit == "C") {
        let zones = host::entries(&root.join("sys/class/thermal"));
        chips.extend(zones.iter().filter_map(|path| zone(path)));
    }
    chips
}

fn number(path: &Path) -> Option<f64> {
    host::text(path)?.parse().ok()
}

fn chip(path: &Path) -> Option<Chip> {
    let mut sensors = Vec::new();
    let names = host::entries(path).into_iter();
    let mut inputs: Vec<String> = names
        .filter_map(|path| path.file_name()?.to_str()?.strip_suffix("_input").map(str::to_owned))
        .collect();
    inputs.sort_by(|a, b| natural_order(a, b));
    for (kind, scale, unit) in KINDS {
        let of_kind = |name: &&String| {
            let rest = name.strip_prefix(kind).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        };
        for name in inputs.iter().filter(of_kind) {
            let file = |what: &str| path.join(format!("{name}_{what}"));
            // A fan that is absent cannot be read.
            let Some(value) = number(&file("input")) else { continue };
            sensors.push(Sensor {
                label: host::text(&file("label")).unwrap_or_else(|| name.clone()),
                unit,
                value: value * scale,
                high: number(&file("max")).map(|number| number * scale),
                critical: number(&file("crit")).map(|number| number * scale),
            });
        }
    }
    let name = host::text(&path.join("name")).unwrap_or_else(|| "unnamed".to_owned());
    (!sensors.is_empty()).then_some(Chip { name, sensors })
}

fn zone(path: &Path) -> Option<Chip> {
    let value = number(&path.join("temp"))? * 1e-3;
    let name = host::text(&path.join("type")).unwrap_or_else(|| "thermal zone".to_owned());
    let sensor = Sensor { label: "temperature".to_owned(), unit: "C", value, high: None, critical: None };
    Some(Chip { name, sensors: vec![sensor] })
}

fn text(chips: &[Chip]) -> String {
    if chips.is_empty() {
        return "no sensors: /sys/class/hwmon and /sys/class/thermal have none, as in most virtual machines\n"
            .to_owned();
    }
    let chip = |chip: &Chip| {
        let width = chip.sensors.iter().map(|sensor| sensor.label.chars().count()).max().unwrap_or_default();
        let line = |sensor: &Sensor| {
            let label = format!("{}:", sensor.label);
            format!("{label:<width$}  {}\n", measured(sensor), width = width + 1)
        };
        format!("{}\n", chip.name) + &chip.sensors.iter().map(line).collect::<String>()
    };
    chips.iter().map(chip).collect::<Vec<_>>().join("\n")
}

/// A value with its unit and its limits.
fn measured(sensor: &Sensor) -> String {
    let with_unit = |value: f64| match sensor.unit {
        "C" => format!("{value:+.1} C"),
        "RPM" => format!("{value:.0} RPM"),
        unit => format!("{value:.2} {unit}"),
    };
    let limits = [("high", sensor.high), ("crit", sensor.critical)];
    let limits: Vec<String> = limits
        .into_iter()
        .filter_map(|(name, limit)| Some(format!("{name} = {}", with_unit(limit?))))
        .collect();
    let value = with_unit(sensor.value);
    if limits.is_empty() { value } else { format!("{value}  ({})", limits.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn sensors_are_shown_with_their_limits() {
        let root = tempfile::tempdir().expect("writable");
        let at = root.path().join("sys/class/hwmon/hwmon0");
        fs::create_dir_all(&at).expect("writable");
        for (name, value) in [
            ("name", "coretemp"),
            ("temp10_input", "44000"),
            ("temp1_input", "45500"),
            ("temp1_label", "Package id 0"),
            ("temp1_max", "80000"),
            ("temp1_crit", "100000"),
            ("fan1_input", "1200"),
            ("in0_input", "1024"),
            ("intrusion0_alarm", "0"),
        ] {
            fs::write(at.join(name), format!("{value}\n")).expect("writable");
        }
        assert_eq!(
            text(&read(root.path())),
            "coretemp\n\
             Package id 0:  +45.5 C  (high = +80.0 C, crit = +100.0 C)\n\
             temp10:        +44.0 C\n\
             fan1:          1200 RPM\n\
             in0:           1.02 V\n"
        );
    }

    #[test]
    fn a_thermal_zone_is_better_than_nothing() {
        let root = tempfile::tempdir().expect("writable");
        assert!(text(&read(root.path())).starts_with("no sensors: "));
        let at = root.path().join("sys/class/thermal/thermal_zone0");
        fs::create_dir_all(&at).expect("writable");
        fs::write(at.join("type"), "cpu-thermal\n").expect("writable");
        fs::write(at.join("temp"), "51234\n").expect("writable");
        assert_eq!(text(&read(root.path())), "cpu-thermal\ntemperature:  +51.2 C\n");
    }
}
