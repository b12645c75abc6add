//! Replays the fuzz corpus, with all crashes that were ever found, in every test run.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};
use std::path::Path;

#[test]
fn every_input_of_the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in fuzz::TARGETS {
        let entries =
            std::fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("corpus of {name}: {error}"));
        let mut inputs = 0;
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            let data = std::fs::read(&path).expect("a readable file");
            eprintln!("{}", path.display());
            target(&data);
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no corpus");
    }
}

proptest! {
    // A failing input belongs in the corpus, which the test above replays.
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A few thousand arbitrary inputs, so that a target that fails at once is noticed without a fuzzer.
    #[test]
    fn arbitrary_bytes_are_survived(data in vec(any::<u8>(), 0..300)) {
        for (_, target) in fuzz::TARGETS {
            target(&data);
        }
    }
}
