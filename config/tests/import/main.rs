//! Imports of other programs' configurations: what comes of realistic ones, what is left, and what is never shown.

mod ipsec_conf;
mod router;
mod swanctl;
mod uci;
mod wg_quick;

use config::Text;
use config::import::{Disk, Entry, Format, Imported, Outcome, Source, detect, import};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Secrets of the sources, none of which a report may show.
const SECRETS: &[&str] = &[
    "YAnz5TF",
    "IYyPlCoG5",
    "4N9AUaEQ",
    "hunter2",
    "sesame",
    "Sesame",
    "T3BlblNlc2FtZQ",
    "4f70656e",
    "annas password",
    "it's open",
    "secret of west",
    "another secret",
    "hexadecimal",
    "QxPs.uvRfGcb",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/sources")
}

fn of_text(name: &str, content: &str) -> Source {
    let mut text = Text::default();
    text.write_str(content).expect("memory");
    Source { name: name.to_owned(), text }
}

/// A source of the folder, under its path there.
fn source(name: &str) -> Source {
    let path = folder().join(name);
    Source { name: path.display().to_string(), text: Text::read(&path).expect("it is there") }
}

/// Imports files of the folder. Absolute paths lead into the folder `router`.
fn files(format: Format, names: &[&str], local: &[IpAddr]) -> Imported {
    let sources: Vec<Source> = names.iter().map(|name| source(name)).collect();
    assert_eq!(detect(&sources[0]), Some(format), "{names:?}");
    let root =
        if matches!(format, Format::Vyos | Format::EdgeOs) { folder().join("router") } else { "/".into() };
    let imported = import(format, &sources, &Disk { root }, local).unwrap_or_else(|error| panic!("{error}"));
    assert_no_secrets(&imported);
    imported
}

/// Imports a text, which must not name other files.
fn text(format: Format, content: &str) -> Imported {
    let sources = [of_text("/nowhere/source.conf", content)];
    import(format, &sources, &Disk { root: "/nowhere".into() }, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Why a text is refused, with its place.
fn refused(format: Format, content: &str) -> String {
    let sources = [of_text("it", content)];
    import(format, &sources, &Disk { root: "/nowhere".into() }, &[]).expect_err("it is wrong").to_string()
}

fn assert_no_secrets(imported: &Imported) {
    let shown = format!("{:?} {:?} {:?}", imported.entries, imported.problems, imported.warnings);
    for secret in SECRETS {
        assert!(!shown.contains(secret), "the report shows {secret}");
    }
}

fn lines(imported: &Imported) -> Vec<&str> {
    imported.text.as_str().expect("UTF-8").lines().collect()
}

/// The names of all peers of IPsec.
fn peers(imported: &Imported) -> BTreeSet<&str> {
    let of_line = |line: &&str| line.starts_with("set vpn ipsec site-to-site peer ");
    lines(imported).into_iter().filter(of_line).filter_map(|line| line.split(' ').nth(5)).collect()
}

/// Asserts that the result is valid and has these lines.
fn assert_lines(imported: &Imported, wanted: &[&str]) {
    assert!(imported.problems.is_empty(), "{:#?}", imported.problems);
    let lines = lines(imported);
    for wanted in wanted {
        let wanted = format!("set {wanted}");
        assert!(lines.contains(&&*wanted), "no {wanted} in\n{}", lines.join("\n"));
    }
}

/// The entries of the options in a line of a source.
fn at<'a>(imported: &'a Imported, file: &str, line: usize) -> Vec<&'a Entry> {
    let entries = imported.entries.iter();
    entries.filter(|entry| entry.place.line == line && entry.place.file.ends_with(file)).collect()
}

/// The line of the first entry of an option.
fn line_of(imported: &Imported, option: &str) -> usize {
    let found = imported.entries.iter().find(|entry| entry.option == option);
    found.unwrap_or_else(|| panic!("no {option}")).place.line
}

/// Why an option is left, and whether that matters for security.
fn left<'a>(imported: &'a Imported, option: &str) -> (&'a str, bool) {
    let found = imported.entries.iter().find_map(|entry| match &entry.outcome {
        Outcome::Left { why, security, .. } if entry.option == option => Some((why.as_str(), *security)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{option} is not left: {:#?}", imported.entries))
}

/// Asserts that each line of a source with an option is in the report.
fn assert_complete(imported: &Imported, file: &str, is_option: impl Fn(&str) -> bool) {
    let content = std::fs::read_to_string(folder().join(file)).expect("it is there");
    for (line, number) in content.lines().zip(1..) {
        let is_covered = imported.entries.iter().any(|entry| {
            entry.place.file.ends_with(file) && (entry.place.line..=entry.place.last_line).contains(&number)
        });
        assert!(!is_option(line.trim()) || is_covered, "{file}:{number}: {line}");
    }
}
