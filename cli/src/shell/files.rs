//! Commands that read a configuration from a file, and that write it to one. What is elsewhere is fetched and sent by the programs
//! for that.

use super::numbering::numbered;
use super::session::{Line, Reply, Session, listed, read};
use super::signals;
use crate::Failure;
use config::{Path as Place, Text, Tree, edit, print};
use gateway::api::model::{InForce, Saved, Unconfirmed};
use rustix::process::geteuid;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    let text = match Transfer::of(name)? {
        Some(transfer) => transfer.fetch()?,
        None => Text::read(Path::new(name)).map_err(|error| format!("{name}: {error}"))?,
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
    let warning = if session.is_changed() {
        "Warning: you have uncommitted changes that will not be saved.\n\n"
    } else {
        ""
    };
    let text = written(&now, &name)?;
    match Transfer::of(&name)? {
        Some(transfer) => transfer.send(&text)?,
        None => replace(Path::new(&name), &text).map_err(|error| not_written(&name, &error))?,
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
/// one is for its owner alone.
fn replace(path: &Path, text: &Text) -> io::Result<()> {
    // A link stays a link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = folder.join(format!(".{name}.{}", std::process::id()));
    let made = write_to(&fresh, fs::metadata(&path).ok().as_ref(), text)
        .and_then(|()| fs::rename(&fresh, &path))
        .and_then(|()| File::open(folder)?.sync_all());
    if made.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    made
}

fn write_to(path: &Path, like: Option<&fs::Metadata>, text: &Text) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.bytes())?;
    if let Some(like) = like {
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
        file.set_permissions(Permissions::from_mode(like.mode() & 0o770))?;
    }
    file.sync_all()
}

/// The place of a file on another machine.
#[derive(Debug, PartialEq, Eq)]
enum Transfer {
    /// `scp HOST:PATH`, with a port.
    Scp {
        place: String,
        port: Option<String>,
    },
    Curl {
        url: String,
    },
}

impl Transfer {
    /// The place that a URL names; none for the name of a file.
    fn of(name: &str) -> Result<Option<Self>, Failure> {
        let Some((scheme, rest)) = name.split_once("://") else { return Ok(None) };
        let (host, _) = rest.split_once('/').unwrap_or((rest, ""));
        if host.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err("a password in a URL would be visible to all users\n  \
                        fix: for scp use a key: ssh-copy-id user@host; for http and ftp a .netrc file"
                .into());
        }
        match scheme {
            "http" | "https" | "ftp" => Ok(Some(Self::Curl { url: name.to_owned() })),
            "scp" | "sftp" => Self::by_scp(rest).map(Some),
            _ => Err(format!(
                "{scheme}: URLs of this kind are not known\n  fix: use scp, sftp, http, https or ftp"
            )
            .into()),
        }
    }

    fn by_scp(rest: &str) -> Result<Self, Failure> {
        let (host, path) = rest.split_once('/').ok_or("the path is missing\n  fix: scp://user@host/path")?;
        if host.is_empty() || host.starts_with('-') {
            return Err("the host is missing\n  fix: scp://user@host/path".into());
        }
        // An IPv6 address stands in brackets, for scp too.
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() => {
                (host, Some(port.to_owned()))
            }
            _ => (host, None),
        };
        Ok(Self::Scp { place: format!("{host}:/{path}"), port })
    }

    fn fetch(&self) -> Result<Text, Failure> {
        let file = Temporary::new()?;
        let path = file.path.to_string_lossy();
        match self {
            Self::Scp { place, port } => run(scp(port.as_deref()).args(["--", place, &*path]))?,
            Self::Curl { url } => run(curl().args(["--output", &*path, "--", url]))?,
        }
        Ok(Text::read(&file.path)?)
    }

    fn send(&self, text: &Text) -> Result<(), Failure> {
        let file = Temporary::new()?;
        OpenOptions::new().write(true).open(&file.path)?.write_all(text.bytes())?;
        let path = file.path.to_string_lossy();
        match self {
            Self::Scp { place, port } => run(scp(port.as_deref()).args(["--", &*path, place])),
            Self::Curl { url } => run(curl().args(["--upload-file", &*path, "--", url])),
        }
    }
}

fn scp(port: Option<&str>) -> Command {
    let mut scp = Command::new("scp");
    // With -q it would not say why it fails. Its output, with the progress, is not shown.
    scp.args(["-o", "LogLevel=ERROR"]);
    if let Some(port) = port {
        scp.args(["-P", port]);
    }
    scp
}

fn curl() -> Command {
    let mut curl = Command::new("curl");
    // No other protocol by a redirection.
    curl.args([
        "--fail",
        "--silent",
        "--show-error",
        "--location",
        "--netrc-optional",
        "--proto",
        "=http,https,ftp",
    ]);
    curl
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.stdout(Stdio::null()).status().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{program}: there is no such program\n  fix: install the package {}", package(&program))
        }
        _ => format!("{program}: {error}"),
    })?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}").into()) }
}

fn package(program: &str) -> &str {
    if program == "scp" { "openssh-client" } else { program }
}

/// An empty file that only this user can read, in a folder of its own; removed at the end.
struct Temporary {
    folder: PathBuf,
    path: PathBuf,
}

impl Temporary {
    fn new() -> io::Result<Self> {
        let folder = private_folder()?;
        let path = folder.join("configuration");
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { folder, path })
    }
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

impl Drop for Temporary {
    fn drop(&mut self) {
        signals::remove(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_program_and_a_place() {
        let scp = |name: &str| Transfer::of(name).expect("valid").expect("a URL");
        assert_eq!(
            scp("scp://vyos@192.0.2.1/config/a.boot"),
            Transfer::Scp { place: "vyos@192.0.2.1:/config/a.boot".to_owned(), port: None }
        );
        assert_eq!(
            scp("sftp://[2001:db8::1]:2222/a"),
            Transfer::Scp { place: "[2001:db8::1]:/a".to_owned(), port: Some("2222".to_owned()) }
        );
        assert_eq!(scp("https://a/b"), Transfer::Curl { url: "https://a/b".to_owned() });
        assert_eq!(Transfer::of("/etc/postern/postern.conf").expect("valid"), None);
        for wrong in [
            "tftp://a/b",
            "scp://a",
            "scp://a:b@c/d",
            "ftp://a:b@c/d",
            "https://a:b@c",
            "scp://-oProxyCommand=x/d",
        ] {
            assert!(Transfer::of(wrong).is_err(), "{wrong}");
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
