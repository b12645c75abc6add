//! Files and command lines of ipsec-secgw. Each finding is a sentence, and no finding shows a key.

use config::secgw::{CommandLine, Context, Loaded, Severity, check, lint, read};

/// A file; its first line is read as a command line too, and decides with it how the file is read.
pub fn files(data: &[u8]) {
    let first = data.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let words: Vec<String> = String::from_utf8_lossy(first).split_whitespace().map(str::to_owned).collect();
    for strict in [false, true] {
        let loaded = read(data, &Context { strict, ..Context::default() });
        examine(&loaded, None, strict);
        match CommandLine::read(&words, 4) {
            Ok(words) => examine(&read(data, &words.context(strict)), Some(&words), strict),
            Err(error) => assert!(error.severity == Severity::Error && !error.text.is_empty()),
        }
    }
}

fn examine(loaded: &Loaded, words: Option<&CommandLine>, strict: bool) {
    let lines: Vec<u32> = loaded.findings.iter().filter_map(|finding| finding.line).collect();
    assert!(lines.is_sorted(), "{:?}", loaded.findings);
    let errors = loaded.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    assert!(errors <= 1, "reading ends at the first error");
    for finding in lint(loaded, words, strict) {
        assert!(!finding.text.is_empty() && !finding.rule.is_empty());
        assert!(finding.severity != Severity::Error || !finding.fix.is_empty(), "{finding:?}");
    }
    for sa in &loaded.settings.sas {
        assert_ne!(sa.spi, 0);
        if let Some(transform) = sa.protection.transform() {
            assert!(sa.keys.len() >= transform.key_material_length());
        }
    }
    if let Some(words) = words {
        let found = lint(loaded, Some(words), strict);
        let is_error = |finding: &config::secgw::Finding| finding.severity == Severity::Error;
        assert_eq!(check(loaded, words, strict).iter().any(is_error), found.iter().any(is_error));
    }
}
