//! Files and the command line as directives: includes, inline blocks, `cd`.

use super::directive::{Directive, Position, is_name};
use super::lexer::{self, Word};
use super::row::Scope;
use super::table;
use super::verdict::{Verdict, Wrong};
use crate::import::Files;
use crate::text::Text;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum depth of `config` within `config`, as in OpenVPN.
const DEEPEST: usize = 10;

/// The maximum number of files: with two `config` lines in each, the depth alone allows a thousand.
const MOST_FILES: usize = 64;

/// The maximum number of directives.
const MOST: usize = 65_536;

/// Reads files and the command line.
pub(super) struct Source<'a> {
    files: &'a dyn Files,
    /// The working directory, which `cd` changes.
    folder: PathBuf,
    directives: Vec<Directive>,
    verdict: Verdict,
    /// Names that `ignore-unknown-option` lists.
    ignored: Vec<String>,
    /// Whether unknown directives are ignored: `setenv FORWARD_COMPATIBLE 1`.
    is_forward_compatible: bool,
    depth: usize,
    /// How many files were read.
    count: usize,
}

/// What was read.
pub(super) struct Read {
    pub(super) directives: Vec<Directive>,
    pub(super) folder: PathBuf,
    pub(super) verdict: Verdict,
}

/// The lines of a file, with their numbers.
struct Lines<'a> {
    rest: std::iter::Enumerate<std::str::Lines<'a>>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.trim_start_matches('\u{feff}').lines().enumerate() }
    }

    fn next(&mut self) -> Option<(usize, &'a str)> {
        self.rest.next().map(|(index, line)| (index + 1, line))
    }
}

impl<'a> Source<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        Self {
            files,
            folder: PathBuf::new(),
            directives: Vec::new(),
            verdict: Verdict::default(),
            ignored: Vec::new(),
            is_forward_compatible: false,
            depth: 0,
            count: 0,
        }
    }

    pub(super) fn finish(self) -> Read {
        Read { directives: self.directives, folder: self.folder, verdict: self.verdict }
    }

    /// Reads arguments: one alone is the name of a file, others are directives with two dashes.
    pub(super) fn command_line(&mut self, arguments: &[String]) {
        let position = Position { file: "command line".into(), line: 0 };
        if let [file] = arguments
            && !file.starts_with("--")
        {
            return self.include(&position, file);
        }
        let mut rest = arguments.iter().peekable();
        while let Some(first) = rest.next() {
            let Some(name) = first.strip_prefix("--") else {
                let reason = "an argument does not belong to a directive";
                let wrong = Wrong::new(reason, "write --NAME ARGUMENT..., or one file alone");
                self.verdict.refuse(&position, "", wrong);
                continue;
            };
            let mut arguments = Vec::new();
            while let Some(argument) = rest.next_if(|next| !next.starts_with("--")) {
                arguments.push(Word::new(argument.clone()));
            }
            self.add(directive(name, arguments, None, position.clone()));
        }
    }

    /// Reads a file that the command line or a file includes.
    fn include(&mut self, position: &Position, name: &str) {
        let refuse = |source: &mut Self, reason: String, fix: &str| {
            source.verdict.refuse(position, "config", Wrong::new(reason, fix));
        };
        if self.depth >= DEEPEST {
            let reason = format!("files are included more than {DEEPEST} deep");
            return refuse(self, reason, "delete the config line that leads back to its own file");
        }
        if self.count >= MOST_FILES {
            let reason = format!("more than {MOST_FILES} files are included");
            return refuse(self, reason, "write their directives into one file");
        }
        if matches!(name, "stdin" | "[stdin]") {
            let reason = "the configuration is not read from standard input".to_owned();
            return refuse(self, reason, "name a file");
        }
        let path = self.folder.join(name);
        let text = match self.files.read(&path) {
            Ok(text) => text,
            Err(error) => {
                let reason = format!("cannot read {}: {error}", path.display());
                return refuse(self, reason, "name a file that exists and is readable");
            }
        };
        let Ok(text) = text.as_str() else {
            let reason = format!("{} is not UTF-8", path.display());
            return refuse(self, reason, "convert it with iconv -t UTF-8");
        };
        self.depth += 1;
        self.count += 1;
        self.file(&path.display().to_string().into(), text);
        self.depth -= 1;
    }

    /// Reads the file of a client.
    pub(super) fn client(&mut self, name: &str, text: &Text) {
        let file: Arc<str> = name.into();
        if let Ok(text) = text.as_str() {
            self.file(&file, text);
        } else {
            let wrong = Wrong::new("the file is not UTF-8", "convert it with iconv -t UTF-8");
            self.verdict.refuse(&Position { file, line: 0 }, "", wrong);
        }
    }

    fn file(&mut self, name: &Arc<str>, text: &str) {
        let mut lines = Lines::new(text);
        let mut stray = Stray::default();
        while let Some((line, content)) = lines.next() {
            if self.directives.len() >= MOST {
                let wrong = Wrong::new("the file has too many directives", "split it");
                return self.verdict.refuse(&Position { file: Arc::clone(name), line }, "", wrong);
            }
            let position = Position { file: Arc::clone(name), line };
            if let Some(directive) = self.line(&mut lines, content, position, &mut stray) {
                self.add(directive);
            }
        }
        stray.report(&mut self.verdict);
    }

    /// The directive of a line, with its inline block.
    fn line(
        &mut self,
        lines: &mut Lines<'_>,
        content: &str,
        position: Position,
        stray: &mut Stray,
    ) -> Option<Directive> {
        let mut words = match lexer::words(content) {
            Ok(words) if words.is_empty() => return None,
            Ok(words) => words.into_iter(),
            Err(error) => {
                self.verdict.refuse(&position, "", Wrong::new(error.reason(), error.fix()));
                return None;
            }
        };
        let first = words.next()?;
        let arguments: Vec<Word> = words.collect();
        if arguments.is_empty()
            && let Some(tag) = first.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'))
        {
            return self.block(lines, tag, position, stray);
        }
        let name = first.strip_prefix("--").unwrap_or(&first);
        if !is_name(name) {
            stray.add(position);
            return None;
        }
        Some(directive(name, arguments, None, position))
    }

    /// The inline block that begins with this tag.
    fn block(
        &mut self,
        lines: &mut Lines<'_>,
        tag: &str,
        position: Position,
        stray: &mut Stray,
    ) -> Option<Directive> {
        if !is_name(tag) {
            stray.add(position);
            return None;
        }
        if tag == "connection" {
            let inner = self.connection(lines, &position, stray)?;
            return Some(Directive { inner, ..directive(tag, Vec::new(), None, position) });
        }
        let end = format!("</{tag}>");
        let mut text = Text::default();
        while let Some((_, line)) = lines.next() {
            if line.trim_start().starts_with(&end) {
                return Some(directive(tag, Vec::new(), Some(Arc::new(text)), position));
            }
            // It grows as it must.
            let _ = writeln!(text, "{line}");
        }
        let wrong = Wrong::new(format!("<{tag}> has no end"), format!("write {end} behind its last line"));
        self.verdict.refuse(&position, tag, wrong);
        None
    }

    /// The directives of a block `<connection>`.
    fn connection(
        &mut self,
        lines: &mut Lines<'_>,
        begin: &Position,
        stray: &mut Stray,
    ) -> Option<Vec<Directive>> {
        let mut inner = Vec::new();
        while let Some((line, content)) = lines.next() {
            if content.trim_start().starts_with("</connection>") {
                return Some(inner);
            }
            let position = Position { file: Arc::clone(&begin.file), line };
            // One within another is refused as a directive that may not stand here.
            inner.extend(self.line(lines, content, position, stray).filter(|_| self.has_room()));
        }
        let wrong = Wrong::new("<connection> has no end", "write </connection> behind its last line");
        self.verdict.refuse(begin, "connection", wrong);
        None
    }

    fn has_room(&self) -> bool {
        self.directives.len() < MOST
    }

    /// Adds a directive, or carries it out if it is about reading itself.
    fn add(&mut self, mut directive: Directive) {
        if let Some(opt) = optional(&directive) {
            directive = opt;
        }
        let argument = |index: usize| directive.arguments.get(index).map(|word| word.as_str());
        match (directive.name.as_str(), argument(0)) {
            ("config", Some(file)) => {
                let (position, file) = (directive.position.clone(), file.to_owned());
                return self.include(&position, &file);
            }
            ("cd", Some(folder)) => self.folder = self.folder.join(Path::new(folder)),
            ("ignore-unknown-option", _) => {
                let names = directive.arguments.iter();
                self.ignored.extend(names.map(|name| name.trim_start_matches("--").to_owned()));
            }
            ("setenv", Some("FORWARD_COMPATIBLE")) => {
                self.is_forward_compatible = argument(1) == Some("1");
            }
            _ => {}
        }
        self.keep(directive);
    }

    /// Keeps a directive that is known; others are ignored if the file wants it, and refused if not.
    fn keep(&mut self, mut directive: Directive) {
        let inner = std::mem::take(&mut directive.inner);
        let inner = inner.into_iter().map(|it| optional(&it).unwrap_or(it));
        directive.inner = inner.filter(|it| self.is_known(it, Scope::CONNECTION)).collect();
        if directive.name == "connection" && directive.block.is_none()
            || self.is_known(&directive, Scope::CONFIG)
        {
            self.directives.push(directive);
        }
    }

    fn is_known(&mut self, directive: &Directive, scope: Scope) -> bool {
        let Directive { name, position, .. } = directive;
        if table::find(name).is_some() {
            return true;
        }
        if directive.is_optional || self.is_forward_compatible || self.ignored.contains(name) {
            let text = "it is unknown, and the file allows ignoring it";
            self.verdict.remark(position, name, text, false);
            return false;
        }
        self.verdict.refuse(position, name, table::unknown(name, scope));
        false
    }
}

/// The directive behind `setenv opt`.
fn optional(directive: &Directive) -> Option<Directive> {
    let is_setenv = directive.name == "setenv" && directive.arguments.first()?.as_str() == "opt";
    let name = directive.arguments.get(1).filter(|name| is_setenv && is_name(name))?;
    let arguments = directive.arguments[2..].to_vec();
    let position = directive.position.clone();
    Some(Directive { is_optional: true, ..self::directive(name, arguments, None, position) })
}

fn directive(name: &str, arguments: Vec<Word>, block: Option<Arc<Text>>, position: Position) -> Directive {
    Directive { name: name.to_owned(), arguments, block, inner: Vec::new(), position, is_optional: false }
}

/// Lines that are no directives. Neighbours are reported as one: a PEM block without its tags has many.
#[derive(Default)]
struct Stray {
    first: Option<Position>,
    count: usize,
    last: usize,
}

impl Stray {
    fn add(&mut self, position: Position) {
        self.last = position.line;
        self.count += 1;
        self.first.get_or_insert(position);
    }

    fn report(self, verdict: &mut Verdict) {
        let Some(first) = self.first else { return };
        let reason = match self.count {
            1 => "this line is no directive".to_owned(),
            count => format!("{count} lines from here to line {} are no directives", self.last),
        };
        let fix = "write NAME ARGUMENT..., or put a certificate or key between <ca> and </ca>, <cert> and </cert>, <key> and </key>";
        verdict.refuse(&first, "", Wrong::new(reason, fix));
    }
}
