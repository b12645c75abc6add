//! The files that a source refers to: included ones, certificates and keys.

use super::place::{Place, SyntaxError, error};
use crate::text::Text;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// The length of the longest file that is read.
pub const LONGEST: usize = 8 << 20;

/// The maximum number of files in a directory that are considered.
const MOST: usize = 1000;

/// Where files are looked up.
pub trait Files {
    /// The content of a file of up to [`LONGEST`] bytes.
    fn read(&self, path: &Path) -> io::Result<Text>;
    /// The names of the files in a directory, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
}

/// No files at all.
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Text> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The files of this machine, or of another one whose root directory is here.
pub struct Disk {
    /// The directory that absolute paths begin at.
    pub root: PathBuf,
}

impl Disk {
    fn resolve(&self, path: &Path) -> PathBuf {
        if path.is_absolute() && !path.starts_with(&self.root) {
            let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
            return self.root.join(parts.collect::<PathBuf>());
        }
        path.to_owned()
    }
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Text> {
        let file = fs::File::open(self.resolve(path))?;
        let text = Text::read_from(file.take(LONGEST as u64 + 1))?;
        if text.bytes().len() > LONGEST {
            return Err(io::Error::other(format!("longer than {LONGEST} bytes")));
        }
        Ok(text)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.resolve(directory))?.flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let mut names: Vec<String> =
            files.filter_map(|entry| entry.file_name().into_string().ok()).take(MOST).collect();
        names.sort();
        Ok(names)
    }
}

/// The files that a name stands for, which may have wildcards in its last part; in the order of their names.
pub(super) fn expand(files: &dyn Files, pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.contains(['*', '?']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let directory = pattern.parent().unwrap_or(Path::new(""));
    let names = files.list(directory)?;
    let visible = |found: &&String| !found.starts_with('.') && matches(name, found);
    Ok(names.iter().filter(visible).map(|found| directory.join(found)).collect())
}

/// Reads the files that the file at `place` includes, one after the other: `read` gets the name and the text of each. No file
/// of that name is no error, as for strongSwan.
pub(super) fn include(
    files: &dyn Files,
    place: &Place,
    pattern: &Path,
    mut read: impl FnMut(&str, &str) -> Result<(), SyntaxError>,
) -> Result<(), SyntaxError> {
    let cannot = |path: &Path, why: String| {
        let fix = "import the files of the machine: --root DIR names the directory that is its root";
        error(place.clone(), &format!("cannot read {}: {why}", path.display()), fix)
    };
    let pattern = Path::new(&*place.file).parent().unwrap_or(Path::new("")).join(pattern);
    let found = match expand(files, &pattern) {
        Ok(found) => found,
        Err(wrong) if wrong.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(wrong) => return Err(cannot(&pattern, wrong.to_string())),
    };
    for file in found {
        let text = files.read(&file).map_err(|wrong| cannot(&file, wrong.to_string()))?;
        let text = text.as_str().map_err(|wrong| cannot(&file, wrong.to_string()))?;
        read(&file.display().to_string(), text)?;
    }
    Ok(())
}

/// The error if a file includes too many others.
pub(super) fn too_many(place: &Place) -> SyntaxError {
    error(place.clone(), "too many files are included", "import a part of them")
}

/// Whether a name fits a pattern of the shell: `*` stands for any characters, `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut wanted) = (0, 0);
    // Where to go on if what follows the last star does not fit.
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() {
        match pattern.get(wanted) {
            Some('*') => {
                star = Some((wanted, at));
                wanted += 1;
            }
            Some(&found) if found == '?' || found == name[at] => (at, wanted) = (at + 1, wanted + 1),
            _ => match star {
                Some((before, from)) => {
                    star = Some((before, from + 1));
                    (at, wanted) = (from + 1, before + 1);
                }
                None => return false,
            },
        }
    }
    pattern[wanted..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_those_of_the_shell() {
        for (pattern, name, fits) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("site-?.conf", "site-a.conf", true),
            ("site-?.conf", "site-ab.conf", false),
            ("a*b*c", "axxbxbc", true),
            ("a*b*c", "axxbxb", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_looked_up_below_the_root_alone() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("etc/d")).expect("a folder");
        for name in ["b.conf", "a.conf", ".c.conf", "d.txt"] {
            fs::write(root.path().join("etc/d").join(name), name).expect("a file");
        }
        let disk = Disk { root: root.path().to_owned() };
        let found = expand(&disk, Path::new("/etc/d/*.conf")).expect("a folder");
        assert_eq!(found, [Path::new("/etc/d/a.conf"), Path::new("/etc/d/b.conf")]);
        assert_eq!(disk.read(&found[0]).expect("a file").as_str(), Ok("a.conf"));
        assert!(disk.read(Path::new("/../../../../../../../../etc/hostname")).is_err(), "not there");
    }
}
