//! The guide: its links lead somewhere, and its configurations are accepted.

use config::Settings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder with an extension, in order.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder").flatten();
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

/// The guide with its table of contents, and the documents beside it for users, by path and text.
fn documents() -> BTreeMap<PathBuf, String> {
    let beside = [root().join("README.md"), root().join("examples/README.md")];
    files("docs", "md").into_iter().chain(beside).map(|path| (path.clone(), read(&path))).collect()
}

/// The lines outside code blocks, and the text of each code block.
fn split(text: &str) -> (Vec<&str>, Vec<String>) {
    let (mut prose, mut blocks, mut is_code) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
            if is_code {
                blocks.push(String::new());
            }
        } else if let (true, Some(block)) = (is_code, blocks.last_mut()) {
            block.push_str(line);
            block.push('\n');
        } else {
            prose.push(line);
        }
    }
    assert!(!is_code, "a code block does not end");
    (prose, blocks)
}

/// The targets of the links in a text.
fn links(text: &str) -> Vec<&str> {
    let (prose, _) = split(text);
    let after = prose.into_iter().flat_map(|line| line.split("](").skip(1));
    after.filter_map(|rest| rest.split(')').next()).collect()
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut followed = 0;
    for (document, text) in documents() {
        let folder = document.parent().expect("a folder");
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { document.clone() } else { folder.join(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", document.display());
            // What is beside the chapters is not in the book.
            let is_in_the_book = !document.starts_with(root().join("docs")) || !file.contains("..");
            assert!(is_in_the_book, "{}: {link} leads out of the book", document.display());
            let has_heading = || {
                let text = read(&target);
                let (prose, _) = split(&text);
                prose
                    .iter()
                    .any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading)
            };
            assert!(heading.is_empty() || has_heading(), "{}: {link} names no heading", document.display());
            followed += 1;
        }
    }
    assert!(followed > 20, "{followed} links");
}

#[test]
fn every_chapter_is_in_the_table_of_contents() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let listed = links(&summary);
    for chapter in files("docs", "md") {
        let name = chapter.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(name == "SUMMARY.md" || listed.contains(&name), "docs/SUMMARY.md lacks {name}");
    }
}

/// Whether a configuration is accepted, and otherwise why not.
fn check(text: &str) -> Result<(), String> {
    let checked = config::parse(text).and_then(|tree| Settings::new(&tree));
    checked.map(drop).map_err(|errors| {
        let errors: Vec<String> =
            errors.iter().map(|error| error.in_text("block", text).to_string()).collect();
        errors.join("\n")
    })
}

/// A block that is not a whole configuration is one together with an example, or with a whole block of the guide.
#[test]
fn every_configuration_of_the_guide_is_accepted() {
    let is_set = |line: &&str| line.starts_with("set ");
    let blocks: Vec<(PathBuf, String)> = documents()
        .into_iter()
        .flat_map(|(document, text)| {
            let (_, blocks) = split(&text);
            blocks.into_iter().map(move |block| (document.clone(), block))
        })
        .map(|(document, block)| {
            (document, block.lines().filter(is_set).map(|line| format!("{line}\n")).collect())
        })
        .filter(|(_, block): &(PathBuf, String)| !block.is_empty())
        .collect();
    assert!(blocks.len() > 20, "{} blocks", blocks.len());
    let examples = files("examples", "conf").into_iter().map(|path| read(&path));
    let whole: Vec<String> = blocks
        .iter()
        .map(|(_, block)| block.clone())
        .filter(|block| check(block).is_ok())
        .chain(examples)
        .collect();
    for (document, block) in blocks {
        if let Err(error) = config::parse(&block) {
            panic!("{}: {error:?}\n{block}", document.display());
        }
        let completes = |base: &String| check(&format!("{base}{block}")).is_ok();
        let is_accepted = check(&block).is_ok() || whole.iter().any(completes);
        assert!(is_accepted, "{}: no configuration with\n{block}{:?}", document.display(), check(&block));
    }
}
