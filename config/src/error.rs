//! What is wrong with a configuration: where, why, and what to write instead.

use std::fmt;

/// Where a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Location {
    /// The line, the first is 1; 0 for nowhere.
    pub line: usize,
    /// The column in characters, the first is 1.
    pub column: usize,
    /// How many characters it is long.
    pub width: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where.
    pub location: Location,
    /// What.
    pub reason: String,
    /// What to do.
    pub fix: Option<String>,
}

impl ConfigError {
    /// An error at a place.
    pub fn new(location: Location, reason: impl Into<String>) -> Self {
        Self { location, reason: reason.into(), fix: None }
    }

    /// The same, with what to do.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Shows the error in the text that it is about.
    ///
    /// Only the word at fault is shown, and not if it may be a secret: a log is read by others.
    pub fn in_text<'a>(&'a self, file: &'a str, text: &'a str) -> impl fmt::Display + 'a {
        InText { error: self, file, text }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

struct InText<'a> {
    error: &'a ConfigError,
    file: &'a str,
    text: &'a str,
}

impl fmt::Display for InText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location { line, column, width } = self.error.location;
        let Some(shown) = line.checked_sub(1).and_then(|index| self.text.lines().nth(index)) else {
            return write!(f, "{}: {}", self.file, self.error);
        };
        writeln!(f, "{}:{line}:{column}: {}", self.file, self.error.reason)?;
        // A secret in the line is the value of a key: replaced, and all columns stay right.
        let hidden = hide_secrets(shown);
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(f, "  {number} | {hidden}")?;
        write!(f, "  {margin} | {}{}", " ".repeat(column - 1), "^".repeat(width.max(1)))?;
        match &self.error.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

/// The line with every word behind a secret's name made stars.
fn hide_secrets(line: &str) -> String {
    let mut out = String::new();
    let mut hide = false;
    for part in line.split_inclusive(' ') {
        let word = part.trim_end_matches(' ');
        if hide && !word.is_empty() {
            out.push_str(&"*".repeat(word.chars().count()));
            out.push_str(&part[word.len()..]);
        } else {
            out.push_str(part);
        }
        hide |= matches!(word, "private-key" | "preshared-key");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_points_at_its_word_and_hides_secrets() {
        let text = "# one\nset interfaces wireguard wg0 private-key abc= x\n";
        let location = Location { line: 2, column: 30, width: 11 };
        let error = ConfigError::new(location, "not a key").fix("postern generate pki wireguard key-pair");
        assert_eq!(
            error.in_text("site.conf", text).to_string(),
            "site.conf:2:30: not a key\n\
             \x20 2 | set interfaces wireguard wg0 private-key **** *\n\
             \x20   |                              ^^^^^^^^^^^\n\
             \x20 fix: postern generate pki wireguard key-pair"
        );
        let nowhere = ConfigError::new(Location::default(), "nothing to serve");
        assert_eq!(nowhere.in_text("site.conf", text).to_string(), "site.conf: nothing to serve");
    }
}
