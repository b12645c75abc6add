//! The completion of bash, with the program that it asks.

use std::path::Path;
use std::process::Command;

/// What bash offers for the last of these words.
fn offered(script: &Path, words: &[&str]) -> Vec<String> {
    let text = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
        _postern_operational "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["-c", text, "bash"]).arg(script).arg(env!("CARGO_BIN_EXE_postern")).args(words);
    let output = bash.output().expect("bash is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_words_of_the_table_and_options() {
    let share = std::env::temp_dir().join(format!("postern-completion-{}", std::process::id()));
    let made = Command::new(env!("CARGO_BIN_EXE_postern")).args(["generate", "manual"]).arg(&share).status();
    assert!(made.expect("it runs").success());
    let script = share.join("bash-completion/completions/postern");
    assert_eq!(offered(&script, &["show", "vpn", "ipsec", "st"]), ["state", "status"]);
    assert_eq!(offered(&script, &["restart", ""]), ["vpn", "ipsec"]);
    assert_eq!(offered(&script, &["show", "crypto", "aes-192-g"]), ["aes-192-gcm"]);
    assert_eq!(
        offered(&script, &["show", "drops", "--al"]),
        ["--all"],
        "what the table does not offer is generated"
    );
    assert_eq!(offered(&script, &["bench", "pipe"]), ["pipeline"]);
    std::fs::remove_dir_all(&share).expect("it was made");
}
