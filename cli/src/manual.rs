//! `postern generate manual`: man pages, shell completions and the references of commands and of the configuration, made from
//! the command definitions and the schema.

pub(crate) mod configuration;
mod reference;

use crate::operational::complete;
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

/// A shell, where it looks for completions below `share`, and what makes its script from the generated one.
type Completion = (Shell, &'static str, fn(&str) -> String);

const COMPLETIONS: &[Completion] = &[
    (Shell::Bash, "bash-completion/completions/postern", complete::for_bash),
    (Shell::Zsh, "zsh/site-functions/_postern", complete::for_zsh),
    (Shell::Fish, "fish/vendor_completions.d/postern.fish", complete::for_fish),
];

/// A reference in Markdown: what makes its text, and where it goes below `share`.
type Reference = (fn() -> String, &'static str);

const REFERENCES: [Reference; 2] =
    [(reference::text, "doc/postern/commands.md"), (configuration::text, "doc/postern/configuration.md")];

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    write(&arguments.directory).map_err(|error| format!("{}: {error}", arguments.directory.display()).into())
}

fn write(share: &Path) -> std::io::Result<()> {
    let mut command = Cli::command();
    for &(shell, place, script) in COMPLETIONS {
        let mut generated = Vec::new();
        clap_complete::generate(shell, &mut command, "postern", &mut generated);
        put(&share.join(place), script(&String::from_utf8_lossy(&generated)).as_bytes())?;
    }
    for (text, place) in REFERENCES {
        put(&share.join(place), text().as_bytes())?;
    }
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
    fn every_verb_has_a_page_every_shell_a_file_and_the_references_are_current() {
        let share = std::env::temp_dir().join(format!("postern-share-{}", std::process::id()));
        write(&share).expect("it is written");
        let read = |place: &str| {
            fs::read_to_string(share.join(place)).unwrap_or_else(|error| panic!("{place}: {error}"))
        };
        assert!(read("man/man1/postern.1").contains("postern\\-reload"));
        let reload = read("man/man1/postern-reload.1");
        assert!(reload.starts_with(".ie") || reload.contains(".TH postern"), "{reload}");
        assert!(reload.contains("Exit status: 0"), "the page has the exit codes: {reload}");
        read("man/man1/postern-show-vpn-ipsec-sa.1");
        for &(_, place, _) in COMPLETIONS {
            assert!(read(place).contains("reload"), "{place}");
        }
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for (_, place) in REFERENCES {
            let name = Path::new(place).file_name().expect("a file");
            let committed = fs::read_to_string(docs.join(name)).expect("it is committed");
            assert!(
                read(place) == committed,
                "docs/{name} is not what the program has\n  fix: cp {made} docs/{name}",
                name = name.display(),
                made = share.join(place).display()
            );
        }
        fs::remove_dir_all(&share).expect("it is there");
    }
}
