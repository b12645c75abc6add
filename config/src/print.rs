//! Writes a configuration as `set` lines: one order, one spelling.

use crate::text::Text;
use crate::tree::Tree;
use crate::{diff, schema};
use std::fmt::{self, Write};

/// What stands in the place of a secret.
pub const HIDDEN: &str = "********";

/// The lines of a configuration, secrets hidden unless asked for; whoever asks answers for what becomes of them.
pub fn commands(tree: &Tree, secrets: bool) -> String {
    let mut text = String::new();
    // A string takes whatever is written.
    let _ = write(tree, secrets, &mut text);
    text
}

/// The lines of a configuration with its secrets, from which it can be read again. A tree takes fourteen times the room.
pub fn text(tree: &Tree) -> Text {
    let mut text = Text::default();
    // It grows as it must.
    let _ = write(tree, true, &mut text);
    text
}

fn write(tree: &Tree, secrets: bool, out: &mut impl Write) -> fmt::Result {
    for statement in diff::statements(tree) {
        out.write_str("set ")?;
        statement.write(secrets, out)?;
        out.write_str("\n")?;
    }
    Ok(())
}

/// A value as it must be written to be read as one word.
pub fn quoted(value: &str) -> String {
    let mut text = String::new();
    write_quoted(value, &mut text).expect("a string takes whatever is written");
    text
}

/// Writes a value so that it is read as one word.
pub(crate) fn write_quoted(value: &str, out: &mut impl Write) -> fmt::Result {
    let plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || "'\"#".contains(c));
    if plain {
        return out.write_str(value);
    }
    // Quotations that touch are one word: a single quote goes into double ones, everything else into single ones.
    for (index, part) in value.split('\'').enumerate() {
        out.write_str(if index == 0 { "" } else { "\"'\"" })?;
        write!(out, "'{part}'")?;
    }
    Ok(())
}

/// Whether a configuration has anything that others must not read.
pub fn has_secrets(tree: &Tree) -> bool {
    diff::statements(tree).iter().any(|statement| statement.value().is_some() && is_secret(statement.path()))
}

/// Whether the value at a path must not be shown.
pub(crate) fn is_secret(path: &[&str]) -> bool {
    matches!(schema::find(path), Some(schema::Place::Node(node)) if node.secret)
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
        assert!(has_secrets(&parse(TEXT).expect("right")) && !has_secrets(&public));
    }
}
