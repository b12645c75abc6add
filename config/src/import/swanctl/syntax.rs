//! The syntax of swanctl.conf and strongswan.conf: sections in braces, `key = value`, references to other sections, includes.

use crate::import::files::{Files, include, too_many};
use crate::import::place::{Origin, Place, Reader, SyntaxError, error};
use crate::import::section::{Section, Setting};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The maximum depth of sections, of includes and of references.
const DEEPEST: usize = 16;
/// The maximum number of files.
const MOST_FILES: usize = 256;
/// The maximum number of sections and settings, with those that are inherited.
const MOST_ENTRIES: usize = 200_000;

/// What may not stand in a name.
fn ends_name(character: char) -> bool {
    character.is_whitespace() || ",:{}=\"#".contains(character)
}

/// A section before inheritance, with the names of the sections that it inherits.
struct Written {
    section: Section,
    references: Vec<String>,
    below: Vec<Written>,
}

/// Reads files, each of which extends the ones before.
pub(super) struct Parser<'a> {
    files: &'a dyn Files,
    root: Written,
    order: usize,
    entries: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        let place = Place { order: 0, file: "".into(), line: 0, column: 0, last_line: 0 };
        let section = Section::new("", Origin { place, option: String::new() });
        let root = Written { section, references: Vec::new(), below: Vec::new() };
        Self { files, root, order: 0, entries: 0 }
    }

    pub(super) fn file(&mut self, name: &str, text: &str) -> Result<(), SyntaxError> {
        self.read(name, text, &mut Vec::new(), 0)
    }

    fn read(
        &mut self,
        name: &str,
        text: &str,
        path: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), SyntaxError> {
        let file: Arc<str> = name.into();
        let mut reader = Reader::new(self.order, &file, text);
        self.order += 1;
        let outermost = path.len();
        loop {
            skip(&mut reader);
            match reader.peek() {
                None if path.len() > outermost => {
                    return Err(reader.error("a section is never closed", "add the closing brace"));
                }
                None => return Ok(()),
                Some('}') if path.len() > outermost => {
                    reader.next();
                    path.pop();
                }
                Some('}') => return Err(reader.error("no section is open here", "remove the brace")),
                Some(_) => self.statement(&mut reader, path, depth)?,
            }
        }
    }

    /// A setting, the beginning of a section, or an include.
    fn statement(
        &mut self,
        reader: &mut Reader<'_>,
        path: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), SyntaxError> {
        let place = reader.place();
        self.entries += 1;
        if self.entries > MOST_ENTRIES || path.len() > DEEPEST {
            return Err(reader.error("too many sections or settings", "import a part of it"));
        }
        let name = if reader.peek() == Some('"') {
            quoted(reader)?.as_str().to_owned()
        } else {
            reader.pass(|c| !ends_name(c)).to_owned()
        };
        if name.is_empty() {
            return Err(reader.error("the name of a section or setting is missing", "write name = value"));
        }
        let option = path.iter().chain([&name]).cloned().collect::<Vec<_>>().join(".");
        reader.pass(|c| c == ' ' || c == '\t');
        match reader.peek() {
            Some('=') => {
                reader.next();
                let value = value(reader)?;
                let origin = Origin { place, option };
                self.at(path).section.put(Setting { name, value, origin });
                Ok(())
            }
            Some('{' | ':') => self.open(reader, path, name, Origin { place, option }),
            _ if name == "include" => {
                let pattern = value(reader)?;
                self.include(&place, &pattern, path, depth)
            }
            // The brace of a section may be on the next line.
            Some('\n' | '\r' | '#') => {
                skip(reader);
                match reader.peek() {
                    Some('{') => self.open(reader, path, name, Origin { place, option }),
                    _ => Err(error(place, "neither = nor { follows", "write name = value, or name { ... }")),
                }
            }
            _ => Err(error(place, "neither = nor { follows", "write name = value, or name { ... }")),
        }
    }

    fn open(
        &mut self,
        reader: &mut Reader<'_>,
        path: &mut Vec<String>,
        name: String,
        origin: Origin,
    ) -> Result<(), SyntaxError> {
        let mut references = Vec::new();
        if reader.peek() == Some(':') {
            loop {
                reader.next();
                skip(reader);
                let name = reader.pass(|c| !ends_name(c)).to_owned();
                if name.is_empty() {
                    return Err(reader.error("the name of a section is missing", "write name : other {"));
                }
                references.push(name);
                skip(reader);
                if reader.peek() != Some(',') {
                    break;
                }
            }
        }
        if reader.peek() != Some('{') {
            return Err(reader.error("the brace of the section is missing", "add {"));
        }
        reader.next();
        let parent = self.at(path);
        if !parent.below.iter().any(|known| known.section.name == name) {
            let section = Section::new(name.clone(), origin);
            parent.below.push(Written { section, references: Vec::new(), below: Vec::new() });
        }
        path.push(name);
        self.at(path).references.extend(references);
        Ok(())
    }

    /// The section at a path, which is there.
    fn at(&mut self, path: &[String]) -> &mut Written {
        path.iter().fold(&mut self.root, |written, name| {
            let found = written.below.iter().position(|below| below.section.name == *name);
            &mut written.below[found.expect("it was opened")]
        })
    }

    fn include(
        &mut self,
        place: &Place,
        pattern: &str,
        path: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), SyntaxError> {
        if depth >= DEEPEST {
            return Err(error(place.clone(), "includes are too deep", "remove one that includes itself"));
        }
        let files = self.files;
        include(files, place, Path::new(pattern), |name, text| {
            if self.order >= MOST_FILES {
                return Err(too_many(place));
            }
            let before = path.len();
            self.read(name, text, path, depth + 1)?;
            path.truncate(before);
            Ok(())
        })
    }

    /// The whole, with what sections inherit from those that they refer to; the names of those; and settings without a
    /// value, which stand for the default.
    pub(super) fn finish(self) -> Result<(Section, HashSet<String>, Vec<Origin>), SyntaxError> {
        let mut left = MOST_ENTRIES;
        let mut whole = resolve(&self.root, &self.root, "", 0, &mut left)?;
        let (mut referred, mut empty) = (HashSet::new(), Vec::new());
        references(&self.root, &mut referred);
        take_empty(&mut whole, &mut empty);
        Ok((whole, referred, empty))
    }
}

fn references(written: &Written, found: &mut HashSet<String>) {
    found.extend(written.references.iter().cloned());
    written.below.iter().for_each(|below| references(below, found));
}

fn take_empty(section: &mut Section, found: &mut Vec<Origin>) {
    let empty = section.settings.extract_if(.., |setting| setting.value.is_empty());
    found.extend(empty.map(|setting| setting.origin));
    section.sections.iter_mut().for_each(|below| take_empty(below, found));
}

/// Skips space and comments.
fn skip(reader: &mut Reader<'_>) {
    loop {
        reader.pass(char::is_whitespace);
        if reader.peek() != Some('#') {
            return;
        }
        reader.pass(|c| c != '\n');
    }
}

/// The text between double quotes.
fn quoted(reader: &mut Reader<'_>) -> Result<Zeroizing<String>, SyntaxError> {
    let start = reader.place();
    reader.next();
    // Allocated in full: text that moves would leave a copy behind.
    let mut is_escaped = false;
    let end = reader.rest().find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    let mut text = Zeroizing::new(String::with_capacity(end.unwrap_or_default()));
    while let Some(character) = reader.next() {
        match character {
            '"' => return Ok(text),
            '\\' => match reader.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some('\n') | None => {}
                Some(other) => text.push(other),
            },
            // Not closed: the text is not kept.
            other if end.is_some() => text.push(other),
            _ => {}
        }
    }
    Err(error(start, "the closing quote is missing", "add it"))
}

/// The value of a setting: to the end of the line, or in quotes.
fn value(reader: &mut Reader<'_>) -> Result<Zeroizing<String>, SyntaxError> {
    reader.pass(|c| c == ' ' || c == '\t');
    if reader.peek() == Some('"') {
        return quoted(reader);
    }
    let line = reader.pass(|c| !matches!(c, '\n' | '#' | '}'));
    Ok(Zeroizing::new(line.trim().to_owned()))
}

/// A section with what it inherits, by the names of its settings with its own path before them.
fn resolve(
    root: &Written,
    written: &Written,
    path: &str,
    depth: usize,
    left: &mut usize,
) -> Result<Section, SyntaxError> {
    let origin = &written.section.origin;
    let of = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let size = 1 + written.section.settings.len();
    if depth > DEEPEST || *left < size {
        let reason = "the references of sections are too deep, or lead back to themselves";
        return Err(error(origin.place.clone(), reason, "remove one of them"));
    }
    *left -= size;
    let mut section = Section::new(written.section.name.clone(), origin.clone());
    path.clone_into(&mut section.origin.option);
    for setting in &written.section.settings {
        let mut setting = setting.clone();
        setting.origin.option = of(&setting.name);
        section.settings.push(setting);
    }
    for below in &written.below {
        section.sections.push(resolve(root, below, &of(&below.section.name), depth + 1, left)?);
    }
    for reference in &written.references {
        let found = reference
            .split('.')
            .try_fold(root, |at, name| at.below.iter().find(|below| below.section.name == name));
        let Some(found) = found else {
            let reason = format!("there is no section {reference}");
            return Err(error(origin.place.clone(), &reason, "name one by its path from the root"));
        };
        inherit(&mut section, resolve(root, found, path, depth + 1, left)?);
    }
    Ok(section)
}

/// Adds to a section what another one has and it has not.
fn inherit(section: &mut Section, other: Section) {
    for setting in other.settings {
        if !section.settings.iter().any(|known| known.name == setting.name) {
            section.settings.push(setting);
        }
    }
    for below in other.sections {
        match section.sections.iter_mut().find(|known| known.name == below.name) {
            Some(known) => inherit(known, below),
            None => section.sections.push(below),
        }
    }
}
