//! The lines of a file: comments cut, continuations joined, lengths checked. Functions stand in the order of a line's way.
//!
//! All is counted in bytes. A `#` in column 0 skips its line, also between two parts of a continued line. A backslash continues
//! a line if exactly one byte, the line feed, follows it, and the parts are joined with no space between.

use super::finding::Finding;

/// The longest line in bytes, with its line feed, and the longest joined line.
const LONGEST: usize = 1022;
const TOO_LONG: &str = "the line contains more characters the parser can handle";
const TOO_LONG_JOINED: &str = "the concatenated line contains more characters the parser can handle";
const BEHIND_BACKSLASH: &str = "no character should exist after '\\'";

/// A joined line.
pub(super) struct Line {
    /// The number of its last part.
    pub(super) number: u32,
    /// Its text up to the first line feed or carriage return.
    pub(super) text: String,
}

/// The joined lines, and a finding for each part that is ignored silently. An error is the last one.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    number: u32,
    joined: Vec<u8>,
    pub(super) findings: Vec<Finding>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, number: 0, joined: Vec::new(), findings: Vec::new() }
    }

    /// The next joined line; nothing at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Line>, Finding> {
        while let Some(part) = self.part() {
            if part.len() > LONGEST {
                return Err(self.refuse(TOO_LONG));
            }
            if part.first() == Some(&b'#') {
                continue;
            }
            let part = until(part, b'#');
            if let Some(backslash) = part.iter().position(|&byte| byte == b'\\') {
                if backslash + 2 != part.len() {
                    return Err(self.refuse(BEHIND_BACKSLASH));
                }
                if part[backslash + 1] != b'\n' {
                    self.ignored(backslash + 1, part);
                }
                self.join(&part[..backslash], TOO_LONG_JOINED)?;
                continue;
            }
            self.join(part, TOO_LONG)?;
            return Ok(Some(self.line()));
        }
        if !self.joined.is_empty() {
            let text = "the line is continued behind the end of the file, and ignored";
            let fix = "delete the backslash at its end";
            self.findings.push(Finding::warning(self.number, "unfinished-line", text, fix));
        }
        Ok(None)
    }

    /// What `fgets` reads into 1024 bytes, and what `strlen` makes of it.
    fn part(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let most = self.rest.len().min(LONGEST + 1);
        let length = self.rest[..most].iter().position(|&byte| byte == b'\n').map_or(most, |feed| feed + 1);
        let (part, rest) = self.rest.split_at(length);
        self.rest = rest;
        let text = until(part, 0);
        if text.len() < part.len() {
            self.ignored(text.len(), part);
        }
        Some(text)
    }

    fn ignored(&mut self, from: usize, part: &[u8]) {
        let what = if part.get(from) == Some(&0) { "a zero byte" } else { "a backslash" };
        let text = format!("the line ends at {what}, and the rest of it is ignored");
        self.findings.push(Finding::warning(self.number, "line-cut", text, "write the line as plain text"));
    }

    fn join(&mut self, part: &[u8], too_long: &str) -> Result<(), Finding> {
        if self.joined.len() + part.len() > LONGEST {
            return Err(self.refuse(too_long));
        }
        self.joined.extend_from_slice(part);
        Ok(())
    }

    /// The joined line as DPDK's command line library takes it: up to the first line feed or carriage return.
    fn line(&mut self) -> Line {
        let joined = std::mem::take(&mut self.joined);
        let feed = until(&joined, b'\n');
        let text = until(feed, b'\r');
        if feed[text.len()..].iter().any(|byte| !byte.is_ascii_whitespace()) {
            let sentence = "the line ends at a carriage return, and the rest of it is ignored";
            let fix = "write the line without carriage returns";
            self.findings.push(Finding::warning(self.number, "line-cut", sentence, fix));
        }
        Line { number: self.number, text: String::from_utf8_lossy(text).into_owned() }
    }

    fn refuse(&self, reason: &str) -> Finding {
        let fix = if reason == BEHIND_BACKSLASH {
            "the backslash must be the last character of its line, without carriage return".to_owned()
        } else {
            format!("a line has at most {LONGEST} characters with its line feed, and so has a joined line")
        };
        Finding::error(self.number, "line", reason, fix)
    }
}

fn until(bytes: &[u8], end: u8) -> &[u8] {
    bytes.split(|&byte| byte == end).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<Vec<(u32, String)>, String> {
        let mut lines = Lines::new(text.as_bytes());
        let mut all = Vec::new();
        loop {
            match lines.next() {
                Ok(Some(line)) => all.push((line.number, line.text)),
                Ok(None) => return Ok(all),
                Err(error) => return Err(error.in_file("f").to_string().lines().next().unwrap().to_owned()),
            }
        }
    }

    fn joined(text: &str) -> Vec<String> {
        lines(text).expect("nothing is wrong").into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn comments_are_cut_and_parts_joined_without_a_space() {
        assert_eq!(joined("a\\\nb\n"), ["ab"]);
        assert_eq!(joined("a \\\n# not here\nb # but here\n"), ["a b "]);
        assert_eq!(joined("a \\ # one byte lies between backslash and comment\nb\n"), ["a b"]);
        assert_eq!(joined("\n\r\na\rb\n"), ["", "", "a"]);
        assert_eq!(lines("a \\\n#\nb\nc\n").unwrap()[1].0, 4);
    }

    #[test]
    fn a_line_that_continues_behind_the_end_is_a_finding() {
        let mut lines = Lines::new(b"sp\nsa \\\n");
        while lines.next().unwrap().is_some() {}
        assert_eq!((lines.findings[0].line, lines.findings[0].rule), (Some(2), "unfinished-line"));
    }

    #[test]
    fn a_backslash_stands_before_the_line_feed() {
        let error = "f:1: error: no character should exist after '\\'";
        for text in ["a \\b\n", "a \\\r\n", "a \\ \n", "a \\#\n", "\\"] {
            assert_eq!(lines(text).unwrap_err(), error, "{text:?}");
        }
        assert_eq!(joined("a \\x"), [""; 0], "at the end of a file any byte may stand behind it");
    }

    #[test]
    fn lines_have_a_greatest_length() {
        let line = |length| "x".repeat(length);
        assert_eq!(joined(&format!("{}\n", line(1021))).len(), 1);
        assert_eq!(joined(&line(1022)).len(), 1);
        let error = "f:1: error: the line contains more characters the parser can handle";
        assert_eq!(lines(&format!("{}\n", line(1022))).unwrap_err(), error);
        assert_eq!(joined(&format!("{}\\\n{}\n", line(1000), line(21))).len(), 1);
        let error = "f:2: error: the line contains more characters the parser can handle";
        assert_eq!(lines(&format!("{}\\\n{}\n", line(1000), line(22))).unwrap_err(), error);
        let error = "f:2: error: the concatenated line contains more characters the parser can handle";
        assert_eq!(lines(&format!("{}\\\n{}\\\n", line(1000), line(23))).unwrap_err(), error);
    }
}
