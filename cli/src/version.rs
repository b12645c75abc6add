//! `postern --version`: version, commit and target of the build, and the crypto engines of this machine.

use crypto::choice::{Found, find};

/// The version, the commit and the target of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
pub(crate) const COMMIT: &str = env!("POSTERN_COMMIT");
pub(crate) const TARGET: &str = env!("POSTERN_TARGET");

/// The text, one fact a line.
pub(crate) fn text() -> String {
    format!("postern {VERSION}\ncommit: {COMMIT}\ntarget: {TARGET}\nengines: {}\n", engines(&find()))
}

pub(crate) fn engines(found: &Found) -> String {
    let present = found.engines.iter().map(|engine| {
        let (name, version) = (engine.name(), engine.version());
        if version.is_empty() { name.to_owned() } else { format!("{name} ({version})") }
    });
    let absent = found.absent.iter().map(|(name, _)| format!("{name} (absent)"));
    present.chain(absent).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_names_commit_target_and_engines() {
        let text = text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("postern {VERSION}"));
        assert!(lines[1].len() > "commit: ".len() && lines[2].contains('-'), "{text}");
        assert!(lines[3].starts_with("engines: aws-lc (") && lines[3].contains("openssl ("), "{text}");
    }
}
