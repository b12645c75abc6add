//! `postern backup`: the configuration of this machine, with all that it names, in one file.

use crate::passphrase::Passphrase;
use crate::{Failure, machine, output, place};
use ::backup::collect::{self, collect};
use ::backup::{Backup, Collected, Entry, pack};
use clap::Args;
use config::Text;
use crypto::{age, random};
use disk::Wanted;
use gateway::daemon::archive::revision;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Revisions that are backed up without `--revisions`.
const REVISIONS: usize = 20;

#[derive(Args)]
#[command(after_help = "\
The file is a tar file, encrypted with a passphrase in the format of age: `age -d FILE | tar x` reads it without Postern.
Scripts give the passphrase in --passphrase-file or in the environment variable POSTERN_PASSPHRASE.

exit codes: 0, all is in it; 1, something is not in it, as the output says; 2, there is no backup")]
pub(crate) struct Arguments {
    /// The new file; a folder, for a file named after this machine and the time; or - for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = place::CONFIG)]
    config: PathBuf,
    /// Where the daemon keeps its revisions, if not in its default folder
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// How many of the newest revisions are in it
    #[arg(long, value_name = "NUMBER", default_value_t = REVISIONS)]
    revisions: usize,
    /// Folders of scripts, which are in it as a whole if they are there
    #[arg(long, value_name = "DIR", default_value = machine::SCRIPTS)]
    scripts: Vec<PathBuf>,
    /// Another file, or all files in a folder
    #[arg(long, value_name = "PATH")]
    include: Vec<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    passphrase: Passphrase,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let wanted = wanted(arguments);
    let path = (arguments.file != Path::new("-")).then(|| named(&arguments.file, &wanted));
    if let Some(path) = path.as_deref().filter(|path| path.exists() && !arguments.force) {
        return Err(format!("{} is there already\n  fix: name another, or --force", path.display()).into());
    }
    if path.is_none() && io::IsTerminal::is_terminal(&io::stdout()) {
        return Err("a backup is not text for a terminal\n  fix: name a file, or write it into a pipe".into());
    }
    let Collected { backup, mut left } = collect(&wanted)?;
    left.extend(unsaved(&backup));
    let tar = pack(&backup)?;
    let is_plain = arguments.passphrase.no_passphrase;
    let sealed;
    let bytes = if is_plain {
        &tar[..]
    } else {
        let passphrase = arguments.passphrase.for_new()?;
        sealed = age::seal(&passphrase, affordable(), &tar, &mut random::System::default())?;
        &sealed[..]
    };
    let mut report = if let Some(path) = &path {
        disk::write(path, &Wanted::private(bytes)).map_err(|error| not_written(path, &error))?;
        format!("{}: ", path.display())
    } else {
        io::stdout().write_all(bytes).and_then(|()| io::stdout().flush())?;
        String::new()
    };
    let _ = writeln!(report, "{}, {}", counted(&backup), output::bytes(bytes.len() as u64));
    if is_plain {
        report.push_str("it is not encrypted: a user who can read the file has all keys\n");
    }
    report.extend(left.iter().map(|left| format!("not in it: {left}\n")));
    match path {
        Some(_) => print!("{report}"),
        None => eprint!("{report}"),
    }
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn wanted(arguments: &Arguments) -> collect::Wanted {
    let now = output::now();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    collect::Wanted {
        configuration: arguments.config.clone(),
        state: arguments.state.clone().unwrap_or_else(|| place::state_of(&arguments.config)),
        revisions: arguments.revisions,
        more: arguments.scripts.iter().chain(&arguments.include).cloned().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: output::timestamp(now),
        host,
    }
}

/// The file to write; in a folder, one named as VyOS names its archives.
fn named(file: &Path, wanted: &collect::Wanted) -> PathBuf {
    if !file.is_dir() {
        return file.to_owned();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let host: String = wanted.host.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    file.join(format!("postern-{host}.{}.backup", compact(&wanted.time)))
}

/// A time of RFC 3339 as 20261123_050000.
pub(crate) fn compact(time: &str) -> String {
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    let (day, second) = digits.split_at(digits.len().min(8));
    format!("{day}_{second}")
}

/// What has been committed and not saved.
fn unsaved(backup: &Backup) -> Option<String> {
    let newest = backup.entries.iter().max_by_key(|entry| entry.place.number())?;
    let (header, lines) = revision::parse(text_of(newest)).ok()?;
    let file = std::str::from_utf8(backup.configuration()?.content.bytes()).ok()?;
    let is_saved = config::parse(file).is_ok_and(|tree| config::print::text(&tree).bytes() == lines.bytes());
    (!is_saved).then(|| {
        format!(
            "revision {} as the configuration file: it was not saved, and is in it as a revision only\n  fix: postern configure -c \
             save, then back up again",
            header.revision
        )
    })
}

/// The content as text that is erased.
pub(crate) fn text_of(entry: &Entry) -> Text {
    let mut text = Text::default();
    let bytes = entry.content.bytes();
    let _ = text.write_str(std::str::from_utf8(bytes).unwrap_or_default());
    text
}

/// What a backup has, in numbers.
pub(crate) fn counted(backup: &Backup) -> String {
    let revisions = backup.entries.iter().filter(|entry| entry.place.number().is_some()).count();
    let files = backup.entries.iter().filter(|entry| entry.place.revision().is_none()).count();
    let some = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}", some(files, "file"), some(revisions, "revision"))
}

/// The work factor of scrypt that takes at most half of the memory that is free.
fn affordable() -> u8 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes: Option<u64> = available.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
    // It takes 1 KiB for each step.
    let fits = |factor: &u8| kibibytes.is_none_or(|free| 1 << factor <= free / 2);
    (age::LEAST_WORK_FACTOR..=age::WORK_FACTOR).rev().find(fits).unwrap_or(age::LEAST_WORK_FACTOR)
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let fix = match (error.kind(), folder) {
        (io::ErrorKind::NotFound, Some(folder)) => format!("\n  fix: mkdir -p {}", folder.display()),
        (io::ErrorKind::PermissionDenied, _) => "\n  fix: run this as root".to_owned(),
        _ => String::new(),
    };
    format!("{}: {error}{fix}", path.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_folder_is_named_after_the_machine_and_the_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = collect::Wanted {
            configuration: PathBuf::new(),
            state: PathBuf::new(),
            revisions: 0,
            more: Vec::new(),
            version: String::new(),
            time: "2026-11-23T05:06:07Z".to_owned(),
            host: "a/b.c".to_owned(),
        };
        let path = named(folder.path(), &wanted);
        assert_eq!(path, folder.path().join("postern-a_b.c.20261123_050607.backup"));
        assert_eq!(named(Path::new("/nonexistent/a"), &wanted), Path::new("/nonexistent/a"));
    }

    #[test]
    fn a_backup_is_for_its_owner_alone_and_never_half_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.backup");
        let write = |path: &Path, bytes| disk::write(path, &Wanted::private(bytes));
        write(&path, b"one").and_then(|()| write(&path, b"two")).expect("written");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert_eq!(std::fs::read(&path).expect("there"), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1);
        let missing = folder.path().join("no/such");
        let error = write(&missing, b"").expect_err("no folder");
        assert!(not_written(&missing, &error).to_string().contains("fix: mkdir -p "));
    }
}
