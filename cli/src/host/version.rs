//! `postern show version`: this program, the kernel and the machine.

use crate::answer::Answer;
use crate::host;
use crate::version::{COMMIT, TARGET, VERSION, engines};
use crypto::choice::find;
use crypto::machine::Machine;
use serde_json::json;

/// Everything with a version.
pub(crate) fn all() -> Answer {
    let root = host::root();
    let machine = Machine::read(&root).processor;
    let system = host::text(&root.join("etc/os-release")).unwrap_or_default();
    let dmi = |name: &str| host::text(&root.join("sys/class/dmi/id").join(name));
    let lines = [
        ("Version", Some(format!("postern {VERSION}"))),
        ("Commit", Some(COMMIT.to_owned())),
        ("Target", Some(TARGET.to_owned())),
        ("Crypto engines", Some(engines(&find()))),
        ("System", os_name(&system)),
        ("Kernel", release()),
        ("Architecture", Some(machine.architecture)),
        ("Hypervisor", machine.hypervisor),
        ("Hardware vendor", dmi("sys_vendor")),
        ("Hardware model", dmi("product_name")),
    ];
    let known: Vec<(&str, String)> =
        lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let key = |name: &str| name.to_lowercase().replace(' ', "_");
    let value: serde_json::Map<String, serde_json::Value> =
        known.iter().map(|(name, value)| (key(name), json!(value))).collect();
    Answer::new(value, move |_| {
        known.iter().map(|(name, value)| format!("{:<18}{value}\n", format!("{name}:"))).collect()
    })
}

/// The release of the kernel alone, as scripts expect it.
pub(crate) fn kernel() -> Answer {
    let release = release().unwrap_or_else(|| "unknown".to_owned());
    Answer::new(json!({ "kernel": release }), move |_| format!("{release}\n"))
}

fn release() -> Option<String> {
    host::text(&host::root().join("proc/sys/kernel/osrelease"))
}

/// The name of the distribution, from os-release(5).
fn os_name(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_has_a_name() {
        let text = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(os_name(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(os_name("ID=x\n"), None);
    }
}
