//! Carries one copy to a location, and explains why it could not.

use crate::transfer::Way;
use config::Text;
use config::schema::Location;
use disk::{Folder, Wanted};
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Why a copy did not arrive, and how to mend that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) why: String,
    pub(super) fix: String,
}

impl Problem {
    pub(super) fn new(why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { why: why.into(), fix: fix.into() }
    }
}

/// A copy on its way.
pub(super) struct Copy<'a> {
    /// Its name in each location.
    pub(super) name: &'a str,
    /// The configuration.
    pub(super) text: &'a Text,
}

/// Where copies may go.
pub(super) struct Routes<'a> {
    /// The folders of this machine that may have copies, with those below them.
    pub(super) allowed: &'a [PathBuf],
    /// The address that copies are sent from.
    pub(super) source: Option<IpAddr>,
    /// Whether to give up now.
    pub(super) ended: &'a dyn Fn() -> bool,
}

impl Routes<'_> {
    /// Carries a copy to a location.
    pub(super) fn send(&self, location: &Location, copy: &Copy<'_>) -> Result<(), Problem> {
        let Location::Folder(folder) = location else {
            let way = Way { location, source: self.source, unattended: Some(self.ended) };
            return way.put(Some(copy.name), copy.text).map_err(|said| explained(location, &said));
        };
        let failed = |error: io::Error| unwritable(folder, &error);
        let path = disk::normalized(Path::new(folder)).map_err(failed)?;
        if !self.allowed.iter().any(|allowed| path.starts_with(allowed)) {
            return Err(self.outside(folder));
        }
        let folder = Folder::open(&path).map_err(failed)?;
        folder.write(OsStr::new(copy.name), &Wanted::private(copy.text.bytes())).map_err(failed)
    }

    /// A commit could otherwise put a file of root into any folder: some programs read all files of a folder, and run them.
    fn outside(&self, folder: &str) -> Problem {
        let allowed: Vec<String> = self.allowed.iter().map(|folder| folder.display().to_string()).collect();
        Problem::new(
            format!("{folder} is in none of the folders for copies: {}", allowed.join(", ")),
            format!(
                "if copies belong there, add --copies {folder} to postern run, or to postern-archiver.service"
            ),
        )
    }
}

fn unwritable(folder: &str, error: &io::Error) -> Problem {
    let fix = match error.kind() {
        io::ErrorKind::NotFound => format!("mkdir -p {folder}"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("make room in {folder}"),
        _ => format!("make {folder} writable for root"),
    };
    Problem::new(format!("{folder}: {error}"), fix)
}

/// The message of a program as a cause and a remedy.
fn explained(location: &Location, said: &str) -> Problem {
    if let Some((why, fix)) = said.split_once("\n  fix: ") {
        return Problem::new(why, fix);
    }
    // scp adds that line to the message of ssh.
    let mut causes = said.lines().map(str::trim).filter(|line| *line != "scp: Connection closed");
    let last = causes.next_back().unwrap_or("the connection was closed").to_owned();
    let Location::Scp { user, host, port, folder } = location else {
        return Problem::new(last, "try the same with curl --upload-file");
    };
    let at = user.as_ref().map_or_else(|| host.clone(), |user| format!("{user}@{host}"));
    let with_port = |option: &str| port.map(|port| format!("{option} {port} ")).unwrap_or_default();
    if said.contains("Host key verification failed") || said.contains("No ED25519 host key is known") {
        let why = if said.contains("HAS CHANGED") {
            "the host key has changed"
        } else {
            "the host key is not known"
        };
        let fix = format!(
            "compare it with that of the machine, then as root: ssh-keyscan {}{host} >> ~/.ssh/known_hosts",
            with_port("-p")
        );
        return Problem::new(format!("{why}: {host}"), fix);
    }
    if said.contains("Permission denied (") || said.contains("Too many authentication failures") {
        let fix = format!("as root: ssh-keygen if there is no key, then ssh-copy-id {}{at}", with_port("-p"));
        return Problem::new(format!("{at} accepts no key of root"), fix);
    }
    if said.contains("No such file or directory") {
        return Problem::new(last, format!("ssh {}{at} mkdir -p {folder}", with_port("-p")));
    }
    Problem::new(last, format!("try it as root: sftp {}{at}", with_port("-P")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Sends a copy to a folder beside or below the folder `allowed`.
    fn routed(name: &str, prepare: impl Fn(&Path)) -> Result<tempfile::TempDir, Problem> {
        let place = tempfile::tempdir().expect("a folder");
        let allowed = [place.path().join("allowed")];
        for folder in ["allowed", "other", "allowedx"] {
            fs::create_dir(place.path().join(folder)).expect("ours");
        }
        prepare(place.path());
        let routes = Routes { allowed: &allowed, source: None, ended: &|| false };
        let location = Location::Folder(place.path().join(name).display().to_string());
        let copy = Copy { name: "config.boot-a", text: &Text::default() };
        let sent = routes.send(&location, &copy);
        assert!(!place.path().join("other/config.boot-a").exists(), "{name}");
        sent.map(|()| place)
    }

    #[test]
    fn copies_stay_in_the_folders_that_root_allows() {
        let nothing = |_: &Path| ();
        let place = routed("allowed", nothing).expect("allowed");
        assert!(place.path().join("allowed/config.boot-a").exists());
        for name in ["other", "allowedx", "allowed/../other", "."] {
            let problem = routed(name, nothing).expect_err(name);
            assert!(problem.why.contains("is in none of the folders for copies"), "{problem:?}");
            assert!(problem.fix.contains("--copies "), "{problem:?}");
        }
        // A folder that the daemon of another user can change.
        let linked = |place: &Path| {
            let theirs = place.join("allowed/theirs");
            fs::create_dir(&theirs).expect("ours");
            fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).expect("ours");
            symlink(place.join("other"), theirs.join("link")).expect("ours");
        };
        let problem = routed("allowed/theirs/link", linked).expect_err("a link");
        assert!(problem.why.contains("is a link"), "{problem:?}");
    }

    #[test]
    fn what_scp_says_becomes_a_cause_and_a_fix() {
        let location = Location::parse("scp://vyos@backup.example.org:2222/a").expect("right");
        for (said, why, fix) in [
            (
                "No ED25519 host key is known for x and you have requested strict checking.\nHost key verification failed.",
                "is not known",
                "ssh-keyscan -p 2222 backup.example.org",
            ),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                "has changed",
                "ssh-keyscan",
            ),
            (
                "vyos@backup: Permission denied (publickey).",
                "accepts no key",
                "ssh-copy-id -p 2222 vyos@backup.example.org",
            ),
            (
                "scp is not installed\n  fix: apt-get install openssh-client",
                "not installed",
                "apt-get install openssh-client",
            ),
            ("scp: dest open \"/a/c\": No such file or directory", "No such file", "mkdir -p /a"),
            (
                "ssh: connect to host x port 22: Connection refused\r\nscp: Connection closed",
                "Connection refused",
                "sftp -P 2222 vyos@",
            ),
        ] {
            let problem = explained(&location, said);
            assert!(problem.why.contains(why) && problem.fix.contains(fix), "{problem:?}");
        }
    }
}
