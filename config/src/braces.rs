//! Configurations in braces, as VyOS saves them in `config.boot` and `show` prints them.
//!
//! ```text
//! interfaces {
//!     wireguard wg0 {
//!         address "10.1.0.1/30"
//!         disable
//!     }
//! }
//! ```

use crate::error::{ConfigError, Location};
use crate::schema::Cursor;
use crate::statement::HIDDEN;
use crate::token::Token;
use crate::tree::Tree;
use std::fmt::{self, Write};
use zeroize::Zeroizing;

/// A part of a configuration in braces.
pub(crate) enum Part {
    /// The words before an opening brace.
    Open(Vec<Token>),
    /// The words of a line without a brace: a leaf and its value.
    Leaf(Vec<Token>),
    /// A closing brace.
    Close,
    /// A comment on what follows.
    Comment(String),
}

/// Whether a text is in braces: its first line that is no comment opens a block.
pub fn is_in(text: &str) -> bool {
    let mut in_comment = false;
    let first = text.lines().map(str::trim).find(|line| {
        let begins = line.starts_with("/*");
        let is_comment = in_comment || begins || line.starts_with("//") || line.starts_with('#');
        in_comment = (in_comment || begins) && !line.ends_with("*/");
        !line.is_empty() && !is_comment
    });
    first.is_some_and(|line| {
        line.ends_with('{') && !["set", "delete"].iter().any(|verb| line.starts_with(verb))
    })
}

/// The parts of a text, in which every block is closed.
pub(crate) fn parts(text: &str) -> Result<Vec<Part>, ConfigError> {
    let mut reader = Reader { characters: text.chars().peekable(), line: 1, column: 1 };
    let (mut parts, mut words, mut open) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(&character) = reader.characters.peek() {
        let location = Location { line: reader.line, column: reader.column, width: 1 };
        match character {
            '\n' | '}' if !words.is_empty() => parts.push(Part::Leaf(std::mem::take(&mut words))),
            _ if character.is_whitespace() => _ = reader.next(),
            '{' if words.is_empty() => {
                return Err(ConfigError::new(location, "no words before this brace")
                    .fix("write what the block is about: interfaces {"));
            }
            '{' => {
                reader.next();
                open.push(location);
                parts.push(Part::Open(std::mem::take(&mut words)));
            }
            '}' => {
                reader.next();
                let closes = open.pop().is_some();
                if !closes {
                    return Err(ConfigError::new(location, "no block is open here").fix("remove the brace"));
                }
                parts.push(Part::Close);
            }
            _ => match reader.word(words.is_empty())? {
                Read::Word(word) => words.push(word),
                Read::Comment(text) => parts.push(Part::Comment(text)),
                Read::Nothing => {}
            },
        }
    }
    if !words.is_empty() {
        parts.push(Part::Leaf(words));
    }
    match open.pop() {
        Some(location) => {
            Err(ConfigError::new(location, "the block is never closed").fix("add the closing brace"))
        }
        None => Ok(parts),
    }
}

/// What stands where a word may.
enum Read {
    Word(Token),
    /// The text of a comment on what follows: `/* text */`.
    Comment(String),
    /// A line that begins with # or //.
    Nothing,
}

struct Reader<'a> {
    characters: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    column: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.characters.next();
        if next == Some('\n') {
            (self.line, self.column) = (self.line + 1, 1);
        } else {
            self.column += 1;
        }
        next
    }

    /// Reads a word, or a comment if that may stand here.
    fn word(&mut self, is_first: bool) -> Result<Read, ConfigError> {
        let start = Location { line: self.line, column: self.column, width: 1 };
        let mut rest = self.characters.clone();
        match (rest.next(), rest.next()) {
            (Some('/'), Some('*')) if is_first => return self.comment(start).map(Read::Comment),
            (Some('#'), _) | (Some('/'), Some('/')) if is_first => {
                while self.characters.peek().is_some_and(|&next| next != '\n') {
                    self.next();
                }
                return Ok(Read::Nothing);
            }
            _ => {}
        }
        // Allocated in full: text that moves would leave a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(room(self.characters.clone())));
        let (mut quote, mut is_misplaced) = (None, false);
        while let Some(&character) = self.characters.peek() {
            match quote {
                None if character.is_whitespace() => break,
                None if matches!(character, '\'' | '"') => quote = Some(character),
                Some(open) if character == open => {
                    quote = None;
                    // Otherwise it is the next quotation that ends here, as the closing quote of this one is missing.
                    let mut rest = self.characters.clone();
                    rest.next();
                    is_misplaced |=
                        text.contains('\n') && rest.next().is_some_and(|next| !next.is_whitespace());
                }
                Some('"') if character == '\\' => {
                    self.next();
                    text.extend(self.characters.peek());
                }
                _ => text.push(character),
            }
            self.next();
        }
        let width = if self.line == start.line { self.column - start.column } else { 1 };
        let location = Location { width, ..start };
        if quote.is_some() || is_misplaced {
            return Err(ConfigError::new(location, "the closing quote is missing")
                .fix("add it, or remove the opening one"));
        }
        Ok(Read::Word(Token { text: joined(text), location }))
    }

    fn comment(&mut self, start: Location) -> Result<String, ConfigError> {
        self.next();
        self.next();
        let mut text = String::new();
        while let Some(character) = self.next() {
            if character == '*' && self.characters.peek() == Some(&'/') {
                self.next();
                // One line, in which nothing of the terminal of others is.
                let words = text.split(|c: char| c.is_whitespace() || c.is_control());
                return Ok(words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
            }
            text.push(character);
        }
        Err(ConfigError::new(Location { width: 2, ..start }, "the comment is never closed").fix("add */"))
    }
}

/// The bytes to the end of a word, in which quotations may span lines.
fn room(rest: impl Iterator<Item = char>) -> usize {
    let (mut quote, mut is_escaped) = (None, false);
    let of_word = rest.take_while(|&character| {
        let was_escaped = std::mem::replace(&mut is_escaped, false);
        match quote {
            _ if was_escaped => {}
            Some('"') if character == '\\' => is_escaped = true,
            None if matches!(character, '\'' | '"') => quote = Some(character),
            Some(open) if character == open => quote = None,
            _ => {}
        }
        quote.is_some() || !character.is_whitespace()
    });
    of_word.map(char::len_utf8).sum()
}

/// The length of lines in PEM (RFC 7468).
const PEM: usize = 64;

/// Base64 that is wrapped, as in PEM, in one line; all other text as it is.
fn joined(text: Zeroizing<String>) -> Zeroizing<String> {
    let first = text.trim_start().lines().next().unwrap_or_default();
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c) || c.is_whitespace();
    if !text.contains('\n')
        || first.trim_end().len() < PEM
        || first.trim_end().contains(' ')
        || !text.chars().all(is_base64)
    {
        return text;
    }
    let mut line = Zeroizing::new(String::with_capacity(text.len()));
    line.extend(text.chars().filter(|c| !c.is_whitespace()));
    line
}

/// Writes a configuration in braces, with its secrets hidden unless `secrets` is set.
pub(crate) fn write(tree: &Tree, secrets: bool, out: &mut impl Write) -> fmt::Result {
    write_block(tree, Cursor::root(), "", secrets, out)
}

fn write_block(
    tree: &Tree,
    cursor: Cursor,
    indent: &str,
    secrets: bool,
    out: &mut impl Write,
) -> fmt::Result {
    for (word, branch) in tree.children() {
        let Some(next) = cursor.down(word) else { continue };
        let node = next.node();
        write_comment(branch, indent, out)?;
        for value in branch.own_values() {
            write!(out, "{indent}{word} ")?;
            let hidden = !secrets && node.is_some_and(|node| node.secret);
            write_value(if hidden { HIDDEN } else { value }, out)?;
            writeln!(out)?;
        }
        // A word is followed by names, by words or by values: never by two of them.
        if next.next().any(|after| after.tag().is_some()) {
            for (name, named) in branch.children() {
                let below = next.down(name).unwrap_or(next);
                write_comment(named, indent, out)?;
                write_inner(&format!("{word} {}", shortest(name)), named, below, indent, secrets, out)?;
            }
        } else if next.next().next().is_some() {
            write_inner(word, branch, next, indent, secrets, out)?;
        } else if branch.own_values().is_empty() {
            writeln!(out, "{indent}{word}")?;
        }
    }
    Ok(())
}

fn write_comment(branch: &Tree, indent: &str, out: &mut impl Write) -> fmt::Result {
    branch.comment().map_or(Ok(()), |text| writeln!(out, "{indent}/* {text} */"))
}

fn write_inner(
    words: &str,
    branch: &Tree,
    cursor: Cursor,
    indent: &str,
    secrets: bool,
    out: &mut impl Write,
) -> fmt::Result {
    writeln!(out, "{indent}{words} {{")?;
    write_block(branch, cursor, &format!("{indent}    "), secrets, out)?;
    writeln!(out, "{indent}}}")
}

/// A value or name as `show` of VyOS prints it: in quotes only if it would not be read as one word without them.
pub(crate) fn shortest(value: &str) -> String {
    let special = |c: char| c.is_whitespace() || "'\"{}\\#".contains(c);
    let is_comment = value.starts_with("//") || value.starts_with("/*");
    if !value.is_empty() && !value.contains(special) && !is_comment {
        return value.to_owned();
    }
    let mut text = String::new();
    // A string takes whatever is written.
    let _ = write_value(value, &mut text);
    text
}

/// Writes a value in double quotes, as VyOS 1.4 does.
fn write_value(value: &str, out: &mut impl Write) -> fmt::Result {
    out.write_char('"')?;
    for character in value.chars() {
        if matches!(character, '"' | '\\') {
            out.write_char('\\')?;
        }
        out.write_char(character)?;
    }
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use crate::error::Location;
    use crate::schema::{Cursor, nodes};
    use crate::{parse, print};
    use std::fmt::Write as _;

    /// As VyOS 1.3 and 1.4 save it, with a comment of the user, values in quotes or not, and their footers.
    const SAVED: &str = r#"/* the office */
interfaces {
    /* to Berlin */
    wireguard wg0 {
        address "10.1.0.1/30"
        address 2001:db8::1/64
        description "the \"long\" way \\ {"
        disable
        peer berlin {
            persistent-keepalive 25
        }
        peer paris {
        }
    }
}
vpn {
    ipsec {
        ike-group A {
            dead-peer-detection {
            }
            ikev2-reauth no
        }
        options {
        }
    }
}
// Warning: Do not remove the following line.
// vyos-config-version: "wireguard@1:ipsec@5"
"#;

    const LINES: &str = r#"set interfaces wireguard wg0 address 10.1.0.1/30
set interfaces wireguard wg0 address 2001:db8::1/64
set interfaces wireguard wg0 description 'the "long" way \ {'
set interfaces wireguard wg0 disable
set interfaces wireguard wg0 peer berlin persistent-keepalive 25
set interfaces wireguard wg0 peer paris
set vpn ipsec ike-group A dead-peer-detection
set vpn ipsec ike-group A ikev2-reauth no
"#;

    #[test]
    fn a_saved_configuration_is_read_and_written() {
        let tree = parse(SAVED).expect("valid");
        assert_eq!(print::commands(&tree, true), LINES);
        let comment = |words: &[&str]| tree.at(words).and_then(|branch| branch.comment().map(str::to_owned));
        assert_eq!(comment(&["interfaces"]).as_deref(), Some("the office"));
        assert_eq!(comment(&["interfaces", "wireguard", "wg0"]).as_deref(), Some("to Berlin"));
        assert_eq!(parse(print::text(&tree).as_str().expect("text")).expect("valid"), tree);
        let written = print::braces(&tree, true);
        assert_eq!(parse(&written).expect("valid"), tree, "{written}");
        let first = "/* the office */\ninterfaces {\n    /* to Berlin */\n    wireguard wg0 {\n        address \"10.1.0.1/30\"\n";
        assert!(written.starts_with(first), "{written}");
    }

    #[test]
    fn names_with_quotes_and_braces_are_read_again() {
        let names =
            ["o'brien", "a\"b", "'", "\"", "{", "}", "a{", "{}", "#1", "//x", "/*x*/", "\\", "a\\\"'{", "é"];
        let mut lines = String::new();
        for name in names {
            let name = print::quoted(name);
            let _ = writeln!(lines, "set interfaces wireguard wg0 peer {name}");
            let _ = writeln!(lines, "set interfaces wireguard wg1 peer {name} description {name}");
            let _ = writeln!(lines, "comment interfaces wireguard wg1 peer {name} note");
        }
        let tree = parse(&lines).expect("valid");
        for name in names {
            let description = tree.at(&["interfaces", "wireguard", "wg1", "peer", name]);
            assert_eq!(description.and_then(|peer| peer.value("description")), Some(name));
        }
        let braces = print::braces(&tree, true);
        assert_eq!(parse(&braces).unwrap_or_else(|errors| panic!("{errors:?} in\n{braces}")), tree);
        let text = print::text(&tree);
        assert_eq!(parse(text.as_str().expect("text")).expect("valid"), tree);
    }

    #[test]
    fn a_quotation_may_span_lines() {
        let key = "MIIBBzCBuqADAgECAhRX".repeat(4);
        let (one, other) = key.split_at(64);
        let text = format!("pki {{\n  ca a {{\n    certificate \"{one}\n{other}\"\n  }}\n}}\n");
        let tree = parse(&text).expect("valid");
        assert_eq!(tree.at(&["pki", "ca", "a"]).and_then(|ca| ca.value("certificate")), Some(key.as_str()));
        let wrong = |text: &str| parse(text).expect_err("wrong")[0].clone();
        let text = wrong("interfaces {\n  wireguard wg0 {\n    description \"a\n b\"\n    mtu 1\n  }\n}\n");
        assert!(text.reason.contains("one line"), "{text:?}");
        let open = wrong(
            "interfaces {\n  wireguard wg0 {\n    description \"a\n    address \"10.0.0.1/8\"\n  }\n}\n",
        );
        assert_eq!((open.location.line, open.location.column), (3, 17), "{open:?}");
    }

    #[test]
    fn secrets_are_hidden_unless_asked_for() {
        let tree = parse("set vpn ipsec authentication psk a secret OpenSesame").expect("valid");
        assert!(print::braces(&tree, false).contains("secret \"********\"\n"));
        assert!(print::braces(&tree, true).contains("secret \"OpenSesame\"\n"));
    }

    #[test]
    fn errors_name_the_place_and_an_unknown_block_is_one_error() {
        let text = "interfaces {\n  wireguard wg0 {\n    mtu 12\n  }\n  bonding bond0 {\n    address dhcp\n    \
                    vif 5 {\n    }\n  }\n  wireguard wg1 {\n    adress 10.0.0.1/8\n  }\n}\ncontainer {\n  name a {\n  }\n}\n";
        let errors = parse(text).expect_err("wrong");
        let places: Vec<_> = errors.iter().map(|it| (it.location.line, it.location.column)).collect();
        assert_eq!(places, [(3, 9), (5, 3), (11, 5), (14, 1)], "{errors:?}");
        assert_eq!(errors[2].fix.as_deref(), Some("did you mean address?"));
    }

    #[test]
    fn a_text_that_is_cut_off_is_refused_where_it_is_open() {
        let at = |text: &str| parse(text).expect_err("wrong")[0].clone();
        let wrong = at("interfaces {\n  wireguard wg0 {\n    disable\n  }\n");
        assert_eq!(wrong.location, Location { line: 1, column: 12, width: 1 });
        assert_eq!(at("interfaces {\n}\n}").location, Location { line: 3, column: 1, width: 1 });
        assert!(at("interfaces {\n  {\n").reason.contains("no words"));
        assert!(at("interfaces {\n  /* a\n}").reason.contains("comment"));
        let quote = at("interfaces {\n  wireguard wg0 {\n    description \"a\n  }\n}");
        assert_eq!((quote.location.line, quote.location.column), (3, 17));
    }

    #[test]
    fn what_follows_a_word_is_names_or_words() {
        for node in nodes() {
            let mut cursor = Cursor::root();
            for word in node.path.split(' ') {
                let names = cursor.next().filter(|next| next.tag().is_some()).count();
                assert!(names == 0 || cursor.next().count() == names, "{}", node.path);
                cursor = cursor.down(word).expect("it is in the grammar");
            }
        }
    }
}
