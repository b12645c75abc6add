//! On a machine that has none of the libraries the program can use: a directory with nothing in it but the program and what
//! it is linked with.

use crate::machine::take;
use crate::support::{postern, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Such a directory; removed with everything in it.
struct Bare(PathBuf);

impl Bare {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("postern-bare-{}", std::process::id()));
        std::fs::create_dir_all(root.join("bin")).expect("a directory");
        take(&postern(), &root);
        Self(root)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new("chroot").arg(&self.0).arg("/bin/postern").args(arguments).output().expect("chroot runs")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {said}"))
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_any_library_the_program_runs_and_says_what_it_lacks() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root for chroot");
    }
    let bare = Bare::new();
    assert!(!Path::new(&bare.0).join("usr/lib").exists(), "only what the program is linked with");
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
        assert!(places.iter().all(|place| place["chosen"] == "aws-lc"), "{}", cipher["name"]);
    }
    // It does its work, too: every stage of the data path, with real packets and the built-in engine.
    let measured = bare.json(&["bench", "pipeline", "--seconds", "0.02"]);
    assert!(measured.to_string().contains("encrypt"), "{measured}");
}
