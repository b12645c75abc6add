//! Files of the administrator that the daemon may have no right to: read and written for it.

use super::{Answer, DEFAULT_FILE, Hook, NO_FILE, OWN_FILE, Outcome, Program, Request, files};
use disk::Wanted;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The longest revocation list, the longest list of names, and the longest file of hashes.
const LONGEST: u64 = 16 << 20;
/// The exit status for a file that has not changed.
const UNCHANGED: i32 = 1;

/// Serves a request that is for a file; none if it is for a program.
pub(super) fn serve(program: &Program, request: &Request) -> Option<Answer> {
    let path = &program.path;
    let argument = request.arguments.first().map(String::as_str).unwrap_or_default();
    let answer = match request.hook {
        Hook::ClientFile => client_file(path, argument),
        Hook::Revocations => revocations(path, argument),
        Hook::PasswordHashes => password_hashes(path, argument),
        Hook::Leases => {
            let content = request.files.first().map(|file| file.content.as_slice()).unwrap_or_default();
            let written = disk::write(path, &Wanted::private(content));
            written.map(|()| Answer { outcome: Outcome::Ended(0), files: Vec::new() })
        }
        _ => return None,
    };
    Some(answer.unwrap_or_else(|error| Answer::failed(format!("{}: {error}", path.display()))))
}

/// The file of a client, or the one for clients without a file.
fn client_file(folder: &Path, named: &str) -> io::Result<Answer> {
    // One name in the folder: a daemon that was taken over may ask for any.
    let is_name = |name: &&str| !matches!(*name, "" | "." | "..") && !name.contains('/');
    for (name, status) in [(Some(named).filter(is_name), OWN_FILE), (Some("DEFAULT"), DEFAULT_FILE)] {
        let Some(name) = name else { continue };
        match files::read(&folder.join(name)) {
            Ok(content) => return Ok(Answer { outcome: Outcome::Ended(status), files: vec![content] }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
        }
    }
    Ok(Answer { outcome: Outcome::Ended(NO_FILE), files: Vec::new() })
}

/// The revocation list, or the names in its directory, if it is not as it was.
pub(crate) fn revocations(path: &Path, before: &str) -> io::Result<Answer> {
    let there = std::fs::metadata(path)?;
    let signature = signature(&there);
    if signature == before {
        return Ok(Answer { outcome: Outcome::Ended(UNCHANGED), files: Vec::new() });
    }
    let content = if there.is_dir() {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string().map(|name| name + "\n"));
        }
        names.concat().into_bytes()
    } else {
        disk::read(path, LONGEST)?.0.to_vec()
    };
    Ok(Answer { outcome: Outcome::Ended(0), files: vec![content, signature.into_bytes()] })
}

/// The file of users and hashes of their passwords, if it is not as it was.
pub(crate) fn password_hashes(path: &Path, before: &str) -> io::Result<Answer> {
    if std::fs::metadata(path)?.is_file() {
        return revocations(path, before);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"))
}

/// What changes when a file is written or replaced, or when a directory gets or loses a file.
fn signature(there: &Metadata) -> String {
    let (device, inode, size) = (there.dev(), there.ino(), there.size());
    format!("{device} {inode} {size} {} {} {}", there.mtime(), there.mtime_nsec(), there.ctime_nsec())
}
