//! The table has each directive of OpenVPN.

use config::openvpn::{find, rows};
use std::process::Command;

/// Directives that this table has besides those of the manuals: they ended with older versions, and files still have them.
const OLDER: &[&str] = &["keysize", "tls-remote"];

/// Directives of this program alone. One of them that a manual has by now is to be renamed, or to mean the same.
const OURS: &[&str] = &["auth-user-pass-hashes"];

fn listed() -> Vec<&'static str> {
    include_str!("directives.txt").lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn each_directive_of_the_manuals_has_a_row() {
    let listed = listed();
    let missing: Vec<&&str> = listed.iter().filter(|name| find(name).is_none()).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    let invented: Vec<&str> = rows()
        .map(|row| row.name)
        .filter(|name| !listed.contains(name) && !OLDER.contains(name) && !OURS.contains(name))
        .collect();
    assert!(invented.is_empty(), "not in the manuals: {invented:?}");
    assert!(OURS.iter().all(|name| !listed.contains(name)), "OpenVPN has a directive of ours");
}

#[test]
fn each_directive_of_the_installed_openvpn_has_a_row() {
    let Ok(output) = Command::new("openvpn").arg("--help").output() else {
        assert!(std::env::var_os("NO_SKIP").is_none(), "openvpn is not installed");
        eprintln!("SKIPPED: openvpn is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("--"))
        .map(|line| line.split(|c| !is_part(c)).next().unwrap_or_default())
        .collect();
    assert!(names.len() > 200, "its help has {} directives", names.len());
    let missing: Vec<&&str> = names.iter().filter(|name| find(name).is_none()).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}
