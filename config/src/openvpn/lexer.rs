//! The words of a line: quotes, backslashes and comments.
//!
//! A word begins at the first character that is not white space. `#` and `;` begin a comment only where a word could begin.
//! Double quotes take backslashes, single quotes do not. A quotation ends its word, also without white space behind it.

use zeroize::Zeroizing;

/// A word, which may be a secret.
pub(super) type Word = Zeroizing<String>;

/// Why a line has no words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LexError {
    /// A quotation does not end on its line.
    Quote(char),
    /// A backslash stands before a character that needs none.
    Backslash,
    /// A backslash is the last character.
    Residual,
}

impl LexError {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Quote(_) => "a quotation does not end on this line",
            Self::Backslash => "a backslash stands before a character that needs none",
            Self::Residual => "a backslash is the last character of this line",
        }
    }

    pub(super) fn fix(self) -> String {
        match self {
            Self::Quote(quote) => format!("write {quote} at the end of the quotation"),
            Self::Backslash => r"write \\ for one backslash, as in C:\\vpn\\ca.crt".to_owned(),
            Self::Residual => "delete it: a directive stands on one line".to_owned(),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Between,
    Plain,
    Quoted(char),
}

/// The words of a line.
pub(super) fn words(line: &str) -> Result<Vec<Word>, LexError> {
    let mut words = Vec::new();
    let mut word = room(line);
    let (mut state, mut is_escaped) = (State::Between, false);
    for character in line.chars() {
        if !is_escaped && character == '\\' && state != State::Quoted('\'') {
            is_escaped = true;
            continue;
        }
        let escaped = std::mem::take(&mut is_escaped);
        if escaped && !(matches!(character, '\\' | '"') || character.is_ascii_whitespace()) {
            return Err(LexError::Backslash);
        }
        match state {
            State::Between if escaped => {
                word.push(character);
                state = State::Plain;
            }
            State::Between if character.is_ascii_whitespace() => {}
            State::Between if matches!(character, '#' | ';') => return Ok(words),
            State::Between if matches!(character, '"' | '\'') => state = State::Quoted(character),
            State::Between => {
                word.push(character);
                state = State::Plain;
            }
            State::Plain if !escaped && character.is_ascii_whitespace() => {
                words.push(std::mem::replace(&mut word, room(line)));
                state = State::Between;
            }
            State::Quoted(quote) if !escaped && character == quote => {
                words.push(std::mem::replace(&mut word, room(line)));
                state = State::Between;
            }
            State::Plain | State::Quoted(_) => word.push(character),
        }
    }
    match state {
        _ if is_escaped => Err(LexError::Residual),
        State::Quoted(quote) => Err(LexError::Quote(quote)),
        State::Plain => {
            words.push(word);
            Ok(words)
        }
        State::Between => Ok(words),
    }
}

/// Room for the longest word of a line, so that no copy of a secret stays behind.
fn room(line: &str) -> Word {
    Zeroizing::new(String::with_capacity(line.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let words = words(line).unwrap_or_else(|error| panic!("{line}: {error:?}"));
        words.into_iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn words_are_split_as_openvpn_splits_them() {
        for (line, expected) in [
            ("verb 3", &["verb", "3"][..]),
            ("  port\t1194  ", &["port", "1194"]),
            ("", &[]),
            ("# a comment", &[]),
            ("; a comment", &[]),
            ("a#b c # d", &["a#b", "c"]),
            ("a;b ;c", &["a;b"]),
            (r#"push "route 10.0.0.0 255.0.0.0" # all"#, &["push", "route 10.0.0.0 255.0.0.0"]),
            (r#""a"b c"d""#, &["a", "b", "c\"d\""]),
            (r#""" x"#, &["", "x"]),
            (r#""x\"y\\z""#, &["x\"y\\z"]),
            (r"'d\e'", &[r"d\e"]),
            (r#"f\ g \"h"#, &["f g", "\"h"]),
            (r"\ ", &[" "]),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_that_openvpn_refuses_are_refused() {
        assert_eq!(words(r#"echo "abc"#), Err(LexError::Quote('"')));
        assert_eq!(words("echo 'abc"), Err(LexError::Quote('\'')));
        assert_eq!(words(r"ca C:\vpn\ca.crt"), Err(LexError::Backslash));
        assert_eq!(words("echo b\\"), Err(LexError::Residual));
    }
}
