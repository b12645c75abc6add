//! The file of a revision: a line about it, which is `#`, SHA-256 of what follows and JSON, and the lines of the configuration.

use crate::api::model::Via;
use config::Text;
use crypto::hash::sha256;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What a revision is, as the first line of its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Its number.
    pub revision: u64,
    /// When it was made, in UTC (RFC 3339).
    pub time: String,
    /// Who made it.
    pub user: String,
    /// What made it.
    pub via: Via,
    /// What its author said of it.
    pub comment: Option<String>,
    /// The boot of the machine in which it was made.
    pub boot: String,
    /// SHA-256 of the configuration file as it was last loaded or saved.
    pub file: String,
    /// If it must be confirmed: until when, and what comes back otherwise.
    pub confirm: Option<Deadline>,
    /// The branches that were deleted by their names.
    pub deleted: Vec<String>,
    /// SHA-256 of the lines that follow.
    pub text: String,
}

/// Until when a commit must be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// How long it may take from the moment on in which the commit is in force.
    pub minutes: u32,
    /// Seconds since the machine booted. It is known when the revision is published.
    pub deadline: u64,
    /// The revision whose configuration comes back.
    pub back_to: u64,
}

/// What is wrong with the file of a revision.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The first line does not say what it is.
    #[error("its first line is not that of a revision")]
    Header,
    /// The lines are not those that were written.
    #[error("its lines are not those that were written")]
    Lines,
}

/// Digits of SHA-256 in hexadecimal.
const DIGEST: usize = 64;

/// SHA-256 in hexadecimal, as headers have it.
pub fn digest(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(&sha256(&[bytes]))
}

impl Header {
    /// Reads the first line of a file.
    pub fn parse(line: &[u8]) -> Result<Self, Damage> {
        let line = line.strip_prefix(b"# ").ok_or(Damage::Header)?.trim_ascii_end();
        let (hash, json) = line.split_at_checked(DIGEST).ok_or(Damage::Header)?;
        let json = json.strip_prefix(b" ").ok_or(Damage::Header)?;
        if digest(json).as_bytes() != hash {
            return Err(Damage::Header);
        }
        serde_json::from_slice(json).map_err(|_| Damage::Header)
    }

    /// The first line of its file, with its end. It is filled up with spaces to at least this length.
    pub fn line(&self, length: usize) -> String {
        let json = serde_json::to_string(self).expect("it has only texts and numbers");
        let mut line = format!("# {} {json}", digest(json.as_bytes()));
        let missing = length.saturating_sub(line.len() + 1);
        line.extend(std::iter::repeat_n(' ', missing));
        line.push('\n');
        line
    }
}

/// Reads a whole file: what it is, and its lines.
pub fn parse(mut file: Text) -> Result<(Header, Text), Damage> {
    let end = file.bytes().iter().position(|&byte| byte == b'\n').ok_or(Damage::Header)?;
    let header = Header::parse(&file.bytes()[..end])?;
    file.forget(end + 1);
    if digest(file.bytes()) != header.text || file.as_str().is_err() {
        return Err(Damage::Lines);
    }
    Ok((header, file))
}

/// The whole file.
pub fn print(header: &Header, lines: &Text) -> Text {
    let mut file = Text::default();
    // It grows as it must.
    let _ = file.write_str(&header.line(0));
    let _ = file.write_str(lines.as_str().unwrap_or_default());
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        let mut all = Text::default();
        all.write_str(text).expect("it grows");
        all
    }

    fn header(lines: &str) -> Header {
        let comment = Some("two\nlines of \"it\"".to_owned());
        Header { revision: 7, comment, text: digest(lines.as_bytes()), ..Header::default() }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let lines = "set system allow-empty\n";
        let file = print(&header(lines), &text(lines));
        assert_eq!(file.as_str().expect("text").lines().count(), 2);
        let (read, found) = parse(file).expect("it is whole");
        assert_eq!((read, found.as_str()), (header(lines), Ok(lines)));
    }

    #[test]
    fn a_file_that_is_cut_off_or_changed_is_noticed() {
        let lines = "set system allow-empty\nset system open-at-exit\n";
        let file = print(&header(lines), &text(lines));
        let whole = file.as_str().expect("text");
        for length in 0..whole.len() {
            assert!(parse(text(&whole[..length])).is_err(), "{length}");
        }
        assert_eq!(parse(text(&whole.replace("empty", "other"))).err(), Some(Damage::Lines));
        assert_eq!(parse(text(&whole[1..])).err(), Some(Damage::Header));
        let other = whole.replace("\"revision\":7", "\"revision\":8");
        assert_eq!(parse(text(&other)).err(), Some(Damage::Header), "also what is right JSON");
    }

    #[test]
    fn a_first_line_can_be_written_over_a_longer_one() {
        let deadline = |deadline| Some(Deadline { minutes: 5, deadline, back_to: 6 });
        let with = |until| Header { confirm: deadline(until), comment: Some("ü".to_owned()), ..header("") };
        let (long, short) = (with(u64::MAX), with(7));
        let length = long.line(0).len();
        assert!(short.line(0).len() < length);
        let line = short.line(length);
        assert_eq!(line.len(), length);
        assert_eq!(Header::parse(line.trim_end_matches('\n').as_bytes()), Ok(short));
    }
}
