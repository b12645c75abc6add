//! The words of EAL that go without saying.

use std::path::Path;

/// Words that say what memory there is.
const MEMORY: [&str; 4] = ["--no-huge", "--huge-dir", "--socket-mem", "--legacy-mem"];
/// Words about files that other processes see.
const FILES: [&str; 5] = ["--in-memory", "--no-shconf", "--file-prefix", "--huge-unlink", "--proc-type"];
/// MiB without huge pages, unless `-m` says how many.
const MEGABYTES: &str = "256";

/// The words of a user, and what goes without saying: one lcore on this processor, as EAL has only one thread of its own; no huge pages if
/// there are none; no files and no telemetry unless a word asks for them.
pub fn completed(words: &[String], processor: u32) -> Vec<String> {
    complete(words, processor, has_huge_pages(Path::new("/sys")))
}

fn complete(words: &[String], processor: u32, has_huge_pages: bool) -> Vec<String> {
    let has =
        |names: &[&str]| words.iter().any(|word| names.contains(&word.split('=').next().unwrap_or(word)));
    let mut all = words.to_vec();
    let mut add = |more: &[&str]| all.extend(more.iter().map(|&word| word.to_owned()));
    add(&["--lcores", &format!("0@{processor}")]);
    let is_small = has(&["--no-huge"]) || !(has_huge_pages || has(&MEMORY));
    if is_small && !has(&["--no-huge"]) {
        add(&["--no-huge"]);
    }
    if is_small && !has(&["-m"]) {
        add(&["-m", MEGABYTES]);
    }
    if !has(&FILES) {
        add(&[if is_small { "--no-shconf" } else { "--in-memory" }]);
    }
    if !has(&["--telemetry", "--no-telemetry"]) {
        add(&["--no-telemetry"]);
    }
    all
}

/// Whether huge pages of any size are reserved; `system` is /sys.
fn has_huge_pages(system: &Path) -> bool {
    let sizes = std::fs::read_dir(system.join("kernel/mm/hugepages")).into_iter().flatten().flatten();
    let counts = sizes.map(|size| std::fs::read_to_string(size.path().join("nr_hugepages")));
    counts.flatten().any(|count| count.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_goes_without_saying_is_added_unless_words_say_otherwise() {
        for (given, has_huge_pages, expected) in [
            ("--no-pci", false, "--no-pci --lcores 0@3 --no-huge -m 256 --no-shconf --no-telemetry"),
            ("-m 64", true, "-m 64 --lcores 0@3 --in-memory --no-telemetry"),
            ("--no-huge -m 64", true, "--no-huge -m 64 --lcores 0@3 --no-shconf --no-telemetry"),
            (
                "--socket-mem=64 --file-prefix a --telemetry",
                false,
                "--socket-mem=64 --file-prefix a --telemetry --lcores 0@3",
            ),
        ] {
            assert_eq!(complete(&words(given), 3, has_huge_pages).join(" "), expected);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let size = folder.path().join("kernel/mm/hugepages/hugepages-2048kB");
        std::fs::create_dir_all(&size).expect("a folder");
        std::fs::write(size.join("nr_hugepages"), "0\n").expect("a file");
        assert!(!has_huge_pages(folder.path()));
        std::fs::write(size.join("nr_hugepages"), "512\n").expect("a file");
        assert!(has_huge_pages(folder.path()));
    }
}
