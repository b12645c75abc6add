//! `/etc/resolv.conf`, where no program manages it: replaced, and put back.
//!
//! The former file, or link, is kept beside it from before the first change until it is back. A process that is killed leaves both; the
//! next one finds them.

use super::Request;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::PathBuf;

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

    /// Whether the file is ours, of this interface.
    fn is_ours(&self, interface: &str) -> bool {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().next() == Some(&format!("{HEADER} {interface}"))
    }

    /// Replaces the file.
    pub(super) fn set(&self, request: &Request) -> io::Result<()> {
        let (file, former) = (self.file(), self.former(&request.interface));
        if self.is_ours(&request.interface) && former.symlink_metadata().is_ok() {
            return self.write(&text(request));
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

    /// Puts the former file back, unless another program has replaced ours.
    pub(super) fn put_back(&self, interface: &str) -> io::Result<bool> {
        let (file, former) = (self.file(), self.former(interface));
        if former.symlink_metadata().is_err() {
            return Ok(false);
        }
        // Another network namespace may have its own file, and share the folder.
        if file.symlink_metadata().is_ok() && !self.is_ours(interface) {
            return Ok(false);
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
