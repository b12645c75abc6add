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

/// Words of a line: far more than any place of the grammar has.
const MOST_WORDS: usize = 1024;

/// The words of a line. Quotes, single or double, make one word of several; a word that begins with # begins a comment.
pub(crate) fn split(line: &str, number: usize) -> Result<Vec<Token>, ConfigError> {
    let mut words = Vec::new();
    let mut characters = line.char_indices().enumerate().peekable();
    while let Some(&(start, (byte, first))) = characters.peek() {
        if first.is_whitespace() {
            characters.next();
            continue;
        }
        if first == '#' {
            break;
        }
        if words.len() == MOST_WORDS {
            let location = Location { line: number, column: start + 1, width: 1 };
            return Err(ConfigError::new(location, format!("the line has more than {MOST_WORDS} words"))
                .fix("put a value with spaces in quotes"));
        }
        // Allocated in full: text that moves would leave a copy behind. The rest of the line would be too much: a long line
        // of many words would take the square of its length.
        let mut text = Zeroizing::new(String::with_capacity(room(&line[byte..])));
        let (mut quote, mut end) = (None, start);
        while let Some(&(position, (_, character))) = characters.peek() {
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

/// The bytes of the word that a text begins with, with its quotes.
fn room(text: &str) -> usize {
    let mut quote = None;
    let end = text.find(|character: char| {
        match quote {
            None if character == '\'' || character == '"' => quote = Some(character),
            Some(open) if character == open => quote = None,
            _ => {}
        }
        quote.is_none() && character.is_whitespace()
    });
    end.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_takes_the_memory_of_its_own_length() {
        let line = format!("set a 'b c'd ä\"'\"e {}", "x".repeat(1000));
        let words = words(&line).expect("quotes are closed");
        let taken: Vec<_> = words.iter().map(|word| (word.as_str(), word.capacity())).collect();
        assert_eq!(taken[..4], [("set", 3), ("a", 1), ("b cd", 6), ("ä'e", 6)]);
        assert_eq!(taken[4].1, 1000);
    }

    #[test]
    fn a_line_of_too_many_words_is_refused() {
        assert!(words(&"a ".repeat(MOST_WORDS)).is_ok());
        let error = words(&"a ".repeat(MOST_WORDS + 1)).expect_err("too many");
        assert_eq!((error.location.column, error.location.width), (2 * MOST_WORDS + 1, 1));
    }

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
