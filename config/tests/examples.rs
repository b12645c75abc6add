//! The examples are accepted, without a warning.

use std::path::Path;

#[test]
fn every_example_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let entries = std::fs::read_dir(folder).expect("it is there").flatten();
    let examples: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "conf"))
        .collect();
    assert!(!examples.is_empty());
    for path in examples {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let checked = config::parse(&text).and_then(|tree| config::Settings::new(&tree));
        let (settings, warnings) = checked.unwrap_or_else(|errors| {
            let file = path.display().to_string();
            let said: Vec<String> =
                errors.iter().map(|error| error.in_text(&file, &text).to_string()).collect();
            panic!("{}", said.join("\n"))
        });
        assert!(warnings.is_empty() && !settings.wireguard.is_empty(), "{}: {warnings:?}", path.display());
    }
}
