//! The syntax of ipsec.conf: sections that begin in the first column, indented `key=value` lines, `also=`, `%default`, includes.

use crate::import::files::{Files, include, too_many};
use crate::import::place::{Origin, Place, Reader, SyntaxError, error};
use crate::import::section::{Section, Setting};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The maximum depth of includes and of `also`.
const DEEPEST: usize = 16;
/// The maximum number of files.
const MOST_FILES: usize = 256;
/// The maximum number of settings, with those that are inherited.
const MOST_SETTINGS: usize = 200_000;

/// The section that all others of its kind inherit.
const DEFAULT: &str = "%default";

/// Reads files, which share their sections.
pub(super) struct Parser<'a> {
    files: &'a dyn Files,
    /// Sections by their kinds and names: `conn` and `berlin`.
    sections: Vec<(String, Section)>,
    order: usize,
    settings: usize,
}

/// All sections, resolved.
pub(super) struct Whole {
    pub(super) setup: Vec<Section>,
    pub(super) authorities: Vec<Section>,
    pub(super) connections: Vec<Section>,
    /// Sections that others inherit.
    pub(super) inherited: Vec<Section>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        Self { files, sections: Vec::new(), order: 0, settings: 0 }
    }

    pub(super) fn file(&mut self, name: &str, text: &str) -> Result<(), SyntaxError> {
        self.read(name, text, 0)
    }

    fn read(&mut self, name: &str, text: &str, depth: usize) -> Result<(), SyntaxError> {
        let file: Arc<str> = name.into();
        let mut reader = Reader::new(self.order, &file, text);
        self.order += 1;
        let mut current: Option<usize> = None;
        while reader.peek().is_some() {
            let is_indented = matches!(reader.peek(), Some(' ' | '\t'));
            reader.pass(|c| c == ' ' || c == '\t' || c == '\r');
            let place = reader.place();
            match reader.peek() {
                None => break,
                Some('\n') => _ = reader.next(),
                Some('#') => _ = reader.pass(|c| c != '\n'),
                Some(_) if is_indented => {
                    let Some(index) = current else {
                        return Err(error(place, "no section before this line", "write conn NAME before it"));
                    };
                    self.setting(&mut reader, index)?;
                }
                Some(_) => {
                    let line = reader.pass(|c| c != '\n' && c != '#').trim().to_owned();
                    let (kind, name) = line.split_once([' ', '\t']).unwrap_or((&line, ""));
                    let name = name.trim().trim_matches('"');
                    match kind {
                        "include" => self.include(&place, Path::new(name), depth)?,
                        "version" => current = None,
                        "config" | "conn" | "ca" => current = Some(self.section(kind, name, place)?),
                        _ => {
                            let fix =
                                "write config setup, conn NAME or ca NAME, and indent the lines below it";
                            return Err(error(place, "unknown section", fix));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The index of a section, which may be there already.
    fn section(&mut self, kind: &str, name: &str, place: Place) -> Result<usize, SyntaxError> {
        if name.is_empty() {
            return Err(error(place, "the section has no name", "write conn NAME"));
        }
        let known = self.sections.iter().position(|(of, section)| of == kind && section.name == name);
        Ok(known.unwrap_or_else(|| {
            let origin = Origin { place, option: format!("{kind} {name}") };
            self.sections.push((kind.to_owned(), Section::new(name, origin)));
            self.sections.len() - 1
        }))
    }

    fn setting(&mut self, reader: &mut Reader<'_>, index: usize) -> Result<(), SyntaxError> {
        let place = reader.place();
        let key = reader.pass(|c| !c.is_whitespace() && c != '=').to_owned();
        reader.pass(|c| c == ' ' || c == '\t');
        // What is no word may be a part of a secret, and is not repeated.
        let is_word = !key.is_empty()
            && key.len() <= 40
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if reader.peek() != Some('=') || !is_word {
            return Err(error(place, "this is no setting", "write key=value"));
        }
        reader.next();
        let value = value(reader)?;
        self.settings += 1;
        if self.settings > MOST_SETTINGS {
            return Err(error(place, "too many settings", "import a part of them"));
        }
        let (kind, section) = &mut self.sections[index];
        let option = format!("{kind} {} {key}", section.name);
        let setting = Setting { name: key, value, origin: Origin { place, option } };
        // also may be given several times.
        if setting.name == "also" {
            section.settings.push(setting);
        } else {
            section.put(setting);
        }
        Ok(())
    }

    fn include(&mut self, place: &Place, pattern: &Path, depth: usize) -> Result<(), SyntaxError> {
        if depth >= DEEPEST {
            return Err(too_many(place));
        }
        let files = self.files;
        include(files, place, pattern, |name, text| {
            if self.order >= MOST_FILES { Err(too_many(place)) } else { self.read(name, text, depth + 1) }
        })
    }

    /// The sections with what they inherit.
    pub(super) fn finish(self) -> Result<Whole, SyntaxError> {
        let mut whole = Whole {
            setup: Vec::new(),
            authorities: Vec::new(),
            connections: Vec::new(),
            inherited: Vec::new(),
        };
        let referred: Vec<(&str, &str)> = self
            .sections
            .iter()
            .flat_map(|(kind, section)| {
                let also = section.settings.iter().filter(|setting| setting.name == "also");
                also.map(move |setting| (kind.as_str(), setting.value.as_str()))
            })
            .collect();
        let mut left = MOST_SETTINGS;
        for (kind, section) in &self.sections {
            let is_base = section.name == DEFAULT
                || section.value("auto").is_none_or(|auto| auto == "ignore")
                    && referred.contains(&(kind, &section.name));
            if is_base && kind != "config" {
                whole.inherited.push(section.clone());
                continue;
            }
            let mut resolved = self.resolve(kind, section, &section.name, 0, &mut left)?;
            if let Some((_, default)) =
                self.sections.iter().find(|(of, section)| of == kind && section.name == DEFAULT)
            {
                let default = self.resolve(kind, default, &section.name, 0, &mut left)?;
                inherit(&mut resolved, default);
            }
            match kind.as_str() {
                "config" => whole.setup.push(resolved),
                "ca" => whole.authorities.push(resolved),
                _ => whole.connections.push(resolved),
            }
        }
        Ok(whole)
    }

    /// A section with what it inherits by `also`, of which the last counts most.
    fn resolve(
        &self,
        kind: &str,
        section: &Section,
        name: &str,
        depth: usize,
        left: &mut usize,
    ) -> Result<Section, SyntaxError> {
        let size = 1 + section.settings.len();
        if depth > DEEPEST || *left < size {
            let reason = "also is too deep, or leads back to where it began";
            return Err(error(section.origin.place.clone(), reason, "remove one of them"));
        }
        *left -= size;
        let mut resolved = section.clone();
        for setting in &mut resolved.settings {
            setting.origin.option = format!("{kind} {name} {}", setting.name);
        }
        let also: Vec<Setting> = resolved.settings.extract_if(.., |setting| setting.name == "also").collect();
        for setting in also.into_iter().rev() {
            let found = self.sections.iter().find(|(of, known)| of == kind && known.name == **setting.value);
            let Some((_, found)) = found else {
                let reason = format!("there is no {kind} {}", *setting.value);
                return Err(error(setting.origin.place, &reason, "name one that is there"));
            };
            inherit(&mut resolved, self.resolve(kind, found, name, depth + 1, left)?);
        }
        Ok(resolved)
    }
}

/// Adds what is not set.
fn inherit(section: &mut Section, other: Section) {
    for setting in other.settings {
        if !section.settings.iter().any(|known| known.name == setting.name) {
            section.settings.push(setting);
        }
    }
}

/// The value of a setting: to the end of the line, or in quotes, which may go on behind a backslash at its end.
fn value(reader: &mut Reader<'_>) -> Result<Zeroizing<String>, SyntaxError> {
    reader.pass(|c| c == ' ' || c == '\t');
    if reader.peek() != Some('"') {
        let line = reader.pass(|c| !matches!(c, '\n' | '#'));
        return Ok(Zeroizing::new(line.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    let start = reader.place();
    reader.next();
    let mut text = Zeroizing::new(String::with_capacity(1024));
    while let Some(character) = reader.next() {
        match character {
            '"' => return Ok(text),
            '\\' => match reader.next() {
                Some('\n') | None => {}
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
            },
            '\n' => break,
            other => text.push(other),
        }
    }
    Err(error(start, "the closing quote is missing", "add it"))
}
