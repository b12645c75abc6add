//! Writes a configuration as `set` lines or in braces: one order, one spelling.

use crate::schema::Cursor;
use crate::statement::{Statement, comments_at, own_statements, statements, write_words};
use crate::text::Text;
use crate::tree::Tree;
use std::fmt::{self, Write};

pub use crate::statement::{HIDDEN, quoted};

/// The lines of a configuration without its comments, and with its secrets hidden unless `secrets` is set: then the caller must protect them.
pub fn commands(tree: &Tree, secrets: bool) -> String {
    let mut text = String::new();
    // A string takes whatever is written.
    let _ = write(tree, secrets, &mut text);
    text
}

/// The lines of a configuration as a log may have them: without secrets, and without names and values that are passwords.
pub fn public(tree: &Tree) -> Vec<String> {
    let line = |statement: &Statement<'_>| {
        let mut text = "set ".to_owned();
        // A string takes whatever is written.
        let _ = statement.write_public(&mut text);
        text
    };
    statements(tree).iter().map(line).collect()
}

/// The lines of a configuration with its secrets, from which it can be read again.
pub fn text(tree: &Tree) -> Text {
    let mut text = Text::default();
    // It grows as it must.
    let _ = write(tree, true, &mut text);
    // Behind what they are about, so that it is there when they are read.
    for comment in comments_at(tree, &[]) {
        let _ = writeln!(text, "{comment}");
    }
    text
}

/// The configuration in braces, as `config.boot` has it, with its secrets hidden unless `secrets` is set: then the caller
/// must protect them.
pub fn braces(tree: &Tree, secrets: bool) -> String {
    let mut text = String::new();
    // A string takes whatever is written.
    let _ = crate::braces::write(tree, secrets, &mut text);
    text
}

fn write(tree: &Tree, secrets: bool, out: &mut impl Write) -> fmt::Result {
    write_branch(tree, Some(Cursor::root()), &mut "set".to_owned(), secrets, out)
}

/// Writes the lines of a branch. `above` has the words before it as they are written: of thousands of lines each word is written
/// once for all that follow it.
fn write_branch(
    tree: &Tree,
    place: Option<Cursor>,
    above: &mut String,
    secrets: bool,
    out: &mut impl Write,
) -> fmt::Result {
    for statement in own_statements(tree, &[], place) {
        out.write_str(above)?;
        out.write_str(" ")?;
        statement.write(secrets, out)?;
        out.write_str("\n")?;
    }
    for (word, child) in tree.children() {
        let length = above.len();
        above.push(' ');
        write_words(std::iter::once(word), above)?;
        let place = place.and_then(|place| place.down(word));
        if child.is_empty() {
            writeln!(out, "{above}")?;
        } else {
            write_branch(child, place, above, secrets, out)?;
        }
        above.truncate(length);
    }
    Ok(())
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&commands(self, false))
    }
}

/// Whether a configuration has anything that others must not read.
pub fn has_secrets(tree: &Tree) -> bool {
    statements(tree).iter().any(Statement::is_secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const TEXT: &str = "set interfaces wireguard wg2 address 10.0.0.1/8\n\
        set interfaces wireguard wg2 address 10.0.0.2/8\n\
        set interfaces wireguard wg2 description 'a b'\n\
        set interfaces wireguard wg2 disable\n\
        set interfaces wireguard wg2 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n\
        set interfaces wireguard wg10\n";

    #[test]
    fn what_is_printed_is_read_as_the_same() {
        let tree = parse(TEXT).expect("right");
        assert_eq!(commands(&tree, true), TEXT);
        assert_eq!(text(&tree).as_str(), Ok(TEXT));
        assert_eq!(parse(&commands(&tree, true)).expect("right"), tree);
    }

    #[test]
    fn any_text_can_be_quoted() {
        for text in ["", "a b", "it's", "'", "a\"b", "both ' and \"", "#", "'' '"] {
            let line = format!("set interfaces wireguard wg0 description {}", quoted(text));
            let tree = parse(&line).unwrap_or_else(|errors| panic!("{line}: {errors:?}"));
            let wg0 = tree.at(&["interfaces", "wireguard", "wg0"]).expect("set");
            assert_eq!(wg0.value("description"), Some(text), "{line}");
        }
    }

    #[test]
    fn secrets_are_hidden_unless_asked_for() {
        let shown = commands(&parse(TEXT).expect("right"), false);
        assert!(shown.contains("private-key ********\n") && !shown.contains("YAnz5"));
        let public = TEXT.lines().filter(|line| !line.contains("private-key"));
        let public = parse(&public.collect::<Vec<_>>().join("\n")).expect("right");
        let branch = parse(TEXT).expect("right").at(&["interfaces", "wireguard", "wg2"]).cloned();
        assert!(!format!("{branch:?}").contains("YAnz5"), "a branch does not know what it is a branch of");
        assert!(has_secrets(&parse(TEXT).expect("right")) && !has_secrets(&public));
    }
}
