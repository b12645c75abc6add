//! `/etc/resolv.conf`, where no program manages it: replaced, and put back.
//!
//! The former file, or link, is kept beside it from before the first change until it is back. A process that is killed leaves both; the
//! next one finds them. A second process keeps the file of the first as its former file: whichever ends first, the original comes back.

use super::Request;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "resolv.conf";
/// The file, for errors.
pub(super) const NAMED: &str = "/etc/resolv.conf";
/// What the former file is called, with the name of the interface behind it.
const FORMER: &str = "resolv.conf.before-";
/// The first words of our file.
const HEADER: &str = "# postern openvpn: name servers of";

/// The folder that has the file.
pub(super) struct Folder(pub(super) PathBuf);

/// How a file came to be kept.
enum Kept {
    /// It was moved.
    Moved,
    /// It was copied: it is a mount point, as in containers, which cannot be moved.
    Copied,
}

impl Folder {
    fn file(&self) -> PathBuf {
        self.0.join(NAME)
    }

    fn former(&self, interface: &str) -> PathBuf {
        self.0.join(format!("{FORMER}{interface}"))
    }

    /// The former file of another interface, if that is ours, of this interface.
    fn covered(&self, interface: &str) -> Option<PathBuf> {
        let others = self.interfaces().into_iter().filter(|other| other != interface);
        others.map(|other| self.former(&other)).find(|file| is_ours(file, interface))
    }

    /// Replaces the file.
    pub(super) fn set(&self, request: &Request) -> io::Result<()> {
        let (file, former) = (self.file(), self.former(&request.interface));
        if former.symlink_metadata().is_ok() {
            if is_ours(&file, &request.interface) {
                return self.write(&text(request));
            }
            // Another process has replaced ours since, and puts this back.
            if let Some(covered) = self.covered(&request.interface) {
                return disk::write(&covered, &readable(text(request).as_bytes()));
            }
        }
        let kept = match fs::rename(&file, &former) {
            Ok(()) => Kept::Moved,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // To the C library, an empty file is the same as none.
                disk::write(&former, &readable(b""))?;
                Kept::Moved
            }
            Err(error) if is_mount_point(&error) => {
                disk::write(&former, &readable(&fs::read(&file)?))?;
                Kept::Copied
            }
            Err(error) => return Err(error),
        };
        let written = self.write(&text(request));
        if written.is_err() && matches!(kept, Kept::Moved) {
            fs::rename(&former, &file)?;
        }
        written
    }

    /// A mount point is written in place.
    fn write(&self, text: &str) -> io::Result<()> {
        match disk::write(&self.file(), &readable(text.as_bytes())) {
            Err(error) if is_mount_point(&error) => fs::write(self.file(), text),
            done => done,
        }
    }

    /// Puts the former file back in place of ours, wherever that is; whether ours was there. Another program may have replaced it.
    pub(super) fn put_back(&self, interface: &str) -> io::Result<bool> {
        let (file, former) = (self.file(), self.former(interface));
        if former.symlink_metadata().is_err() {
            return Ok(false);
        }
        // Another network namespace may have its own file, and share the folder.
        if file.symlink_metadata().is_ok() && !is_ours(&file, interface) {
            let Some(covered) = self.covered(interface) else { return Ok(false) };
            return fs::rename(&former, &covered).map(|()| true);
        }
        match fs::rename(&former, &file) {
            Err(error) if is_mount_point(&error) => {
                fs::write(&file, fs::read(&former)?)?;
                fs::remove_file(&former)?;
            }
            done => done?,
        }
        Ok(true)
    }

    /// The interfaces of which a former file is kept.
    pub(super) fn interfaces(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix(FORMER).map(str::to_owned)).collect()
    }
}

/// Whether a file is ours, of this interface.
fn is_ours(file: &Path, interface: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().next() == Some(&format!("{HEADER} {interface}"))
}

fn readable(bytes: &[u8]) -> disk::Wanted<'_> {
    disk::Wanted { mode: 0o644, ..disk::Wanted::private(bytes) }
}

fn is_mount_point(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::BUSY | Errno::XDEV))
}

/// The file, resolv.conf(5).
pub(super) fn text(request: &Request) -> String {
    let mut lines = vec![format!("{HEADER} {}", request.interface)];
    lines.extend(request.servers.iter().map(|(address, _)| format!("nameserver {address}")));
    if !request.search.is_empty() {
        lines.push(format!("search {}", request.search.join(" ")));
    }
    lines.join("\n") + "\n"
}
