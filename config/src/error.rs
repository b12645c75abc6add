//! Errors in a configuration: the location, the reason and the fix.

use crate::schema::{self, Cursor, NEAR, Node, Place};
use std::fmt;
use std::ops::Range;
use zeroize::Zeroizing;

/// The location of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Location {
    /// The line, from 1; 0 for no location.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The length in characters.
    pub width: usize,
}

/// Errors that are reported: reading stops after them, as a long text of wrong lines would take long, and much memory.
pub const MOST_ERRORS: usize = 100;

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The location.
    pub location: Location,
    /// The reason.
    pub reason: String,
    /// The fix.
    pub fix: Option<String>,
    /// The parts of the line that are hidden besides those that look like secrets.
    hidden: Hidden,
}

/// The parts of a line that are hidden besides those that look like secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hidden {
    Nothing,
    /// The word at the location and all after it, which may be secrets.
    FromWord,
    /// All after the word at the location, which may be a secret.
    BehindWord,
}

impl ConfigError {
    /// An error at a location.
    pub fn new(location: Location, reason: impl Into<String>) -> Self {
        Self {
            location,
            reason: hide_keys(&Zeroizing::new(reason.into())),
            fix: None,
            hidden: Hidden::Nothing,
        }
    }

    /// Adds a fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(hide_keys(&Zeroizing::new(fix.into())));
        self
    }

    /// Marks the word at the location as a possible secret.
    #[must_use]
    pub(crate) fn secret(mut self) -> Self {
        self.hidden = Hidden::FromWord;
        self
    }

    /// Marks the word at the location as a possible name of a secret, which follows it.
    #[must_use]
    pub(crate) fn names_secret(mut self) -> Self {
        self.hidden = Hidden::BehindWord;
        self
    }

    /// Shows the error with the line that it is about.
    ///
    /// Possible secrets are hidden, as logs have other readers.
    pub fn in_text<'a>(&'a self, file: &'a str, text: &'a str) -> impl fmt::Display + 'a {
        InText { error: self, file, text }
    }
}

impl ConfigError {
    /// The line that it is about, with stars in place of possible secrets.
    pub fn masked(&self, line: &str) -> String {
        hide_secrets(line, self.visible())
    }

    /// The column from which all is hidden.
    fn visible(&self) -> usize {
        let Location { column, width, .. } = self.location;
        match self.hidden {
            Hidden::Nothing => usize::MAX,
            Hidden::FromWord => column.saturating_sub(1),
            Hidden::BehindWord => column.saturating_sub(1) + width,
        }
    }
}

/// A line with stars in place of possible secrets.
pub fn without_secrets(line: &str) -> String {
    hide_secrets(line, usize::MAX)
}

/// Whether a line may hold a secret, so that no copy of it may be kept.
pub fn may_hold_secret(line: &str) -> bool {
    hide_secrets(line, usize::MAX).matches('*').count() > line.matches('*').count()
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
        let hidden = self.error.masked(shown);
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

/// A sequence of this many characters may be a key: 44 in base64, 64 in hexadecimal; some may be missing.
const KEY: usize = 40;

/// The line with stars in place of possible secrets and of all from the column `from` on, and with spaces in place of
/// characters that would shift the columns.
fn hide_secrets(line: &str, from: usize) -> String {
    let mut characters = Zeroizing::new(Vec::with_capacity(line.len()));
    characters.extend(line.chars());
    let visible = secret_begins(&characters).unwrap_or(characters.len()).min(from);
    let private = private(&characters);
    let mut shown = Zeroizing::new(String::with_capacity(line.len()));
    shown.extend(characters.iter().enumerate().map(|(column, &character)| match character {
        _ if character.is_whitespace() || character.is_control() => ' ',
        _ if column >= visible || private.iter().any(|range| range.contains(&column)) => '*',
        _ => character,
    }));
    hide_keys(&shown)
}

/// The text with stars in place of possible keys.
fn hide_keys(text: &str) -> String {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let run = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        // Words and paths alone are no key: one of them has digits or large letters but for a chance of 2^-50.
        let is_plain = rest[..run].bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'/');
        if run >= KEY && !is_plain {
            shown.push_str(&"*".repeat(run));
        } else {
            shown.push_str(&rest[..run]);
        }
        let next = rest[run..].find(is_of_key).unwrap_or(rest.len() - run);
        shown.push_str(&rest[run..run + next]);
        rest = &rest[run + next..];
    }
    shown
}

/// The column behind the first word that is, or was meant to be, the name of a secret.
///
/// Words are looked for twice: as they are written between spaces and quotes, for a quotation may never end; and as
/// the parser reads them, for quotes may stand within a word.
fn secret_begins(line: &[char]) -> Option<usize> {
    let separates = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '=' | ':');
    let written = words(line, separates, |_| false);
    let read = words(line, char::is_whitespace, |c| matches!(c, '\'' | '"'));
    let known = known(&read);
    let may_be = |(word, end): &(Zeroizing<String>, usize)| is_secret(word) && !known.contains(end);
    written.into_iter().chain(read).filter(may_be).map(|(_, end)| end).min()
}

/// The columns of names and values that are passwords, though the configuration shows them.
fn private(line: &[char]) -> Vec<Range<usize>> {
    let read = words(line, char::is_whitespace, |c| matches!(c, '\'' | '"'));
    let mut said = read.iter().filter(|(word, _)| !word.is_empty());
    let (mut cursor, mut private) = (Cursor::root(), Vec::new());
    let mut behind = match said.next() {
        Some((verb, end)) if matches!(verb.as_str(), "set" | "delete") => *end,
        _ => return private,
    };
    for (word, end) in said {
        let is_value = cursor.node().is_some_and(Node::is_private);
        let is_name = |cursor: Cursor| cursor.tag().is_some_and(|tag| tag.kind.is_private());
        match cursor.down(word) {
            Some(next) if !is_value => {
                private.extend(is_name(next).then_some(behind..*end));
                (cursor, behind) = (next, *end);
            }
            // Quotes may hold words together as one name.
            _ => {
                private.extend((is_value || is_name(cursor)).then_some(behind..usize::MAX));
                break;
            }
        }
    }
    private
}

/// The columns behind the words that the grammar knows for something else than the name of a secret: words of a path that
/// leads to none, and names that the user has chosen. What follows a word that it does not know, it does not know either.
fn known(read: &[(Zeroizing<String>, usize)]) -> Vec<usize> {
    let mut said = read.iter().filter(|(word, _)| !word.is_empty());
    if said.next().is_none_or(|(verb, _)| !matches!(verb.as_str(), "set" | "delete")) {
        return Vec::new();
    }
    let (mut cursor, mut known) = (Cursor::root(), Vec::new());
    for (word, end) in said {
        let Some(next) = cursor.down(word) else { break };
        cursor = next;
        match cursor.place() {
            Place::Node(node) if node.secret => break,
            // Names may be anything, a secret too if the name before it was forgotten.
            Place::Node(_) | Place::Tag(_) | Place::Inner(_) => known.push(*end),
            Place::Unsupported(_) => break,
        }
    }
    known
}

/// The words between what separates them, without what is left out, each with the column behind it.
fn words(
    line: &[char],
    separates: impl Fn(char) -> bool,
    left_out: impl Fn(char) -> bool,
) -> Vec<(Zeroizing<String>, usize)> {
    let mut words = Vec::new();
    let fresh = || Zeroizing::new(String::with_capacity(4 * line.len()));
    let mut word = fresh();
    for (column, &character) in line.iter().chain([&' ']).enumerate() {
        if separates(character) {
            words.push((std::mem::replace(&mut word, fresh()), column));
        } else if !left_out(character) {
            word.push(character);
        }
    }
    words
}

/// Whether a word may have been meant as the name of a secret. One that is much longer may be the secret itself.
fn is_secret(word: &str) -> bool {
    let word = Zeroizing::new(word.to_lowercase());
    schema::secrets().any(|secret| {
        // A short name has many neighbours: set is three edits away from secret.
        let near = NEAR.min(secret.len() / 3);
        let is_beginning = word.len() >= 2 && secret.starts_with(word.as_str());
        is_beginning
            || word.len() <= secret.len() + near && strsim::damerau_levenshtein(&word, secret) <= near
    })
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

    const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
    const HEX: &str = "b85996fecc9c7f1fc6d2572a76eda11d59bcd20be8e543b15ce4bd85a8e75a33";

    /// All errors of a wrong configuration, as text.
    fn said(text: &str) -> String {
        let errors = match crate::parse(text) {
            Ok(tree) => crate::Settings::new(&tree).expect_err("wrong"),
            Err(errors) => errors,
        };
        errors.iter().map(|error| format!("{error}\n{}\n", error.in_text("site.conf", text))).collect()
    }

    #[test]
    fn no_error_shows_a_secret_however_it_is_written() {
        for name in schema::secrets() {
            let (short, quoted) = (&name[1..], format!("{}'{}'", &name[..3], &name[3..]));
            for line in [
                format!("{name} KEY wrong"),
                format!("{name}\tKEY\twrong"),
                format!("{name}\u{a0}KEY wrong"),
                format!("'{name}' KEY wrong"),
                format!("\"{name}\" 'KEY' wrong"),
                format!("'{name} KEY"),
                format!("{quoted} KEY wrong"),
                format!("{short} KEY"),
                format!("{short}\t\"KEY\""),
                format!("{}  KEY", name.to_uppercase()),
                format!("{name}=KEY"),
                format!("{name}:KEY"),
                format!("{name}KEY"),
                "KEY".to_owned(),
                "mtu KEY".to_owned(),
                "address 'KEY'".to_owned(),
                "peer KEY".to_owned(),
                "fwmark xKEY".to_owned(),
            ] {
                for key in [KEY, HEX, &KEY[..43]] {
                    let line = line.replace("KEY", key);
                    for path in ["set interfaces wireguard wg0", "set interface wireguard wg0", "sett"] {
                        let text = said(&format!("{path} {line}"));
                        assert!(!text.contains(&key[..20]), "{text}");
                    }
                }
                let text =
                    said(&format!("set interfaces wireguard wg0 {}", line.replace("KEY", "a+secret+word")));
                let named =
                    line.contains(name) && line.contains(' ') && !line.contains(&format!("{name}KEY"));
                assert!(!named || !text.contains("a+secret"), "{text}");
            }
        }
    }

    #[test]
    fn a_secret_that_is_a_word_is_not_shown_either() {
        for line in [
            "set vpn ipsec authentication psk a secret OpenSesame now",
            "set vpn ipsec authentication psk a secret 'OpenSesame",
            "set vpn ipsec authentication psk a secrt OpenSesame",
            "set vpn ipsec authentication psk a sec OpenSesame",
            "set vpn ipsec auth psk a sec OpenSesame",
            "set vpn ipsec site-to-site peer a auth pre-shared OpenSesame",
            "set vpn ipsec authentication psk a Secret OpenSesame",
            "set vpn ipsec authentication psk a secret=OpenSesame",
            "set vpn ipsec authentication psk a OpenSesame",
            "set vpn ipsec authentication secret OpenSesame",
            "set vpn ipsec site-to-site peer a authentication pre-shared-secret OpenSesame now",
            "set vpn ipsec site-to-site peer a authentication pre-shared-secre OpenSesame",
            "set vpn ipsec site-to-site peer a authentication mode pre-shared-secret OpenSesame",
            "set vpn ipsec site-to-site peer a authentication OpenSesame",
            "set vpn ipsec site-to-site peer a authentication x509 passphrase Open OpenSesame",
            "set vpn ipsec pre-shared-secret OpenSesame",
            "set pki certificate a private key OpenSesame!",
            "set pki certificate a private ky OpenSesame",
            "set pki certificate a private OpenSesame",
            "set vpn ipsec site-to-site peer a authentication pre-shared-secret OpenSesame",
        ] {
            let text = said(line);
            assert!(!text.contains("Sesame"), "{text}");
            assert!(
                text.contains("set "),
                "a word of three letters is not taken for the name of a secret: {text}"
            );
        }
    }

    #[test]
    fn communities_and_arguments_are_not_repeated() {
        for line in [
            "set service snmp community OpenSesame authorization all",
            "set service snmp community OpenSesame network 10.0.0.1/8",
            "set service snmp community 'Open Sesame' network 10.0.0.0/8",
            "set service snmp community Open$Sesame",
            "delete service snmp community OpenSesame",
            "set service snmp trap-target 10.0.0.1 community Open$Sesame",
            "set service snmp trap-target 10.0.0.1 community OpenSesame now",
            "set system task-scheduler task a executable arguments \"'Open Sesame\"",
            "set system task-scheduler task a executable arguments --password OpenSesame",
        ] {
            let text = said(line);
            assert!(!text.contains("Sesame") && text.contains(&line[..20]), "{text}");
        }
        let text = said("set service snmp community OpenSesame network 10.0.0.1/8");
        assert!(text.contains("community ********** network 10.0.0.1/8"), "the rest is shown: {text}");
    }

    #[test]
    fn words_that_are_no_secrets_are_shown() {
        for (line, shown) in [
            ("set interfaces wireguard wg0 peer a keepalive 25", "unknown word \"keepalive\""),
            ("set interfaces wireguard wg0 peer a endpoint 192.0.2.1:51820", "peer a endpoint ***"),
            ("set interfaces wireguard wg0 dns 192.0.2.1", "wg0 dns ***"),
            ("set interfaces wireguard wg0 peer secret adress 192.0.2.1", "peer secret adress 192.0.2.1"),
            ("set vpn ipsec authentication psk secret idd 192.0.2.1", "psk secret idd 192.0.2.1"),
            ("set vpn ipsec site-to-site peer key descripton office", "peer key descripton office"),
            ("set pki key-pair key publc a", "key-pair key publc a"),
            (
                "set vpn ipsec include-ipsec-conf /etc/postern/includes/of/the/northern/office/ipsec conf",
                "northern/office",
            ),
        ] {
            let text = said(line);
            assert!(text.contains(shown), "{line}\n{text}");
        }
    }

    #[test]
    fn a_line_with_a_secret_is_told_from_others() {
        for line in [
            "set vpn ipsec authentication psk a secret OpenSesame",
            "set pre-shared-secret x",
            "set auth pre-shared-secret x",
            &format!("set x {KEY}"),
        ] {
            assert!(may_hold_secret(line), "{line}");
        }
        for line in ["set interfaces wireguard wg0 mtu 1400", "show vpn ike secrets", "commit comment **", ""]
        {
            assert!(!may_hold_secret(line), "{line}");
        }
    }

    #[test]
    fn the_caret_stands_under_its_word_behind_tabs_and_secrets() {
        let text = said(&format!("set\tinterfaces wireguard\twg0 privat-key\t{KEY}"));
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" | ")).collect();
        let caret = lines[1].find('^').expect("it points");
        assert!(
            lines[0][caret..].starts_with("privat-key ****") && lines[1].ends_with(&"^".repeat(10)),
            "{text}"
        );
    }
}
