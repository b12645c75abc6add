//! The text of UCI: `config`, `option` and `list` lines, with the quotes of a shell.

use crate::import::place::{Origin, Place, Reader, SyntaxError, error};
use crate::import::section::{Section, Setting};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The maximum number of lines of a file, of its sections, of its packages, and of the options of a section: names are searched for.
const MOST_ENTRIES: usize = 200_000;
const MOST_SECTIONS: usize = 20_000;
const MOST_PACKAGES: usize = 100;
const MOST_OPTIONS: usize = 10_000;
/// The most words of a line that is none: the longest has three.
const MOST_WORDS: usize = 4;

/// A section with its type. The settings of a list have one name.
pub(super) struct Block {
    pub(super) kind: String,
    pub(super) section: Section,
}

/// A package: its name, and its sections in their order.
pub(super) struct Package {
    pub(super) name: String,
    /// Where it begins.
    pub(super) origin: Origin,
    pub(super) blocks: Vec<Block>,
}

/// A word of a line, and where it begins.
struct Word {
    text: Zeroizing<String>,
    place: Place,
}

/// Reads a file. `name` is the package of lines before the first `package` line.
pub(super) fn read(order: usize, file: &str, name: &str, text: &str) -> Result<Vec<Package>, SyntaxError> {
    let file: Arc<str> = file.into();
    let mut reader = Reader::new(order, &file, text);
    let mut packages = vec![package(name, reader.place())];
    let (mut entries, mut sections) = (0, 0);
    while let Some(words) = statement(&mut reader)? {
        let Some((verb, rest)) = words.split_first() else { continue };
        entries += 1;
        sections += usize::from(verb.text.starts_with('c'));
        let options = packages
            .last()
            .and_then(|package| package.blocks.last())
            .map_or(0, |it| it.section.settings.len());
        if entries > MOST_ENTRIES
            || sections > MOST_SECTIONS
            || packages.len() > MOST_PACKAGES
            || options > MOST_OPTIONS
        {
            return Err(error(verb.place.clone(), "the file has too many lines", "import a part of it"));
        }
        apply(verb, rest, &mut packages)?;
    }
    packages.retain(|package| !package.blocks.is_empty());
    Ok(packages)
}

fn package(name: &str, place: Place) -> Package {
    let origin = Origin { place, option: format!("package {name}") };
    Package { name: name.to_owned(), origin, blocks: Vec::new() }
}

/// Carries out one line.
fn apply(verb: &Word, rest: &[Word], packages: &mut Vec<Package>) -> Result<(), SyntaxError> {
    let (least, most, form) = match verb.text.as_str() {
        "package" | "p" => (1, 1, "package NAME"),
        "config" | "c" => (1, 2, "config TYPE 'NAME'"),
        "option" | "o" => (2, 2, "option NAME 'VALUE'"),
        "list" | "l" => (2, 2, "list NAME 'VALUE'"),
        // It may be a part of a secret, and is not repeated.
        _ => return Err(error(verb.place.clone(), "the line begins with no word of UCI", FORMS)),
    };
    if rest.len() < least || rest.len() > most {
        let fix = format!("write: {form}");
        return Err(error(verb.place.clone(), "the line has too few or too many words", &fix));
    }
    let name = &rest[0];
    let Some(current) = packages.last_mut() else { return Ok(()) };
    match form.as_bytes()[0] {
        b'p' => {
            check(name, |c| is_name(c) || c == '-', "a package")?;
            match packages.iter().position(|known| known.name == *name.text) {
                // The lines that follow are its own: it becomes the last one.
                Some(index) => {
                    let known = packages.remove(index);
                    packages.push(known);
                }
                None => packages.push(package(&name.text, verb.place.clone())),
            }
        }
        b'c' => {
            check(name, |c| c.is_ascii_graphic(), "a type")?;
            let named = rest.get(1).filter(|name| !name.text.is_empty());
            if let Some(named) = named {
                check(named, is_name, "a section")?;
            }
            begin(&name.text, named.map(|name| name.text.as_str()), &verb.place, current);
        }
        _ => {
            check(name, is_name, "an option")?;
            let Some(block) = current.blocks.last_mut() else {
                return Err(error(
                    verb.place.clone(),
                    "no section before this line",
                    "write config TYPE before it",
                ));
            };
            set(block, &name.text, &rest[1], form.starts_with('l'), &verb.place);
        }
    }
    Ok(())
}

const FORMS: &str = "begin each line with package, config, option, list or #";

/// A character of a name.
fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn check(word: &Word, allowed: impl Fn(char) -> bool, what: &str) -> Result<(), SyntaxError> {
    if !word.text.is_empty() && word.text.len() <= 200 && word.text.chars().all(allowed) {
        return Ok(());
    }
    let reason = format!("the name of {what} has characters that UCI does not allow there");
    Err(error(word.place.clone(), &reason, "write letters, digits and _"))
}

/// Begins a section; one whose name is known goes on.
fn begin(kind: &str, name: Option<&str>, place: &Place, package: &mut Package) {
    let known = name.and_then(|name| package.blocks.iter().position(|block| block.section.name == name));
    if let Some(index) = known {
        let mut block = package.blocks.remove(index);
        kind.clone_into(&mut block.kind);
        return package.blocks.push(block);
    }
    let number = package.blocks.iter().filter(|block| block.kind == kind).count();
    let shown = name.map_or_else(|| format!("@{kind}[{number}]"), str::to_owned);
    let origin = Origin { place: place.clone(), option: format!("{}.{shown}", package.name) };
    let section = Section::new(name.unwrap_or_default(), origin);
    package.blocks.push(Block { kind: kind.to_owned(), section });
}

/// Sets an option, or adds to a list. An empty value unsets it.
fn set(block: &mut Block, name: &str, value: &Word, is_list: bool, place: &Place) {
    let section = &mut block.section;
    if !is_list {
        section.settings.retain(|setting| setting.name != name);
    }
    if value.text.is_empty() {
        return;
    }
    let origin = Origin { place: place.clone(), option: format!("{}.{name}", section.origin.option) };
    section.settings.push(Setting { name: name.to_owned(), value: value.text.clone(), origin });
}

/// The words of the next line that has any; `None` at the end.
fn statement(reader: &mut Reader<'_>) -> Result<Option<Vec<Word>>, SyntaxError> {
    let mut words = Vec::new();
    loop {
        reader.pass(|c| c != '\n' && c.is_whitespace());
        match reader.peek() {
            None if words.is_empty() => return Ok(None),
            None => return Ok(Some(words)),
            Some('#') => {
                reader.pass(|c| c != '\n');
            }
            Some('\n' | ';') => {
                reader.next();
                if !words.is_empty() {
                    return Ok(Some(words));
                }
            }
            Some(_) => {
                let word = word(reader)?;
                // The rest of such a line would only use memory.
                if words.len() == MOST_WORDS {
                    return Err(error(word.place, "the line has too few or too many words", FORMS));
                }
                words.push(word);
            }
        }
    }
}

/// A word: parts with and without quotes, one behind the other.
fn word(reader: &mut Reader<'_>) -> Result<Word, SyntaxError> {
    let place = reader.place();
    // Allocated once, so that no copy of a secret is left behind by growth.
    let mut text = Zeroizing::new(String::with_capacity(room(reader.rest())));
    while let Some(next) = reader.peek() {
        match next {
            '\'' | '"' => quoted(reader, next, &place, &mut text)?,
            '#' | ';' => break,
            '\\' => escaped(reader, &mut text),
            _ if next.is_whitespace() => break,
            _ => {
                text.push(next);
                reader.next();
            }
        }
    }
    Ok(Word { text, place })
}

/// The bytes of the word that a text begins with, with its quotes and backslashes.
fn room(rest: &str) -> usize {
    let (mut quote, mut is_escaped) = (None, false);
    let end = rest.find(|character: char| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match (quote, character) {
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if character == open => quote = None,
            (None, '#' | ';') => return true,
            _ => {}
        }
        quote.is_none() && !is_escaped && character.is_whitespace()
    });
    end.unwrap_or(rest.len())
}

/// A part in quotes, which may have several lines. In single quotes every character stands for itself.
fn quoted(reader: &mut Reader<'_>, quote: char, place: &Place, text: &mut String) -> Result<(), SyntaxError> {
    reader.next();
    loop {
        match reader.peek() {
            None => return Err(error(place.clone(), "a quotation mark is not closed", "close it")),
            Some(next) if next == quote => {
                reader.next();
                return Ok(());
            }
            Some('\\') if quote == '"' => escaped(reader, text),
            Some(next) => {
                text.push(next);
                reader.next();
            }
        }
    }
}

/// The character behind a backslash; a line that ends in one goes on in the next.
fn escaped(reader: &mut Reader<'_>, text: &mut String) {
    reader.next();
    match reader.next() {
        Some('\n') | None => {}
        Some('\r') if reader.peek() == Some('\n') => {
            reader.next();
        }
        Some(next) => text.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        let packages = read(0, "it", "network", text).map_err(|error| error.to_string())?;
        let blocks = packages.iter().flat_map(|package| {
            package.blocks.iter().map(|block| {
                let settings = &block.section.settings;
                let settings = settings.iter().map(|it| format!("{}={}", it.name, *it.value));
                format!(
                    "{}:{} {}",
                    block.kind,
                    block.section.origin.option,
                    settings.collect::<Vec<_>>().join(",")
                )
            })
        });
        Ok(blocks.collect::<Vec<_>>().join(" | "))
    }

    #[test]
    fn sections_have_options_and_lists() {
        let text = "config interface 'wg0'\n\toption proto \"wireguard\" # tunnel\n\tlist addresses 10.0.0.1/24\n\
                    list addresses fd00::1/64\nconfig wireguard_wg0\n option a b; option c d\nconfig wireguard_wg0\n";
        let expected = "interface:network.wg0 proto=wireguard,addresses=10.0.0.1/24,addresses=fd00::1/64 | \
                        wireguard_wg0:network.@wireguard_wg0[0] a=b,c=d | wireguard_wg0:network.@wireguard_wg0[1] ";
        assert_eq!(shown(text).as_deref(), Ok(expected));
    }

    #[test]
    fn quotes_are_those_of_a_shell() {
        for (written, read) in [
            (r"'a b'", "a b"),
            (r#""a \"b\"""#, "a \"b\""),
            (r"'it'\''s'", "it's"),
            (r"a\ b", "a b"),
            (r"'a\b'", r"a\b"),
            ("'two\nlines'", "two\nlines"),
            ("one#comment", "one"),
            ("a\\\nb", "ab"),
        ] {
            assert_eq!(
                shown(&format!("config a b\noption x {written}\n")),
                Ok(format!("a:network.b x={read}")),
                "{written}"
            );
        }
    }

    #[test]
    fn a_word_takes_the_memory_of_its_own_length() {
        let text = "'a b'\\''c\nd'\"\\\" e\"f g";
        let mut reader = Reader::new(0, &"it".into(), text);
        let word = word(&mut reader).expect("quotes are closed");
        assert_eq!(&**word.text, "a b'c\nd\" ef");
        assert_eq!(word.text.capacity(), text.len() - 2);
    }

    #[test]
    fn lines_that_would_take_long_are_refused_at_once() {
        let words = "a ".repeat(1 << 20);
        assert!(shown(&words).expect_err("a word too many").contains("too many words"));
        let packages: String = (0..1000).map(|number| format!("package p{number}\nconfig a\n")).collect();
        assert!(shown(&packages).expect_err("as a hundred").contains("too many lines"));
        let options = format!("config a\n{}", "list x y\n".repeat(MOST_OPTIONS + 2));
        assert!(shown(&options).expect_err("too many").contains("too many lines"));
    }

    #[test]
    fn a_later_option_replaces_an_earlier_one_and_a_known_section_goes_on() {
        let text = "config a x\noption o 1\nlist l 1\nconfig b y\nconfig a x\noption o 2\noption l ''\nlist l 3\npackage other\nconfig a x\n";
        assert_eq!(shown(text).as_deref(), Ok("b:network.y  | a:network.x o=2,l=3 | a:other.x "));
    }

    #[test]
    fn what_is_wrong_is_told_without_the_line() {
        for (text, reason) in [
            ("set x", "no word of UCI"),
            ("option a b", "no section"),
            ("config", "too few"),
            ("config a 'b-c'", "not allow"),
            ("config a b\noption x y secret z w", "too many"),
            ("config a b\noption x 'y", "not closed"),
        ] {
            let error = shown(text).expect_err(text);
            assert!(error.contains(reason) && !error.contains("secret"), "{error}");
        }
    }
}
