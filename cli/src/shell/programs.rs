//! A folder of programs with the names of commands, for scripts: each is a link to this one, which does what its name says.

use super::verbs::VERBS;
use super::{files, signals};
use crate::{Failure, operational};
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The script that others source, to configure in the words of a router.
const TEMPLATE: &str = include_str!("script-template");

/// The environment variable that names the file of a session of configuration.
pub(crate) const SESSION: &str = "POSTERN_SESSION";

/// The commands of a session that are programs: those that bash has no command of the same name for.
fn of_a_session(name: &str) -> bool {
    VERBS.iter().any(|verb| verb.name == name && verb.name != "configure" && verb.name != "show")
}

/// Commands of a session whose names other programs have: a link would hide those from scripts. The template has them.
const OF_OTHERS: &[&str] = &["compare", "edit", "merge", "rename", "top"];

/// What a program of this name is called with, after its path. None if the name is that of no command.
pub(crate) fn command_line(name: &str, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if operational::verb_names().contains(&name) || name == "configure" {
        let first = [OsString::from(name)].into_iter();
        return Some(first.chain(arguments.iter().cloned()).collect());
    }
    if name == "run" && !arguments.is_empty() {
        return Some(arguments.to_vec());
    }
    if !of_a_session(name) {
        return None;
    }
    let words = arguments.iter().map(|word| config::print::quoted(&word.to_string_lossy()));
    let line = [name.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ");
    let session = variable(SESSION).map(|file| [OsString::from("--session"), file]).into_iter().flatten();
    let first = ["configure", "-c", &line].map(OsString::from).into_iter();
    Some(first.chain(session).collect())
}

/// Makes the links and the template in a folder.
pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    let program = std::env::current_exe()?;
    let in_folder = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(in_folder)?;
    let operational = operational::verb_names().into_iter();
    let of_sessions = VERBS.iter().map(|verb| verb.name).filter(|name| !OF_OTHERS.contains(name));
    for name in operational.chain(of_sessions) {
        let link = folder.join(name);
        match symlink(&program, &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && link.is_symlink() => {
                fs::remove_file(&link).and_then(|()| symlink(&program, &link)).map_err(in_folder)?;
            }
            outcome => outcome.map_err(in_folder)?,
        }
    }
    fs::write(folder.join("script-template"), TEMPLATE).map_err(in_folder)?;
    Ok(())
}

/// A folder of programs for as long as a command line runs.
pub(super) struct Programs(PathBuf);

impl Programs {
    pub(super) fn temporary() -> Result<Self, Failure> {
        let programs = Self(files::private_folder()?);
        make(&programs.0)?;
        Ok(programs)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        signals::remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_does_what_its_name_says() {
        let line = |name: &str, words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let line = command_line(name, &words)?;
            Some(line.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(line("show", &["vpn", "ipsec", "sa"]).expect("known"), ["show", "vpn", "ipsec", "sa"]);
        assert_eq!(line("configure", &["-c", "commit"]).expect("known"), ["configure", "-c", "commit"]);
        assert_eq!(line("set", &["a", "b c"]).expect("known"), ["configure", "-c", "set a 'b c'"]);
        assert_eq!(line("run", &["show", "vpn"]).expect("known"), ["show", "vpn"]);
        assert_eq!((line("postern", &["show"]), line("ls", &[])), (None, None));
    }
}
