//! Comments: what the user has noted of a branch or a leaf.
//!
//! ```text
//! comment interfaces wireguard wg0 'to the office'      /* to the office */
//!                                                       wireguard wg0 {
//! ```

use crate::error::ConfigError;
use crate::path::Path;
use crate::schema::Cursor;
use crate::token::Token;
use crate::tree::Tree;
use crate::walk::{end_of, walk};

/// The longest comment, in characters.
const LONGEST_COMMENT: usize = 1000;

/// The comments of a configuration in braces, each before what it is about.
#[derive(Default)]
pub(crate) struct Comments {
    pub(crate) next: Option<String>,
    found: Vec<(Path, String)>,
}

impl Comments {
    /// The last comment is about this path, which may end in a value.
    pub(crate) fn about(&mut self, path: &[Token]) {
        let Some(text) = self.next.take() else { return };
        if let Ok((cursor, path, _)) = walk(path)
            && !leads_to_names(cursor)
            && !text.is_empty()
        {
            self.found.push((Path::new(path.iter().map(|word| word.text.as_str())), text));
        }
    }

    /// Notes them in the tree, where what they are about is.
    pub(crate) fn attach(self, tree: &mut Tree) {
        for (path, text) in self.found {
            if let Some(branch) = tree.branch(&path.words()).filter(|_| fits(&text).is_ok()) {
                branch.note(Some(text));
            }
        }
    }
}

/// Notes a text of what is set; an empty one removes it.
pub(crate) fn note(verb: &Token, words: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    const FIX: &str = "comment interfaces wireguard wg0 'to the office'";
    let Some((text, path)) = words.split_last().filter(|(_, path)| !path.is_empty()) else {
        return Err(
            ConfigError::new(end_of(words.last().unwrap_or(verb)), "a path and a text are missing").fix(FIX)
        );
    };
    let (cursor, path, rest) = walk(path)?;
    let last = path.last().unwrap_or(verb);
    if let Some(extra) = rest.first() {
        return Err(ConfigError::new(extra.location, "a text with spaces stands in quotes").fix(FIX));
    }
    if leads_to_names(cursor) {
        return Err(ConfigError::new(end_of(last), "a comment is about one of these, by its name").fix(FIX));
    }
    fits(&text.text).map_err(|why| ConfigError::new(text.location, why))?;
    let texts: Vec<&str> = path.iter().map(|word| word.text.as_str()).collect();
    let Some(branch) = tree.branch(&texts) else {
        return Err(ConfigError::new(last.location, "it is not set: there is nothing to comment on"));
    };
    // Spaces are not kept in braces, either.
    let noted = text.text.split_whitespace().collect::<Vec<_>>().join(" ");
    branch.note((!noted.is_empty()).then_some(noted));
    Ok(())
}

/// Whether the names that follow have comments, and not what is here: it has no line of its own in braces.
fn leads_to_names(cursor: Cursor) -> bool {
    cursor.next().any(|next| next.tag().is_some())
}

/// Whether a text can stand between the marks of a comment.
fn fits(text: &str) -> Result<(), String> {
    if text.contains("*/") || text.contains(char::is_control) {
        return Err("a comment is one line without */".to_owned());
    }
    if text.chars().count() > LONGEST_COMMENT {
        return Err(format!("longer than {LONGEST_COMMENT} characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const LINES: &str =
        "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg0 address 10.0.0.1/8\n";

    fn noted(line: &str) -> Result<Tree, String> {
        parse(&format!("{LINES}{line}")).map_err(|errors| errors[0].reason.clone())
    }

    #[test]
    fn a_comment_is_noted_replaced_and_removed() {
        let comment = |tree: &Tree, words: &[&str]| tree.at(words).and_then(Tree::comment).map(str::to_owned);
        let tree = noted(
            "comment interfaces wireguard wg0 'to the office'\ncomment interfaces wireguard wg0 mtu small\n",
        )
        .expect("right");
        let wg0 = ["interfaces", "wireguard", "wg0"];
        assert_eq!(comment(&tree, &wg0).as_deref(), Some("to the office"));
        assert_eq!(comment(&tree, &["interfaces", "wireguard", "wg0", "mtu"]).as_deref(), Some("small"));
        let again =
            noted("comment interfaces wireguard wg0 a\ncomment interfaces wireguard wg0 b").expect("right");
        assert_eq!(comment(&again, &wg0).as_deref(), Some("b"));
        assert_ne!(again, noted("").expect("right"), "a comment is a change");
        let spaces = noted("comment interfaces wireguard wg0 ' a  b '").expect("right");
        assert_eq!(comment(&spaces, &wg0).as_deref(), Some("a b"), "as it is read from braces");
        let none =
            noted("comment interfaces wireguard wg0 a\ncomment interfaces wireguard wg0 ''").expect("right");
        assert_eq!(none, noted("").expect("right"));
    }

    #[test]
    fn what_cannot_be_noted_is_told() {
        for (line, why) in [
            ("comment", "are missing"),
            ("comment interfaces", "are missing"),
            ("comment interfaces wireguard wg1 a", "it is not set"),
            ("comment interfaces wireguard a", "by its name"),
            ("comment interfaces wireguard wg0 mtu 1400 a", "in quotes"),
            ("comment interfaces wireguard wg0 'a */ b'", "without */"),
            ("comment interfaces wiregard wg0 a", "unknown word"),
        ] {
            let said = noted(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
