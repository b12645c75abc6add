//! On a machine that has none of the libraries the program can use: a directory with nothing in it but the program and what
//! it is linked with.

use crate::machine::take;
use crate::support::{postern, skip};
use serde_json::Value;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Such a directory.
struct Bare(TempDir);

impl Bare {
    fn new() -> Self {
        let root = TempDir::new().expect("a directory");
        std::fs::create_dir(root.path().join("bin")).expect("a directory");
        take(&postern(), root.path());
        Self(root)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new("chroot")
            .arg(self.0.path())
            .arg("/bin/postern")
            .args(arguments)
            .output()
            .expect("chroot runs")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {said}"))
    }
}

#[test]
fn without_any_library_the_program_runs_and_says_what_it_lacks() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root for chroot");
    }
    let bare = Bare::new();
    assert!(!bare.0.path().join("usr/lib").exists(), "only what the program is linked with");
    let shown = bare.json(&["show", "crypto"]);
    let described = |name: &str| {
        let engines = shown["engines"].as_array().expect("a list");
        let engine = engines.iter().find(|engine| engine["name"] == name).expect("every engine is listed");
        let text = |field: &str| engine[field].as_str().unwrap_or_default().to_owned();
        (text("state"), text("why"))
    };
    assert_eq!(described("aws-lc").0, "in use");
    for (engine, library) in [("ipsec-mb", "libIPSec_MB"), ("openssl", "libcrypto")] {
        let (state, why) = described(engine);
        assert!(state == "absent" && why.contains(library), "{engine}: {state}: {why}");
    }
    for cipher in shown["ciphers"].as_array().expect("a list") {
        let places = cipher["places"].as_array().expect("a list");
        let is_chacha = cipher["name"] == "chacha20-poly1305";
        let is_built_in =
            |place: &Value| place["chosen"] == "aws-lc" || is_chacha && place["chosen"] == "multi-buffer";
        assert!(places.iter().all(is_built_in), "{}", cipher["name"]);
    }
    // It does its work, too: every stage of the data path, with real packets and the built-in engine.
    let measured = bare.json(&["bench", "pipeline", "--seconds", "0.02"]);
    assert!(measured.to_string().contains("encrypt"), "{measured}");
}
