//! `postern restore`: writes the files of a backup. Everything is read, checked and shown before the first byte is written.

use crate::backup::{compact, counted, text_of};
use crate::passphrase::Passphrase;
use crate::{Failure, client, output, place, reload};
use ::backup::owner::Owners;
use ::backup::restore::{Change, Plan, Step, Target, plan};
use ::backup::{Backup, entry, unpack};
use clap::Args;
use config::Settings;
use crypto::age;
use gateway::api::model::{ReloadOutcome, Reloaded};
use gateway::daemon::archive::revision;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zeroize::Zeroizing;

/// Bytes of a file that is read: what a backup may have, and what is around it.
const LARGEST: u64 = entry::LARGEST_SUM + (64 << 20);
/// Where files may be written without --allow.
const FOLDERS: [&str; 2] = ["/config", "/etc/postern"];

#[derive(Args)]
#[command(after_help = "\
Nothing is written before all of the backup was read and checked, and its configuration with this version of Postern. Each file is
replaced in one step, the configuration last; what was there before stays beside it as NAME.before-TIME.
Scripts give the passphrase in --passphrase-file or in the environment variable POSTERN_PASSPHRASE.

exit codes: 0, all is restored; 1, something is not, as the output says; 2, nothing was changed, or the output says what was")]
#[expect(clippy::struct_excessive_bools, reason = "they are options of a command line")]
pub(crate) struct Arguments {
    /// The backup, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only list what is in the backup
    #[arg(long, conflicts_with_all = ["check", "yes", "reload"])]
    list: bool,
    /// Only say what would be done
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["yes", "reload"])]
    check: bool,
    /// Replace files without asking
    #[arg(short, long)]
    yes: bool,
    /// Have the daemon put the configuration in force
    #[arg(long)]
    reload: bool,
    /// The configuration file, if not where it was
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the daemon keeps its revisions, if not in its default folder
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Leave the revisions of this machine, and the certificate that its HTTPS server has made, as they are
    #[arg(long)]
    no_revisions: bool,
    /// A folder in which files may be written, beside /config and /etc/postern
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Where the API of the daemon listens
    #[arg(long, value_name = "SOCKET", default_value = place::API)]
    api: PathBuf,
    #[command(flatten)]
    passphrase: Passphrase,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let backup = read(arguments)?;
    if arguments.list {
        print!("{}", listed(&backup));
        return Ok(ExitCode::SUCCESS);
    }
    let warnings = check(&backup)?;
    let target = target(arguments, &backup)?;
    let plan = plan(&backup, &target)?;
    let left: Vec<String> = plan.left.iter().chain(&warnings).cloned().collect();
    print!("{}{}", heading(&backup), described(&plan));
    if arguments.check {
        println!("{}nothing was changed", notes(&left));
        return Ok(status(&left));
    }
    if plan.replaces() && !arguments.yes {
        confirm(&plan)?;
    }
    plan.carry_out(&mut |_| ())?;
    print!("{}", notes(&left));
    let is_in_force = finish(arguments)?;
    Ok(if is_in_force { status(&left) } else { ExitCode::from(1) })
}

fn status(left: &[String]) -> ExitCode {
    if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Reads a backup: decrypted, and all of it checked.
fn read(arguments: &Arguments) -> Result<Backup, Failure> {
    let name = if arguments.file == Path::new("-") {
        "standard input".to_owned()
    } else {
        arguments.file.display().to_string()
    };
    let file = whole(&arguments.file).map_err(|error| format!("{name}: {error}"))?;
    let tar = if arguments.passphrase.no_passphrase {
        if age::is_age(&file) {
            return Err(format!("{name} is encrypted\n  fix: restore it without --no-passphrase").into());
        }
        file
    } else {
        age::work_factor(&file).map_err(|error| format!("{name}: {error}{}", plain(&error)))?;
        age::open(&arguments.passphrase.of_old()?, &file).map_err(|error| format!("{name}: {error}"))?
    };
    unpack(&tar).map_err(|error| format!("{name}: {error}").into())
}

fn plain(error: &age::AgeError) -> &'static str {
    // An attacker who can replace the file could replace it by one that is not encrypted.
    if *error == age::AgeError::NotAge {
        "\n  fix: if it is a tar file that you trust: --no-passphrase"
    } else {
        ""
    }
}

fn whole(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes)?
    } else {
        let file = File::open(path)?;
        bytes.reserve_exact(file.metadata()?.len().min(LARGEST) as usize + 1);
        file.take(LARGEST + 1).read_to_end(&mut bytes)?
    };
    if read as u64 > LARGEST {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MiB", LARGEST >> 20),
        ));
    }
    Ok(bytes)
}

/// Checks the configuration and the revisions with this version; what a person should know about them.
fn check(backup: &Backup) -> Result<Vec<String>, Failure> {
    let configuration = backup.configuration().ok_or("there is no configuration in the backup")?;
    let text = std::str::from_utf8(configuration.content.bytes())
        .map_err(|error| format!("{}: {error}", backup.configuration))?;
    let checked = config::parse(text).and_then(|tree| Settings::new(&tree));
    checked.map_err(|errors| {
        let errors: Vec<String> =
            errors.iter().map(|error| error.in_text(&backup.configuration, text).to_string()).collect();
        format!(
            "{}\nthis version of Postern cannot serve the configuration of the backup, so nothing was changed\n  fix: install version \
             {}, or mend the file: age -d BACKUP | tar x",
            errors.join("\n"),
            backup.version
        )
    })?;
    let revisions = backup.entries.iter().filter_map(|entry| Some((entry.place.number()?, entry)));
    let damaged = revisions.filter(|(_, entry)| revision::parse(text_of(entry)).is_err());
    Ok(damaged.map(|(number, _)| format!("revision {number} was damaged before it was backed up")).collect())
}

fn target(arguments: &Arguments, backup: &Backup) -> Result<Target, Failure> {
    let folders: Vec<PathBuf> =
        FOLDERS.iter().map(PathBuf::from).chain(arguments.allow.iter().cloned()).collect();
    let configuration = match &arguments.config {
        Some(named) => std::path::absolute(named)?,
        None => PathBuf::from(&backup.configuration),
    };
    let is_known = folders.iter().any(|folder| configuration.starts_with(folder));
    if arguments.config.is_none() && !is_known {
        let at = &backup.configuration;
        return Err(
            format!("the configuration was in {at}\n  fix: to restore it there: --config {at}").into()
        );
    }
    let state = arguments.state.clone().unwrap_or_else(|| place::state_of(&configuration));
    let now = output::now();
    Ok(Target {
        state: (!arguments.no_revisions).then_some(state),
        configuration,
        folders,
        owners: Owners::here(),
        is_root: rustix::process::geteuid().is_root(),
        stamp: compact(&output::timestamp(now)),
    })
}

fn heading(backup: &Backup) -> String {
    let Backup { version, time, host, .. } = backup;
    format!("backup of {host}, made at {time} by Postern {version}: {}\n", counted(backup))
}

fn listed(backup: &Backup) -> String {
    let mut text = heading(backup);
    for entry in &backup.entries {
        let size = output::bytes(entry.content.bytes().len() as u64);
        let owner = format!("{}:{}", entry.user, entry.group);
        let place = entry.place.path().map_or_else(|| entry.place.to_string(), str::to_owned);
        let _ = writeln!(text, "  {:04o} {owner:<16} {size:>10}  {place}", entry.mode);
    }
    text
}

fn described(plan: &Plan<'_>) -> String {
    let mut text = String::new();
    if !plan.revisions.is_empty() {
        let before = plan
            .archive_before()
            .map_or_else(String::new, |aside| format!(", those before: {}", aside.display()));
        let _ = writeln!(text, "  revisions  {}{before}", plan.revisions.len());
    }
    if !plan.certificate.is_empty() {
        let before = plan.certificate_before();
        let before = before.map_or_else(String::new, |aside| format!(", that before: {}", aside.display()));
        let _ = writeln!(text, "  certificate of HTTPS{before}");
    }
    for Step { path, change, .. } in &plan.steps {
        let path = path.display();
        let _ = match change {
            Change::New => writeln!(text, "  new        {path}"),
            Change::Same => writeln!(text, "  unchanged  {path}"),
            Change::Replaced(aside) => writeln!(text, "  replaced   {path}, before: {}", aside.display()),
        };
    }
    text
}

fn notes(left: &[String]) -> String {
    left.iter().map(|left| format!("not as it was: {left}\n")).collect()
}

/// Asks whether files that are there may be replaced.
fn confirm(plan: &Plan<'_>) -> Result<(), Failure> {
    let count = plan.steps.iter().filter(|step| matches!(step.change, Change::Replaced(_))).count();
    let archive = plan.archive_before().map_or("", |_| ", and the revisions");
    let certificate = plan.certificate_before().map_or("", |_| ", and the certificate of HTTPS");
    let what =
        format!("this replaces {count} file{}{archive}{certificate}", if count == 1 { "" } else { "s" });
    if !io::stdin().is_terminal() {
        return Err(format!("{what}; nothing was changed\n  fix: --yes, if that is intended").into());
    }
    eprint!("{what}. Replace? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().take(100).read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err("nothing was changed".into()),
    }
}

/// Has the daemon read the configuration, or says how to.
fn finish(arguments: &Arguments) -> Result<bool, Failure> {
    if arguments.reload {
        let reloaded: Reloaded = client::tell(&arguments.api, "/v1/reload", &())
            .map_err(|error| format!("restored, and not in force: {error}"))?;
        print!("{}", reload::text(&reloaded, &arguments.api));
        return Ok(reloaded.outcome == ReloadOutcome::InForce);
    }
    let is_served = std::os::unix::net::UnixStream::connect(&arguments.api).is_ok();
    let next = if is_served { "postern reload" } else { "systemctl start postern, or postern run" };
    println!("restored, and not in force\n  fix: {next}");
    Ok(true)
}
