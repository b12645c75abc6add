//! What an operator types at first, and what is wrong on a machine that is not prepared.

use crate::daemon::Site;
use crate::support::{postern, sites};
use bench::lab::Lab;
use std::process::Output;

/// Runs the gateway in the foreground, where it must refuse to start, and returns what it says.
fn refused(lab: &Lab, site: &Site, more: &[&str]) -> String {
    let mut command = lab.command("a", postern());
    command.args(["run", "--config"]).arg(&site.file).arg("--api").arg(&site.socket).args(more);
    let Output { status, stderr, .. } = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && said.contains("fix: "), "{said}");
    said
}

#[test]
fn an_empty_file_is_no_configuration_unless_it_says_so() {
    let Some(mut lab) = sites() else { return };
    let mut site = Site::new(&lab, "a", "");
    for text in ["", "\n", "set system acceleration qat\n"] {
        std::fs::write(&site.file, text).expect("a file");
        for more in [&[][..], &["--check"]] {
            let said = refused(&lab, &site, more);
            assert!(said.contains("no interface and no peer") && said.contains("allow-empty"), "{said}");
        }
    }
    std::fs::write(&site.file, "set system allow-empty\n").expect("a file");
    site.start(&mut lab);
}
