//! Commands that read a configuration from a file, and that write it to one, also on another machine.

use super::numbering::numbered;
use super::session::{Line, Reply, Session, listed, read};
use super::signals;
use crate::Failure;
use crate::transfer::Way;
use config::schema::Location;
use config::{Path as Place, Text, Tree, edit, print};
use disk::{Located, Wanted};
use gateway::api::model::{InForce, Saved, Unconfirmed};
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(super) fn load(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let (name, tree) = wanted(session, line, "load")?;
    session.candidate = tree;
    session.level = Place::default();
    Ok(Reply::says(loaded(&name)))
}

pub(super) fn merge(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let (name, tree) = wanted(session, line, "merge")?;
    edit::merge(&mut session.candidate, &tree);
    Ok(Reply::says(loaded(&name)))
}

fn loaded(name: &str) -> String {
    format!(
        "Loading configuration from '{name}'...\nLoad complete. Use 'commit' to make changes effective.\n"
    )
}

/// The configuration that a line names: of a file, of a URL, or a revision.
fn wanted(session: &Session, line: &Line<'_>, verb: &str) -> Result<(String, Tree), Failure> {
    match line.words[..] {
        [] if verb == "load" => Ok((session.file.clone(), read_tree(&session.file)?)),
        ["revision", number] => {
            let own = numbered(&session.router.revisions()?, number)?;
            Ok((format!("revision {number}"), read(session.router.revision(own)?.text.as_str())?))
        }
        [name] => Ok((name.to_owned(), read_tree(name)?)),
        _ => Err(format!("which file?\n  fix: {verb} FILE, {verb} URL, or {verb} revision 1").into()),
    }
}

/// The configuration in a file, or at a URL.
pub(super) fn read_tree(name: &str) -> Result<Tree, Failure> {
    let text = match Target::of(name)? {
        Target::Elsewhere(location) => way(&location).get()?,
        Target::File(path) => Text::read(&path).map_err(|error| format!("{name}: {error}"))?,
    };
    let text = text.as_str().map_err(|error| format!("{name}: {error}"))?;
    config::parse(text).map_err(|errors| {
        format!("{}Failed to parse specified config file", listed(&errors, name, text)).into()
    })
}

pub(super) fn save(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let name = match line.words[..] {
        [] => session.file.clone(),
        [name] => name.to_owned(),
        _ => return Err("which file?\n  fix: save, save FILE, or save URL".into()),
    };
    let now = session.router.in_force()?;
    let is_own = is_same(&name, &now.file);
    if let Some(pending) = now.confirm.as_ref().filter(|_| is_own) {
        return Err(unconfirmed(pending).into());
    }
    let mut warning = String::new();
    if session.is_changed() {
        warning += "Warning: you have uncommitted changes that will not be saved.\n\n";
    }
    if !now.refused.is_empty() {
        let places = now.refused.join(", ");
        let fix = "fix: see postern status; then postern reload, or a commit that changes it";
        let _ = write!(warning, "Warning: {places}: saved, but not in force, as it was refused\n  {fix}\n\n");
    }
    let text = written(&now, &name)?;
    match Target::of(&name)? {
        Target::Elsewhere(location) => way(&location).put(None, &text)?,
        Target::File(path) => replace(&path, &text).map_err(|error| not_written(&name, &error))?,
    }
    if is_own {
        session.router.saved(&Saved { hash: hash(&text), revision: now.revision })?;
        session.is_saved = true;
    }
    Ok(Reply::says(format!("{warning}Saving configuration to '{name}'...\nDone\n")))
}

/// The error while what is in force may be undone.
fn unconfirmed(open: &Unconfirmed) -> String {
    let minutes = open.seconds_left.div_ceil(60);
    match &open.failed {
        None => {
            format!(
                "the last commit is not confirmed\n  fix: type confirm, or wait {minutes} minutes until it is undone"
            )
        }
        Some(why) => format!("the last commit is not confirmed, and could not be undone yet: {why}"),
    }
}

fn is_same(name: &str, other: &str) -> bool {
    let real = |name: &str| fs::canonicalize(name).ok();
    name == other || real(name).is_some_and(|found| Some(found) == real(other))
}

/// Writes what is in force to a file; SHA-256 of the file, in hexadecimal.
pub(crate) fn write_in_force(now: &InForce, name: &str) -> io::Result<String> {
    let text = written(now, name).map_err(|error| io::Error::other(error.to_string()))?;
    replace(Path::new(name), &text)?;
    Ok(hash(&text))
}

fn hash(text: &Text) -> String {
    crypto::hash::sha256(&[text.bytes()]).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a file: in braces if it is in braces now, or will be read by a router of another kind.
fn written(now: &InForce, name: &str) -> Result<Text, Failure> {
    let had = Text::read(Path::new(name)).ok();
    let is_in_braces =
        match had.as_ref().and_then(|text| text.as_str().ok()).filter(|text| !text.trim().is_empty()) {
            Some(text) => config::is_in_braces(text),
            None => Path::new(name).extension().is_some_and(|kind| kind == "boot"),
        };
    let tree = read(now.text.as_str())?;
    if !is_in_braces {
        return Ok(print::text(&tree));
    }
    let mut text = Text::default();
    // It grows as it must.
    let _ = text.write_str(&zeroize::Zeroizing::new(print::braces(&tree, true)));
    Ok(text)
}

fn not_written(name: &str, error: &io::Error) -> Failure {
    let folder = Path::new(name).parent().filter(|folder| !folder.as_os_str().is_empty());
    let fix = match (error.kind(), folder) {
        (io::ErrorKind::NotFound, Some(folder)) => format!("\n  fix: mkdir -p {}", folder.display()),
        (io::ErrorKind::PermissionDenied, _) => "\n  fix: run this as root".to_owned(),
        _ => String::new(),
    };
    format!("{name}: {error}{fix}").into()
}

/// Replaces a file in one step, durably. Its owner and its mode stay, but for what others may do, as it has secrets; a new
/// one is for its owner alone. A link stays a link, but one that another user may have made is refused.
fn replace(path: &Path, text: &Text) -> io::Result<()> {
    let Located { folder, name } = disk::locate(path)?;
    let mut wanted = Wanted::private(text.bytes());
    match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(like) => {
            wanted.mode = like.st_mode & 0o770;
            wanted.owner = (Some(like.st_uid), Some(like.st_gid));
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    folder.write(&name, &wanted)
}

/// The place of a configuration.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    File(PathBuf),
    Elsewhere(Location),
}

impl Target {
    /// The place that a URL names, or the name of a file.
    fn of(name: &str) -> Result<Self, Failure> {
        if !name.contains("://") {
            return Ok(Self::File(PathBuf::from(name)));
        }
        match Location::parse(name) {
            Ok(Location::Folder(path)) => Ok(Self::File(path.into())),
            Ok(location) => Ok(Self::Elsewhere(location)),
            Err(why) => {
                let fix = if name.contains('@') {
                    "for scp use a key: ssh-copy-id user@host; for http and ftp a .netrc file"
                } else {
                    "scp://user@host/path, or a URL of sftp, http, https or ftp"
                };
                Err(format!("{why}\n  fix: {fix}").into())
            }
        }
    }
}

fn way(location: &Location) -> Way<'_> {
    Way { location, source: None, unattended: None }
}

/// Makes a folder that only this user can use. A signal that ends the program removes it.
pub(super) fn private_folder() -> io::Result<PathBuf> {
    let place = place_of_folders();
    let mut number = 0;
    loop {
        let folder = place.join(format!("postern-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {
                signals::note(&folder);
                return Ok(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The folder of this user that is in memory and goes with the login, or else that of all users.
fn place_of_folders() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| {
        fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
    });
    own.unwrap_or_else(std::env::temp_dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_url_names_another_machine_and_has_no_password_and_no_option() {
        let file = |path: &str| Target::File(path.into());
        assert_eq!(
            Target::of("/etc/postern/postern.conf").expect("valid"),
            file("/etc/postern/postern.conf")
        );
        assert_eq!(Target::of("file:///a").expect("valid"), file("/a"));
        for right in ["scp://vyos@192.0.2.1/config/a.boot", "sftp://[2001:db8::1]:2222/a", "https://a/b"] {
            assert!(matches!(Target::of(right), Ok(Target::Elsewhere(_))), "{right}");
        }
        for wrong in [
            "tftp://a/b",
            "scp://a",
            "scp://a:hunter2@c/d",
            "ftp://a:hunter2@c/d",
            "https://a:hunter2@c",
            // curl takes further slashes for none.
            "http:///a:hunter2@c/d",
            "scp://-oProxyCommand=x/d",
            "scp://a@-oProxyCommand=x/d",
            "scp://a/$(reboot)",
            "http://a/b\nc",
        ] {
            let error = Target::of(wrong).expect_err(wrong).to_string();
            assert!(error.contains("\n  fix: ") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_file_is_replaced_with_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.conf");
        let text = |words: &str| {
            let mut text = Text::default();
            text.write_str(words).expect("it grows");
            text
        };
        replace(&path, &text("one")).expect("written");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        let link = folder.path().join("link.conf");
        std::os::unix::fs::symlink(&path, &link).expect("made");
        replace(&link, &text("two")).expect("written");
        assert_eq!((fs::read_to_string(&path).expect("there").as_str(), link.is_symlink()), ("two", true));
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2, "nothing is left over");
    }
}
