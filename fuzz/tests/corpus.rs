//! Replays the fuzz corpus, with all crashes that were ever found, in every test run.

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

/// A few thousand arbitrary inputs, so that a target that fails at once is noticed without a fuzzer.
#[test]
fn arbitrary_bytes_are_survived() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for (_, target) in fuzz::TARGETS {
        for _ in 0..300 {
            let length = random() % 300;
            let data: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            target(&data);
        }
    }
}
