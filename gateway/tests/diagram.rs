//! The documents say what the code does.

use std::path::Path;

#[test]
fn the_diagram_of_the_architecture_is_that_of_the_stages() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let document = std::fs::read_to_string(path).expect("it is there");
    let diagram = gateway::datapath::diagram();
    assert!(
        document.contains(&format!("```text\n{diagram}```\n")),
        "ARCHITECTURE.md must show what `postern show datapath` prints:\n{diagram}"
    );
}
