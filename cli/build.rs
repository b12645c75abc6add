//! Notes what `--version` says of this build: the commit, where there is one, and the target.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=POSTERN_COMMIT");
    // Packagers, who build without the repository, may say it.
    let said = std::env::var("POSTERN_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = said.or_else(commit).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=POSTERN_COMMIT={commit}");
    println!("cargo:rustc-env=POSTERN_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}

/// The commit that is checked out; none without git, or where the sources lie in a repository of something else.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // Of a file that is not there cargo would think that it changes all the time.
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What git says, in the folder of this package, where cargo starts us.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
