//! The tar file: written, and read from a file that nothing is known of.

use crate::entry::{Content, Entry, LARGEST, Place};
use crate::error::UnpackError;
use crate::manifest::{self, Listed, Manifest};
use crate::{Backup, owner};
use std::io::{self, Read};
use tar::{Archive, Builder, EntryType, Header};
use zeroize::Zeroizing;

/// The tar file of a backup.
pub fn pack(backup: &Backup) -> io::Result<Zeroizing<Vec<u8>>> {
    let list = serde_json::to_vec_pretty(&Manifest::of(backup))?;
    let bytes: usize = backup.entries.iter().map(|entry| entry.content.bytes().len()).sum();
    // One buffer that is large enough: one that grows would leave copies of keys behind. A file has its header, perhaps its long
    // name with a header of its own, and is filled up to 512 bytes.
    let room = bytes + list.len() + (backup.entries.len() + 4) * 4096;
    let mut tar = Builder::new(Zeroized(Zeroizing::new(Vec::with_capacity(room))));
    let mut header = Header::new_gnu();
    header.set_mode(0o600);
    append(&mut tar, header, manifest::NAME, &list)?;
    for entry in &backup.entries {
        let mut header = Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_username(&entry.user).and_then(|()| header.set_groupname(&entry.group)).or_else(|_| {
            // A name of more than 32 bytes: the list has it.
            header.set_username("").and_then(|()| header.set_groupname(""))
        })?;
        append(&mut tar, header, &entry.place.to_string(), entry.content.bytes())?;
    }
    Ok(tar.into_inner()?.0)
}

fn append(tar: &mut Builder<Zeroized>, mut header: Header, name: &str, bytes: &[u8]) -> io::Result<()> {
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)
}

/// A buffer that is erased.
struct Zeroized(Zeroizing<Vec<u8>>);

impl io::Write for Zeroized {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a whole tar file: it has the files of its list in their order, each as it was, and nothing else.
pub fn unpack(bytes: &[u8]) -> Result<Backup, UnpackError> {
    let mut archive = Archive::new(bytes);
    let broken = |error: io::Error| UnpackError::Tar(error.to_string());
    let mut entries = archive.entries().map_err(broken)?;
    let first = entries.next().ok_or(UnpackError::NoManifest)?.map_err(broken)?;
    let (name, list) = file(first, manifest::LONGEST)?;
    if name != manifest::NAME {
        return Err(UnpackError::NoManifest);
    }
    let Manifest { postern: version, time, host, configuration, files, .. } = Manifest::parse(list.bytes())?;
    let mut found = Vec::with_capacity(files.len());
    let mut listed = files.into_iter();
    for entry in entries {
        let (name, content) = file(entry.map_err(broken)?, LARGEST)?;
        let next = listed.next().filter(|next| next.name == name);
        found.push(checked(next.ok_or(UnpackError::Unlisted(name))?, content)?);
    }
    match listed.next() {
        Some(missing) => Err(UnpackError::Missing(missing.name)),
        None => Ok(Backup { version, time, host, configuration, entries: found }),
    }
}

/// The name and the bytes of a regular file.
fn file(mut entry: tar::Entry<'_, &[u8]>, largest: u64) -> Result<(String, Content), UnpackError> {
    let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    // First: a sparse file would be filled with zeros.
    if entry.header().entry_type() != EntryType::Regular || entry.link_name_bytes().is_some() {
        return Err(UnpackError::Kind(name));
    }
    let size = entry.size();
    if size > largest {
        return Err(UnpackError::Large(format!("{size} bytes in {name:?}")));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(size as usize));
    let read = (&mut entry)
        .take(size)
        .read_to_end(&mut bytes)
        .map_err(|error| UnpackError::Tar(error.to_string()))?;
    if read as u64 != size {
        return Err(UnpackError::Tar(format!("{name:?} is cut off")));
    }
    Ok((name, Content::new(std::mem::take(&mut *bytes))))
}

fn checked(listed: Listed, content: Content) -> Result<Entry, UnpackError> {
    let is_same = listed.size == content.bytes().len() as u64 && listed.sha256 == content.digest();
    let place = Place::parse(&listed.name).filter(|_| is_same);
    let place = place.ok_or_else(|| UnpackError::Changed(listed.name.clone()))?;
    let mode = listed.mode().unwrap_or(owner::PRIVATE);
    Ok(Entry { place, mode, user: listed.user, group: listed.group, content })
}

#[cfg(test)]
mod tests;
