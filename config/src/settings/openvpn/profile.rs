//! The settings of an interface as a file of OpenVPN, with the path in the configuration for each line.

use crate::import::Files;
use crate::openvpn::{self, Loaded, Position, Refusal};
use crate::path::Path;
use crate::text::Text;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io;
use zeroize::Zeroizing;

/// The directory of the files of clients, which is in memory.
pub const CLIENTS: &str = "server client";
/// The name of the file.
const FILE: &str = "configuration";

/// A file of OpenVPN, and the files of clients.
#[derive(Default)]
pub struct Profile {
    main: File,
    clients: BTreeMap<String, File>,
}

/// Lines, with what each was written from.
#[derive(Default)]
pub(super) struct File {
    text: Text,
    lines: usize,
    /// By their first line.
    origins: BTreeMap<usize, String>,
}

impl File {
    /// Writes a directive for the node at `origin`.
    pub(super) fn line(&mut self, origin: &str, words: &[&str]) {
        self.begin(origin);
        for (at, word) in words.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            self.write(space);
            self.word(word);
        }
        self.write("\n");
        self.lines += 1;
    }

    /// Writes a line as it is.
    pub(super) fn raw(&mut self, origin: &str, line: &str) {
        self.begin(origin);
        self.write(line);
        self.write("\n");
        self.lines += 1;
    }

    /// Writes an inline block; `text` ends with a line feed.
    pub(super) fn block(&mut self, origin: &str, tag: &str, text: &str) {
        self.begin(origin);
        for part in ["<", tag, ">\n", text, "</", tag, ">\n"] {
            self.write(part);
        }
        self.lines += 2 + text.lines().count();
    }

    fn begin(&mut self, origin: &str) {
        self.origins.insert(self.lines + 1, origin.to_owned());
    }

    /// Quotes a word where that is needed.
    fn word(&mut self, word: &str) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/,+=@%".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            return self.write(word);
        }
        self.write("\"");
        for part in word.split_inclusive(['"', '\\']) {
            let end = part.len() - usize::from(part.ends_with(['"', '\\']));
            self.write(&part[..end]);
            if end < part.len() {
                self.write("\\");
                self.write(&part[end..]);
            }
        }
        self.write("\"");
    }

    fn write(&mut self, text: &str) {
        // It grows as it must.
        let _ = self.text.write_str(text);
    }

    /// The node that a line was written from.
    fn origin(&self, line: usize) -> Option<&str> {
        self.origins.range(..=line).next_back().map(|(_, origin)| origin.as_str())
    }

    fn copy(&self) -> Text {
        let mut copy = Text::default();
        let _ = copy.write_str(self.text.as_str().unwrap_or_default());
        copy
    }
}

impl Profile {
    pub(super) fn main(&mut self) -> &mut File {
        &mut self.main
    }

    /// The file of a client.
    pub(super) fn client(&mut self, name: &str) -> &mut File {
        self.clients.entry(name.to_owned()).or_default()
    }

    /// Reads it, as OpenVPN's own files are read. Files that it names are those of `disk`.
    ///
    /// # Errors
    /// All that is refused.
    pub fn load(&self, disk: &dyn Files) -> Result<Loaded, Vec<Refusal>> {
        let files = self.files(disk);
        openvpn::load(&["--config".to_owned(), FILE.to_owned()], &files)
    }

    /// What can be read of it, although some of it may be refused: a file of keys that is missing opens nothing that the other lines close.
    pub fn read(&self, disk: &dyn Files) -> Loaded {
        let files = self.files(disk);
        openvpn::read(&["--config".to_owned(), FILE.to_owned()], &files).0
    }

    /// Its own files in memory, and those of `disk`.
    pub fn files<'a>(&'a self, disk: &'a dyn Files) -> impl Files + 'a {
        Both { profile: self, disk }
    }

    /// The files of clients, by common name.
    pub fn clients(&self) -> impl Iterator<Item = (&str, &str)> {
        self.clients.iter().map(|(name, file)| (name.as_str(), file.text.as_str().unwrap_or_default()))
    }

    /// Whether both differ at most in what clients of a server are told, and in the files of clients.
    pub fn differs_for_clients_only(&self, other: &Self) -> bool {
        let rest = |profile: &'_ Self| -> Vec<Zeroizing<String>> {
            let text = profile.main.text.as_str().unwrap_or_default();
            text.lines()
                .filter(|line| !line.starts_with("push "))
                .map(|it| Zeroizing::new(it.to_owned()))
                .collect()
        };
        rest(self) == rest(other)
    }

    /// The node of the configuration that a place in the profile was written from; without one, `path`.
    pub fn origin(&self, position: &Position, path: &Path) -> String {
        let file = match position.file.strip_prefix(CLIENTS).and_then(|rest| rest.strip_prefix('/')) {
            Some(client) => self.clients.get(client),
            None => Some(&self.main).filter(|_| &*position.file == FILE),
        };
        let origin = file.and_then(|file| file.origin(position.line));
        origin.map_or_else(|| path.to_string(), str::to_owned)
    }
}

impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        self.main == other.main && self.clients == other.clients
    }
}

impl Eq for Profile {}

impl PartialEq for File {
    fn eq(&self, other: &Self) -> bool {
        self.text.bytes() == other.text.bytes()
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There are keys in it.
        write!(f, "Profile({} lines, {} clients)", self.main.lines, self.clients.len())
    }
}

/// Files of a profile and of the machine.
struct Both<'a> {
    profile: &'a Profile,
    disk: &'a dyn Files,
}

impl Files for Both<'_> {
    fn read(&self, path: &std::path::Path) -> io::Result<Text> {
        if path == std::path::Path::new(FILE) {
            return Ok(self.profile.main.copy());
        }
        if path.is_absolute() {
            return self.disk.read(path);
        }
        let client = path.strip_prefix(CLIENTS).ok().and_then(|name| name.to_str());
        let file = client.and_then(|name| self.profile.clients.get(name));
        let missing = || io::Error::new(io::ErrorKind::NotFound, "write its whole path, from / on");
        file.map(File::copy).ok_or_else(missing)
    }

    fn list(&self, directory: &std::path::Path) -> io::Result<Vec<String>> {
        if directory == std::path::Path::new(CLIENTS) {
            return Ok(self.profile.clients.keys().cloned().collect());
        }
        self.disk.list(directory)
    }
}
