//! Text that may hold secrets: erased when it is freed, also where it moves because it grows.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::str::Utf8Error;
use zeroize::{Zeroize, Zeroizing};

/// The least room that is made.
const ROOM: usize = 4096;

/// Text of which no copy stays in memory.
#[derive(Default)]
pub struct Text(Zeroizing<Vec<u8>>);

impl Text {
    /// Reads a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::read_from(std::fs::File::open(path)?)
    }

    /// Reads to the end.
    pub fn read_from(mut source: impl Read) -> io::Result<Self> {
        let mut text = Self::default();
        loop {
            let filled = text.0.len();
            let room = text.room();
            room.resize(room.capacity(), 0);
            let read = source.read(&mut room[filled..]);
            room.truncate(filled + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(text),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What it is so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same as characters.
    pub fn as_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.0)
    }

    /// Its bytes, with spare capacity: adding more than that would leave a copy behind.
    pub fn room(&mut self) -> &mut Vec<u8> {
        self.reserve(ROOM);
        &mut self.0
    }

    /// Forgets the first bytes: what follows moves to the front, and what is behind it then is erased.
    pub fn forget(&mut self, count: usize) {
        self.0.copy_within(count.., 0);
        let left = self.0.len() - count;
        self.0[left..].zeroize();
        self.0.truncate(left);
    }

    fn reserve(&mut self, more: usize) {
        let needed = self.0.len() + more;
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(2 * self.0.capacity())));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        self.reserve(more.len());
        self.0.extend_from_slice(more.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn text_grows_and_shrinks_and_is_not_printed() {
        let mut text = Text::default();
        for number in 0..5000 {
            writeln!(text, "{number}").expect("it grows");
        }
        let whole: String = (0..5000).map(|number| format!("{number}\n")).collect();
        assert_eq!(text.as_str(), Ok(whole.as_str()));
        text.forget(4);
        assert_eq!(text.bytes(), &whole.as_bytes()[4..]);
        assert_eq!(format!("{text:?}"), "Text(..)");
    }

    #[test]
    fn a_file_is_read_whole() {
        let file = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
        let path = file.to_path_buf();
        let whole = "a line of a file\n".repeat(1000);
        std::fs::write(&path, &whole).expect("a file");
        let text = Text::read(&path);
        file.close().expect("it is there");
        assert_eq!(text.expect("it is there").as_str(), Ok(whole.as_str()));
        assert!(Text::read(&path).is_err());
    }
}
