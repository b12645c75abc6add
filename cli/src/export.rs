//! `postern export`: the configuration in the words of another program.

use crate::{Failure, import, place};
use clap::{Args, Subcommand};
use config::{Text, export, parse};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum To {
    /// OpenWrt: the packages network and postern
    Uci(Options),
}

#[derive(Args)]
#[command(after_help = "\
The packages go to standard output or to --output, with all secrets. Settings without an option of UCI are
reported on standard error; they are in the package postern as they are: list set '...'.

exit codes: 0, the packages are the whole configuration; 1, the configuration is not valid; 2, the file cannot be read")]
pub(crate) struct Options {
    /// The configuration to export
    #[arg(value_name = "FILE", default_value = place::CONFIG)]
    file: PathBuf,
    /// Only this package, as `uci -m import NAME` reads it
    #[arg(long, value_name = "NAME", value_parser = ["network", "postern"])]
    package: Option<String>,
    /// Write the packages to a new file that only its owner can read
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(to: &To) -> Result<ExitCode, Failure> {
    let To::Uci(options) = to;
    let file = options.file.display();
    let text = Text::read(&options.file).map_err(|error| format!("{file}: {error}"))?;
    let text = text.as_str().map_err(|_| format!("{file}: it is not UTF-8"))?;
    let tree = match parse(text) {
        Ok(tree) => tree,
        Err(errors) => {
            for error in errors {
                eprintln!("{file}:{}: {}", error.location.line, error.reason);
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let exported = export::uci(&tree)?;
    let mut text = Text::default();
    for (name, package) in [("network", &exported.network), ("postern", &exported.postern)] {
        let package = package.as_str().unwrap_or_default();
        match options.package.as_deref() {
            None => write!(text, "package {name}\n{package}\n")?,
            Some(wanted) if wanted == name => write!(text, "{package}")?,
            Some(_) => {}
        }
    }
    import::deliver(text.bytes(), options.output.as_deref())?;
    for (branch, count) in &exported.as_lines {
        eprintln!("{branch}: UCI has no words for {count} lines: list set in the package postern");
    }
    let lines: usize = exported.as_lines.values().sum();
    eprintln!("{} lines are options of UCI, {lines} are lines of the package postern", exported.options);
    Ok(ExitCode::SUCCESS)
}
