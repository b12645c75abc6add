//! The configuration reference: a section for each branch of the schema, with its settings in a table.

use config::schema::{self, Kind, Node, Type};
use std::fmt::Write;

const HEAD: &str = "# Configuration reference\n\n\
    Generated from the schema by `postern generate configuration`; a test checks that it is current.\n\n\
    A setting is the line `set`, the words of its section and its own words. A word in angle brackets is a name or number of\n\
    your choice. A setting without a value is either there or not. Values with spaces stand in quotes. `postern run --check`\n\
    validates a file and changes nothing.\n\n\
    Algorithms have all names of VyOS. Those that are not supported are refused with one that is; the chapter on IPsec lists them.\n";

/// The reference in Markdown.
pub(crate) fn text() -> String {
    let mut text = HEAD.to_owned();
    let nodes: Vec<&Node> = schema::nodes().collect();
    let mut sections: Vec<&str> = Vec::new();
    for node in &nodes {
        if !sections.contains(&section_of(node.path)) {
            sections.push(section_of(node.path));
        }
    }
    for section in sections {
        let inside: Vec<&Node> =
            nodes.iter().copied().filter(|node| section_of(node.path) == section).collect();
        describe(section, &inside, &mut text);
    }
    text.push_str("\n## Not supported\n\nVyOS has these branches; Postern does not support them.\n\n");
    text.push_str("| branch | instead |\n|---|---|\n");
    for known in schema::unsupported_nodes() {
        let _ = writeln!(text, "| `{}` | {} |", known.path, known.instead);
    }
    text
}

/// The words up to the last name that the user chooses; without one, the branch in which the setting stands.
fn section_of(path: &str) -> &str {
    match path.rfind('>') {
        Some(end) => &path[..=end],
        None => path.rsplit_once(' ').map_or(path, |(branch, _)| branch),
    }
}

fn describe(section: &str, nodes: &[&Node], text: &mut String) {
    let _ = write!(text, "\n## {}\n\n", section.replace('<', "\\<"));
    if let Some(tag) = schema::tags().find(|tag| tag.path == section) {
        let name = section.rsplit(' ').next().unwrap_or(section);
        let _ = write!(text, "`{name}`: {}; {}.\n\n", tag.help, values(tag.kind));
    }
    text.push_str("| setting | value | default | meaning |\n|---|---|---|---|\n");
    // Neighbours that differ by name only share a row: the ciphers that can be pinned.
    for alike in nodes.chunk_by(|one, other| row(one) == row(other)) {
        let names: Vec<String> =
            alike.iter().map(|node| format!("`{}`", node.path[section.len()..].trim_start())).collect();
        let _ = writeln!(text, "| {} | {}", names.join(", "), row(alike[0]));
    }
}

/// The cells behind the name of a setting.
fn row(node: &Node) -> String {
    let value = match node.kind {
        Kind::Flag | Kind::Branch => "none".to_owned(),
        Kind::FlagOr(kind) => format!("none, or {}", values(kind)),
        Kind::Value(kind) => values(kind),
        Kind::Values(kind) => format!("{}; may be given again", values(kind)),
    };
    let secret = if node.secret { "; secret" } else { "" };
    let default = node.default.map(|default| format!("`{default}`")).unwrap_or_default();
    let note = match node.note {
        Some(note) if node.help.starts_with("Ignored") => note.replace("is ignored", ""),
        Some(note) => format!(". Warning when set: {note}"),
        None => String::new(),
    };
    format!("{value}{secret} | {default} | {}{note} |", node.help)
}

fn values(kind: Type) -> String {
    match kind {
        Type::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Type::Reference(target) => format!("the name of a `{}`", section_name(target)),
        _ => kind.expected(),
    }
}

/// The words of a branch without the name that the user chooses.
fn section_name(path: &str) -> &str {
    path.rsplit_once(" <").map_or(path, |(branch, _)| branch)
}
