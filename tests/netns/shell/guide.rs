//! The lines of a guide to acceleration on VyOS: they commit in one go, have an effect, and can be deleted one by one.

use super::{configured, program, said};
use crate::transactions::Router;

/// Its lines for VPNs and accelerators, as they stand there.
const LINES: &str = include_str!("guide.conf");

#[test]
fn the_lines_of_the_guide_commit_and_each_can_be_deleted() {
    let Some(router) = Router::new() else { return };
    let before = router.text();
    configured(&router, &format!("configure\n{LINES}commit\nexit discard\n"), 0);
    let text = router.text();
    for line in LINES.lines() {
        assert!(text.contains(&line.replace('\'', "")), "{line}\n{text}");
    }
    let connections =
        said(&program(&router, &["show", "vpn", "ipsec", "connections"]).output().expect("it runs"), 0);
    for peer in ["203.0.113.10", "10.128.0.10", "185.185.185.10"] {
        assert!(connections.contains(peer), "{connections}");
    }
    // A line at a time, to the end: nothing else goes with it.
    let lines = LINES.lines().map(|line| line.strip_prefix("set ").expect("it sets"));
    let commands: String = lines.map(|words| format!("delete {words}\nset {words}\ncompare\n")).collect();
    let said = configured(&router, &commands, 0);
    assert_eq!(
        said.lines().filter(|line| line.starts_with("No changes")).count(),
        LINES.lines().count(),
        "{said}"
    );
    let deleted: String = LINES.lines().map(|line| line.replacen("set ", "delete ", 1) + "\n").collect();
    let said = configured(&router, &format!("{deleted}commit check\n"), 1);
    assert!(said.contains("Commit failed"), "of peers only the names are left: {said}");
    let branches = "delete vpn\ndelete system acceleration\ncommit\n";
    configured(&router, branches, 0);
    assert_eq!(router.text(), before);
}
