//! The documents say what the code does.

use std::path::{Path, PathBuf};

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(document: &str) -> String {
    std::fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

#[test]
fn the_diagram_of_the_architecture_is_that_of_the_stages() {
    let diagram = gateway::datapath::diagram();
    assert!(
        read("ARCHITECTURE.md").contains(&format!("```text\n{diagram}```\n")),
        "ARCHITECTURE.md must show what `postern show datapath` prints:\n{diagram}"
    );
}

/// The words between backticks, and the targets of links.
fn words(text: &str) -> Vec<&str> {
    let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    code.flat_map(str::split_whitespace).chain(links).collect()
}

/// Whether a word claims to be a path of this repository: a source file, or anything below one of its folders.
fn is_path(word: &str) -> bool {
    let first = word.split('/').next().unwrap_or_default();
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let is_pattern = word.split(['/', '.']).any(|part| part == "NAME");
    let is_inside = word.contains('/') && !first.is_empty() && root().join(first).is_dir();
    is_plain && !is_pattern && (is_inside || is_named(word, "md"))
}

fn is_named(word: &str, extension: &str) -> bool {
    Path::new(word).extension().is_some_and(|found| found == extension)
}

#[test]
fn every_path_in_the_documents_exists() {
    let documents = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "docs/performance.md"];
    for document in documents {
        let text = read(document);
        // A link leads on from the folder of its document.
        let folder = root().join(document).parent().expect("a folder").to_owned();
        let paths: Vec<&str> = words(&text).into_iter().filter(|word| is_path(word)).collect();
        assert!(!paths.is_empty(), "{document} names no path");
        for path in paths {
            let exists = root().join(path).exists() || folder.join(path).exists();
            assert!(exists, "{document} names {path}, which does not exist");
        }
    }
}

/// The map names each folder of the workspace, and every source file that the architecture names has its whole path.
#[test]
fn the_architecture_names_every_crate_and_whole_paths() {
    let text = read("ARCHITECTURE.md");
    let manifest = read("Cargo.toml");
    let (_, members) = manifest.split_once("members = [").expect("a workspace");
    let members = members.split(']').next().expect("a list").split('"').skip(1).step_by(2);
    for member in members {
        assert!(text.contains(&format!("\n| `{member}/` | ")), "the map lacks {member}");
    }
    for word in words(&text).into_iter().filter(|word| is_named(word, "rs")) {
        assert!(is_path(word), "{word} is not a whole path");
    }
    assert!(text.lines().count() < 200, "ARCHITECTURE.md has {} lines", text.lines().count());
}
