//! Presets: the groups of VyOS's guide to acceleration, by the purpose of a tunnel.
//!
//! A group with a preset is read as if these lines stood in it, except those that it says itself. A proposal of its own
//! replaces the proposals of the preset. The configuration keeps the preset, as it was typed.

use crate::parse::parse;
use crate::tree::Tree;

/// The lines of a preset of an `esp-group`.
fn esp_lines(name: &str) -> &'static [&'static str] {
    match name {
        // Large packets, least overhead.
        "bulk" => &["lifetime 3600", "mode tunnel", "pfs disable", "proposal 1 encryption aes128gcm128"],
        // Short tags; new keys more often, as these are sooner guessed.
        "low-latency" => {
            &["lifetime 1800", "mode tunnel", "pfs dh-group14", "proposal 1 encryption aes128gcm64"]
        }
        "max-security" => {
            &["lifetime 1800", "mode tunnel", "pfs dh-group16", "proposal 1 encryption aes256gcm128"]
        }
        _ => &[],
    }
}

/// The lines of a preset of an `ike-group`.
fn ike_lines(name: &str) -> &'static [&'static str] {
    match name {
        "low-latency" => &["lifetime 14400"],
        "max-security" => &["lifetime 7200", "proposal 1 dh-group 16", "proposal 1 encryption aes256gcm128"],
        _ => &[],
    }
}

/// An `esp-group` with what its preset adds.
pub(in super::super) fn esp(group: &Tree) -> Tree {
    expanded(group, "esp-group", esp_lines)
}

/// An `ike-group` with what its preset adds.
pub(in super::super) fn ike(group: &Tree) -> Tree {
    expanded(group, "ike-group", ike_lines)
}

fn expanded(group: &Tree, kind: &str, lines: fn(&str) -> &'static [&'static str]) -> Tree {
    let mut whole = group.clone();
    let added = group.value("preset").map(|name| preset(kind, lines(name))).unwrap_or_default();
    for (word, branch) in added.children().filter(|(word, _)| !group.has(word)) {
        whole.insert(&[word], branch.clone());
    }
    whole
}

/// A group with these lines.
fn preset(kind: &str, lines: &[&str]) -> Tree {
    let text: String = lines.iter().map(|line| format!("set vpn ipsec {kind} preset {line}\n")).collect();
    let tree = parse(&text).expect("the lines of a preset are valid");
    tree.at(&["vpn", "ipsec", kind, "preset"]).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ESP_PRESETS, IKE_PRESETS};

    #[test]
    fn every_preset_of_the_grammar_has_lines_that_are_valid() {
        for (names, kind, lines) in [
            (ESP_PRESETS, "esp-group", esp_lines as fn(&str) -> &'static [&'static str]),
            (IKE_PRESETS, "ike-group", ike_lines),
        ] {
            for name in names {
                assert!(!lines(name).is_empty(), "{kind} {name}");
                assert!(preset(kind, lines(name)).has("lifetime"), "{kind} {name}");
            }
        }
    }
}
