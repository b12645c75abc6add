//! The words of a line.

use crate::error::{ConfigError, Location};
use zeroize::Zeroizing;

/// A word of a line.
#[derive(Clone)]
pub(crate) struct Token {
    /// The text, which may be a secret or contain a misplaced one.
    pub(crate) text: Zeroizing<String>,
    pub(crate) location: Location,
}

/// The words of a line, without its quotes; none if it is a comment.
pub fn words(line: &str) -> Result<Vec<Zeroizing<String>>, ConfigError> {
    Ok(split(line, 1)?.into_iter().map(|word| word.text).collect())
}

/// The words of a line. Quotes, single or double, make one word of several; a word that begins with # begins a comment.
pub(crate) fn split(line: &str, number: usize) -> Result<Vec<Token>, ConfigError> {
    let mut words = Vec::new();
    let mut characters = line.chars().enumerate().peekable();
    while let Some(&(start, first)) = characters.peek() {
        if first.is_whitespace() {
            characters.next();
            continue;
        }
        if first == '#' {
            break;
        }
        // Allocated in full: text that moves would leave a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(line.len()));
        let (mut quote, mut end) = (None, start);
        while let Some(&(position, character)) = characters.peek() {
            match quote {
                None if character.is_whitespace() => break,
                None if character == '\'' || character == '"' => quote = Some(character),
                Some(open) if character == open => quote = None,
                _ => text.push(character),
            }
            end = position + 1;
            characters.next();
        }
        let location = Location { line: number, column: start + 1, width: end - start };
        if quote.is_some() {
            return Err(ConfigError::new(location, "the closing quote is missing")
                .fix("add it, or remove the opening one"));
        }
        words.push(Token { text, location });
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_may_follow_the_words_of_a_line() {
        let read = |line: &str| {
            let words = words(line).expect("quotes are closed");
            words.iter().map(|word| word.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(read("set mtu '1400'   # of the tunnel"), ["set", "mtu", "1400"]);
        assert_eq!(read("set description '# 1' a#b \"#\""), ["set", "description", "# 1", "a#b", "#"]);
        assert_eq!(read("  # nothing"), Vec::<String>::new());
    }
}
