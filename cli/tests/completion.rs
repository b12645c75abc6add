//! The completion of the shells, with the program that it asks.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// What a shell runs to print what it offers for the last of its arguments. The first is its completion script.
struct Shell {
    name: &'static str,
    script: &'static str,
    prints: &'static str,
}

const BASH: Shell = Shell {
    name: "bash",
    script: "bash-completion/completions/postern",
    prints: r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
        _postern_operational "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf '%s\n' "${COMPREPLY[@]}""#,
};
/// Without the completion system of zsh, which needs a terminal: its functions print what they are given.
const ZSH: Shell = Shell {
    name: "zsh",
    script: "zsh/site-functions/_postern",
    prints: r#"compdef() { }; _describe() { print -rl -- "${(@P)3}" }; _arguments() { print -r -- "generated" }
        source "$1"; shift; words=("$@"); CURRENT=$#words; _postern"#,
};
const FISH: Shell = Shell {
    name: "fish",
    script: "fish/vendor_completions.d/postern.fish",
    prints: r#"source "$argv[2]"; complete --do-complete (string join -- " " postern $argv[4..-1])"#,
};

/// A folder with what `postern generate manual` makes.
fn share() -> tempfile::TempDir {
    let share = tempfile::tempdir().expect("a folder");
    let postern = env!("CARGO_BIN_EXE_postern");
    let made = Command::new(postern).args(["generate", "manual"]).arg(share.path()).status();
    assert!(made.expect("it runs").success());
    share
}

/// Whether the shell is here; without it the test cannot run.
fn is_here(shell: &Shell) -> bool {
    let is_here = Command::new(shell.name).args(["-c", "true"]).status().is_ok();
    if !is_here {
        assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set, and {} is missing", shell.name);
        // Past the capture of the test harness, which would hide it.
        let _ =
            std::io::stderr().write_all(format!("SKIPPED: needs {} (make setup)\n", shell.name).as_bytes());
    }
    is_here
}

/// What a shell offers for the last of these words: each with its help, except in bash.
fn offered(shell: &Shell, share: &Path, words: &[&str]) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_postern"));
    let path =
        [program.parent().expect("a folder").as_os_str(), &std::env::var_os("PATH").unwrap_or_default()];
    let mut command = Command::new(shell.name);
    command.env("PATH", path.join(std::ffi::OsStr::new(":"))).args(["-c", shell.prints, shell.name]);
    let output = command.arg(share.join(shell.script)).arg(program).args(words).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_words_of_the_table_and_options() {
    let share = share();
    let offered = |words: &[&str]| offered(&BASH, share.path(), words);
    assert_eq!(offered(&["show", "vpn", "ipsec", "st"]), ["state", "status"]);
    assert_eq!(offered(&["restart", ""]), ["vpn", "ipsec"]);
    assert_eq!(offered(&["show", "crypto", "aes-192-g"]), ["aes-192-gcm"]);
    assert_eq!(offered(&["show", "drops", "--al"]), ["--all"], "what the table does not offer is generated");
    assert_eq!(offered(&["bench", "pipe"]), ["pipeline"]);
}

#[test]
fn zsh_offers_words_and_names_with_their_help() {
    if !is_here(&ZSH) {
        return;
    }
    let share = share();
    let offered = |words: &[&str]| offered(&ZSH, share.path(), words);
    assert_eq!(offered(&["show", "crypto", "aes-192-g"]), ["aes-192-gcm:Only this cipher"]);
    let restart = "Re-establish all IPsec connections";
    assert_eq!(offered(&["restart", ""]), [format!("vpn:{restart}"), format!("ipsec:{restart}")]);
    for generated in [["show", "drops", "--al"], ["bench", "pipeline", "--"]] {
        assert!(offered(&generated).contains(&"generated".to_owned()), "{generated:?}");
    }
}

#[test]
fn fish_offers_words_and_names_with_their_help() {
    if !is_here(&FISH) {
        return;
    }
    let share = share();
    let offered = |words: &[&str]| offered(&FISH, share.path(), words);
    assert_eq!(offered(&["show", "crypto", "aes-192-g"]), ["aes-192-gcm\tOnly this cipher"]);
    let names = |words: &[&str]| -> Vec<String> {
        let offered = offered(words);
        offered.iter().filter_map(|line| Some(line.split_once('\t')?.0.to_owned())).collect()
    };
    assert_eq!(names(&["restart", ""]), ["ipsec", "vpn"], "and not what is generated beside them");
    assert_eq!(names(&["show", "drops", "--al"]), ["--all"]);
    assert_eq!(names(&["bench", "pipe"]), ["pipeline"]);
}
