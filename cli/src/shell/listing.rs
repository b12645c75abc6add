//! A list of what may follow, as it is printed in a window.

use super::complete::Item;
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr;

/// The columns of a mark and the spaces around a word.
const MARGIN: usize = 5;

/// The least columns for a text beside a word: in a narrower window it stands below.
const LEAST: usize = 16;

/// A list with help, for a terminal of so many columns.
pub(super) fn listed(items: &[Item], columns: usize) -> String {
    if items.is_empty() {
        return "Nothing may follow\n".to_owned();
    }
    let widest = items.iter().map(|item| item.shown.width()).max().unwrap_or_default();
    let width = widest.min(columns.saturating_sub(8) / 2);
    let is_beside = columns > width + MARGIN + LEAST;
    let indent = if is_beside { width + MARGIN } else { MARGIN };
    // The last column stays free: some terminals begin a new line there.
    let room = columns.saturating_sub(indent + 1).max(1);
    let mut text = "Possible completions:\n".to_owned();
    for item in items {
        let padding = " ".repeat(width.saturating_sub(item.shown.width()));
        let _ = write!(text, "{:>2} {}", item.mark, item.shown);
        for (number, line) in wrapped(&item.about, room).iter().enumerate() {
            let _ = match number {
                0 if is_beside && item.shown.width() <= width => write!(text, "{padding}  {line}"),
                _ => write!(text, "\n{}{line}", " ".repeat(indent)),
            };
        }
        text.push('\n');
    }
    text
}

/// The lines of a text, each of at most so many columns unless a word is longer.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::complete::{Context, items};

    /// All commands of a session.
    fn commands() -> Vec<Item> {
        items("", &Context { session: Some(Default::default()), ..Context::default() })
    }

    #[test]
    fn a_list_fits_a_narrow_window() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in [20, 40, 80] {
            let text = listed(&commands(), columns);
            assert!(text.starts_with("Possible completions:\n"));
            let mut below = text.lines().skip(1);
            assert!(below.all(|line| line.width() < columns), "{columns}\n{text}");
            assert_eq!(words(&text), words(&listed(&commands(), 200)), "nothing is left out");
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let item = |word: &str| Item { about: "help".to_owned(), ..Item::word(word, "") };
        let text = listed(&[item("東京"), item("Büro"), item("ab")], 80);
        assert_eq!(text, "Possible completions:\n   東京  help\n   Büro  help\n   ab    help\n");
    }
}
