//! The process that copies each revision to the locations of `system config-management commit-archive`.
//!
//! ```text
//! commit ──> archive folder ── inotify ──> newest revision: locations ──> missing copies ── scp, curl, file ──> location
//!                                                                 └──> the file that `show system commit` reads
//! ```
//!
//! It reads the files of the daemon, and the daemon never waits for it. The daemon may start no program; this process is started
//! before the daemon gives up its rights, and ends with it.

mod copies;
mod transfer;

use crate::service_user::User;
use crate::{Failure, Outcome, child, log, privilege};
use caps::{CapSet, Capability, CapsHashSet};
use clap::Args;
use copies::Copies;
pub(crate) use copies::{shown, status_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the folder is looked at although nothing was heard of it.
const LOOKED_AT: Duration = Duration::from_secs(60);
/// How often a folder is looked for that is not there yet.
const MISSING: Duration = Duration::from_secs(5);
/// Where copies may go without --copies.
const FOLDERS: [&str; 2] = ["/config", "/var/backups"];

#[derive(Args)]
pub(crate) struct Arguments {
    /// The state folder of the daemon
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The file for the state of the copies
    #[arg(long, value_name = "FILE")]
    status: PathBuf,
    #[command(flatten)]
    allowed: Folders,
    /// Whether the end of the standard input ends it
    #[arg(long)]
    until_end_of_input: bool,
}

/// The folders that root allows.
#[derive(Args, Clone)]
pub(crate) struct Folders {
    /// Folders of this machine that may have copies of commits, with the folders below them
    #[arg(long, value_name = "DIR", default_values = FOLDERS)]
    copies: Vec<PathBuf>,
}

impl Default for Folders {
    fn default() -> Self {
        Self { copies: FOLDERS.map(PathBuf::from).to_vec() }
    }
}

/// Starts the process, which ends when the returned socket is closed. The group of `user` may read the state of the copies.
pub(crate) fn start(
    state: &Path,
    api: &Path,
    allowed: &Folders,
    user: Option<&User>,
) -> Result<UnixStream, Failure> {
    let mut command = child::command("archiver");
    command.arg("--until-end-of-input").arg("--state").arg(std::path::absolute(state)?);
    command.arg("--status").arg(status_of(&std::path::absolute(api)?));
    for folder in &allowed.copies {
        command.arg("--copies").arg(std::path::absolute(folder)?);
    }
    if let Some(user) = user {
        command.gid(user.gid());
    }
    child::start(&mut command, "copies revisions")
}

/// Copies until the standard input ends.
pub(crate) fn serve(arguments: &Arguments) -> Outcome {
    log::start()?;
    keep_few_rights()?;
    privilege::forbid_dumps()?;
    let ended = arguments.until_end_of_input.then(|| Ended(io::stdin().as_fd().try_clone_to_owned().ok()));
    let ended = ended.unwrap_or(Ended(None));
    let archive = arguments.state.join("archive");
    let allowed = arguments.allowed.copies.iter().map(|folder| disk::normalized(folder));
    let allowed = allowed.collect::<io::Result<Vec<PathBuf>>>()?;
    let mut copies = Copies::open(arguments.state.clone(), arguments.status.clone(), allowed);
    let mut watch = None;
    tracing::debug!("copies of {} are made", archive.display());
    while !ended.is() {
        watch = watch.or_else(|| watched(&archive).ok());
        let next = copies.work(&|| ended.is());
        let longest = if watch.is_some() { LOOKED_AT } else { MISSING };
        wait(watch.as_ref(), &ended, next.map_or(longest, |next| next.min(longest)))?;
        if watch.as_ref().is_some_and(drain) {
            watch = None;
        }
    }
    copies.forget_status();
    Ok(())
}

/// The other end of the standard input.
struct Ended(Option<OwnedFd>);

impl Ended {
    fn is(&self) -> bool {
        let Some(input) = &self.0 else { return false };
        let mut polled = [PollFd::new(input, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// Reads the state folder of the daemon's user, and writes there and to folders of others; all else is root's by its files.
fn keep_few_rights() -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let kept = CapsHashSet::from([Capability::CAP_DAC_READ_SEARCH, Capability::CAP_DAC_OVERRIDE]);
    let had = caps::read(None, CapSet::Permitted)?;
    for capability in caps::read(None, CapSet::Bounding)?.difference(&kept) {
        caps::drop(None, CapSet::Bounding, *capability)?;
    }
    let kept: CapsHashSet = had.intersection(&kept).copied().collect();
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Hears of files that come into a folder.
fn watched(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::MOVED_TO | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR;
    inotify::add_watch(&watch, folder, flags)?;
    Ok(watch)
}

fn wait(watch: Option<&OwnedFd>, ended: &Ended, longest: Duration) -> Outcome {
    let fds = watch.into_iter().chain(&ended.0);
    let mut polled: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout =
        Timespec { tv_sec: longest.as_secs().cast_signed(), tv_nsec: longest.subsec_nanos().into() };
    match poll(&mut polled, Some(&timeout)) {
        Err(Errno::INTR) | Ok(_) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Reads the events; whether the folder itself was replaced, as by a restored backup.
fn drain(watch: &OwnedFd) -> bool {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let mut is_gone = false;
    while let Ok(event) = reader.next() {
        is_gone |= event.events().intersects(
            inotify::ReadFlags::MOVE_SELF | inotify::ReadFlags::DELETE_SELF | inotify::ReadFlags::IGNORED,
        );
    }
    is_gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_replaced_is_watched_again() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("archive");
        std::fs::create_dir(&folder).expect("ours");
        let watch = watched(&folder).expect("it is there");
        assert!(!drain(&watch));
        std::fs::write(state.path().join("a"), "").expect("ours");
        std::fs::rename(state.path().join("a"), folder.join("a")).expect("ours");
        assert!(!drain(&watch), "a file came");
        std::fs::rename(&folder, state.path().join("before")).expect("ours");
        assert!(drain(&watch));
        assert!(watched(&folder).is_err());
    }
}
