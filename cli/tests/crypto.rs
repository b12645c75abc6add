//! The program's own measurements and findings, as its users see them.

use serde_json::Value;
use std::process::{Command, Output};

fn postern(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postern")).args(arguments).output().expect("the program runs")
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("JSON, not {error}"))
}

#[test]
fn bench_crypto_has_every_cipher_size_and_operation() {
    let output = postern(&["bench", "crypto", "--seconds", "0.01", "--json"]);
    assert!(output.status.success());
    let report = json(&output);
    let rows = report["rows"].as_array().expect("rows");
    let of = |name: &str| rows.iter().filter(|row| row["name"] == name && row["engine"] == "aws-lc").count();
    for name in ["chacha20-poly1305", "aes-256-gcm", "aes-128-cbc+hmac-sha1-96", "null+aes-xcbc-96", "sha512"]
    {
        assert_eq!(of(name), 1, "{name}");
    }
    // Each row of `openssl speed`.
    for name in ["sha1", "des-cbc", "des-ede3-cbc", "aes-128-cbc", "aes-192-cbc", "aes-256-cbc", "sha256"] {
        assert_eq!(of(name), 1, "{name}");
    }
    for row in rows {
        let sizes = row["sizes"].as_array().expect("sizes");
        let bytes: Vec<u64> = sizes.iter().filter_map(|it| it["size"].as_u64()).collect();
        assert_eq!(bytes, [16, 64, 256, 512, 1024, 1400, 8192, 16_384], "{}", row["name"]);
        assert!(sizes.iter().all(|it| it["bytes_per_second"].as_f64().is_some_and(|speed| speed > 0.0)));
    }
    assert_eq!(report["operations"].as_array().map(Vec::len), Some(15));
    if cfg!(target_arch = "x86_64") && report["without"].is_object() {
        let gcm = rows.iter().find(|row| row["name"] == "aes-128-gcm" && row["engine"] == "aws-lc");
        assert!(gcm.is_some_and(|row| row["sizes"][5]["improvement"].is_f64()), "it was compared");
    }
}

#[test]
fn charts_are_drawn_and_unauthenticated_sources_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a plain path");
    let few = ["bench", "crypto", "--seconds", "0.01", "--sizes", "packets", "--cipher", "aes-128-gcm"];
    let output = postern(&[&few[..], &["--open", "--chart", path]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("2 charts in"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for name in ["aes-128-gcm.svg", "aes-128-gcm-open.svg"] {
        let svg = std::fs::read_to_string(directory.path().join(name)).expect("a chart");
        assert!(svg.starts_with("<svg") && svg.contains(">1400</text>"));
    }
    let unknown = postern(&["bench", "crypto", "--cipher", "rot13"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("fix: one of chacha20-poly1305"));
    let unknown = postern(&["bench", "crypto", "--engine", "abacus"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no engine abacus"));
}

#[test]
fn doctor_finds_an_accelerator_without_a_driver() {
    let root = tempfile::tempdir().expect("a directory");
    let device = root.path().join("sys/bus/pci/devices/0000:01:00.0");
    std::fs::create_dir_all(&device).expect("writable");
    for (name, value) in [("vendor", "0x8086"), ("device", "0x37c8"), ("class", "0x0b4000")] {
        std::fs::write(device.join(name), value).expect("writable");
    }
    let path = root.path().to_str().expect("a plain path").to_owned();
    let output = postern(&["doctor", "crypto", "--json", "--root", &path]);
    assert_eq!(output.status.code(), Some(1), "there are findings");
    let findings = json(&output);
    let names: Vec<&str> =
        findings["findings"].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
    assert!(names.contains(&"accelerator-without-driver"), "{names:?}");
}

#[test]
fn doctor_finds_a_variable_that_hides_aes() {
    let output = Command::new(env!("CARGO_BIN_EXE_postern"))
        .args(["doctor", "crypto", "--json"])
        .env("OPENSSL_ia32cap", "~0x200000200000000")
        .output()
        .expect("the program runs");
    let report = json(&output);
    let has_aes = report["capabilities"].as_array().is_some_and(|all| all.iter().any(|it| it == "AES"));
    if !cfg!(target_arch = "x86_64") || !has_aes {
        return eprintln!("skipped: this processor has no AES to hide");
    }
    let findings = report["findings"].as_array().expect("findings");
    let word = findings.iter().find(|it| it["name"] == "capability-word").expect("it is found");
    assert!(word["cost"].as_str().is_some_and(|cost| cost.contains("without the variable")), "{word}");
}

#[test]
fn the_machine_is_shown() {
    let cpu = postern(&["show", "system", "cpu", "--json"]);
    assert!(json(&cpu)["flags"].as_array().is_some_and(|flags| !flags.is_empty()));
    let text = postern(&["show", "system", "cpu", "info"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("Flags: "));
    let acceleration = postern(&["show", "system", "acceleration", "--json"]);
    assert!(json(&acceleration)["accelerators"].is_array());
}
