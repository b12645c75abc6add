//! What chooses the frequency of processors: `cpufreq` of each, below `/sys/devices/system/cpu`.

use super::is_processor;
use crypto::machine::{Files, Known};
use std::collections::BTreeMap;
use std::fmt;

/// What chooses the frequency of a processor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Governor {
    /// A governor of the kernel.
    Kernel(String),
    /// The driver `intel_pstate` or `amd-pstate-epp` with `powersave`. That is its default and follows the load; a processor that chooses by
    /// itself (HWP) has a preference. <https://docs.kernel.org/admin-guide/pm/intel_pstate.html>
    Processor {
        /// `energy_performance_preference`, such as `balance_power`.
        preference: Option<String>,
    },
}

impl fmt::Display for Governor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(name) => f.write_str(name),
            Self::Processor { preference: None } => f.write_str("powersave"),
            Self::Processor { preference: Some(preference) } => {
                write!(f, "powersave with the preference {preference}")
            }
        }
    }
}

/// How many processors have each governor.
pub(super) fn read(files: Files<'_>) -> Known<BTreeMap<Governor, usize>> {
    let processors = files.names("sys/devices/system/cpu")?;
    let mut governors = BTreeMap::new();
    let mut problem = None;
    for processor in processors.iter().filter(|name| is_processor(name)) {
        match governor(files, &format!("sys/devices/system/cpu/{processor}/cpufreq")) {
            Ok(governor) => *governors.entry(governor).or_default() += 1,
            Err(why) => problem = problem.or(Some(why)),
        }
    }
    let problem = problem.unwrap_or_else(|| "/sys/devices/system/cpu has no processor".to_owned());
    if governors.is_empty() { Err(problem) } else { Ok(governors) }
}

fn governor(files: Files<'_>, folder: &str) -> Known<Governor> {
    let file = |name: &str| files.text(&format!("{folder}/{name}"));
    let name = file("scaling_governor")?;
    let driver = file("scaling_driver").unwrap_or_default();
    if name == "powersave" && matches!(&*driver, "intel_pstate" | "amd-pstate-epp") {
        return Ok(Governor::Processor { preference: file("energy_performance_preference").ok() });
    }
    Ok(Governor::Kernel(name))
}
