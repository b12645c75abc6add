//! `postern generate manual`: man pages, shell completions and the command reference, made from the command definitions.

mod reference;

use crate::{Cli, Outcome};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder to write to, laid out as /usr/share
    directory: PathBuf,
}

/// Where each shell looks for completions, below `share`.
const COMPLETIONS: &[(Shell, &str)] = &[
    (Shell::Bash, "bash-completion/completions/postern"),
    (Shell::Zsh, "zsh/site-functions/_postern"),
    (Shell::Fish, "fish/vendor_completions.d/postern.fish"),
];

/// Where the command reference goes, below `share`.
const REFERENCE: &str = "doc/postern/commands.md";

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    write(&arguments.directory).map_err(|error| format!("{}: {error}", arguments.directory.display()).into())
}

fn write(share: &Path) -> std::io::Result<()> {
    let mut command = Cli::command();
    for &(shell, place) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "postern", &mut text);
        put(&share.join(place), &text)?;
    }
    put(&share.join(REFERENCE), reference::text().as_bytes())?;
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), pages)
}

fn put(path: &Path, text: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_page_every_shell_a_file_and_the_reference_is_current() {
        let share = std::env::temp_dir().join(format!("postern-share-{}", std::process::id()));
        write(&share).expect("it is written");
        let read = |place: &str| {
            fs::read_to_string(share.join(place)).unwrap_or_else(|error| panic!("{place}: {error}"))
        };
        assert!(read("man/man1/postern.1").contains("postern\\-reload"));
        let reload = read("man/man1/postern-reload.1");
        assert!(reload.starts_with(".ie") || reload.contains(".TH postern"), "{reload}");
        assert!(reload.contains("exit"), "the page has the exit codes: {reload}");
        read("man/man1/postern-show-vpn-ipsec-sa.1");
        for &(_, place) in COMPLETIONS {
            assert!(read(place).contains("reload"), "{place}");
        }
        let committed = include_str!("../../docs/commands.md");
        assert!(
            read(REFERENCE) == committed,
            "docs/commands.md is not what the commands are\n  fix: cp {} docs/commands.md",
            share.join(REFERENCE).display()
        );
        fs::remove_dir_all(&share).expect("it is there");
    }
}
