//! Configurations of VyOS and EdgeOS: `config.boot` in braces, and `set` lines as `show configuration commands` prints them.
//!
//! What the grammar has is taken. Older and foreign words for it are translated, and all else is left: a whole branch that is
//! no VPN is one entry of the report.

mod rules;

use super::Source;
use super::credentials::{Directories, Store};
use super::files::Files;
use super::place::{Origin, Place, SyntaxError};
use super::report::Draft;
use crate::braces::{self, Part};
use crate::error::{ConfigError, Location};
use crate::schema::{Cursor, Place as Node};
use crate::token::{Token, split};
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The versions of `ipsec` in the footer of a `config.boot`, up to which its words are those of VyOS 1.3 and before.
const OLD: u32 = 5;

/// One line: its words, without `set`.
struct Statement {
    words: Vec<Zeroizing<String>>,
    place: Place,
}

impl Statement {
    fn words(&self) -> Vec<&str> {
        self.words.iter().map(|word| word.as_str()).collect()
    }
}

/// A branch that is not imported.
struct Skipped {
    path: String,
    place: Place,
}

/// A source as it is read.
struct Configuration {
    statements: Vec<Statement>,
    skipped: Vec<Skipped>,
    /// Whether the words and defaults are those of VyOS 1.3 and before, and of EdgeOS.
    is_old: bool,
}

/// Imports files, each of which is a whole configuration.
pub(super) fn import(
    sources: &[Source],
    files: &dyn Files,
    is_edge: bool,
    draft: &mut Draft,
) -> Result<(), SyntaxError> {
    let folder = vec![PathBuf::from("/config/auth")];
    let directories = Directories {
        certificates: folder.clone(),
        authorities: folder.clone(),
        private: folder.clone(),
        public: folder.clone(),
        lists: Vec::new(),
    };
    for (order, source) in sources.iter().enumerate() {
        let configuration = read(order, source, is_edge)?;
        for skipped in &configuration.skipped {
            leave(skipped, draft);
        }
        let mut store = Store::new(files, directories.clone());
        rules::import(&configuration, files, &mut store, draft);
    }
    Ok(())
}

fn read(order: usize, source: &Source, is_edge: bool) -> Result<Configuration, SyntaxError> {
    let text = source.text()?;
    let file: Arc<str> = source.name.as_str().into();
    let place = |location: Location| Place {
        order,
        file: Arc::clone(&file),
        line: location.line,
        column: location.column,
        last_line: location.line,
    };
    let refused = |error: ConfigError| SyntaxError {
        place: place(error.location),
        reason: error.reason,
        fix: error.fix.unwrap_or_else(|| "export it again".to_owned()),
    };
    let mut configuration =
        Configuration { statements: Vec::new(), skipped: Vec::new(), is_old: is_edge || is_old(text) };
    if braces::is_in(text) {
        let parts = braces::parts(text).map_err(refused)?;
        configuration.blocks(parts, &place);
    } else {
        for (index, line) in text.lines().enumerate() {
            let mut words = split(line, index + 1).map_err(refused)?;
            if words.first().is_some_and(|word| *word.text == "set") {
                words.remove(0);
                configuration.line(words, &place);
            } else if let Some(first) = words.first().filter(|first| !is_of_session(&first.text)) {
                let fix = "export the configuration with: show configuration commands";
                return Err(refused(ConfigError::new(first.location, "this is no line of set").fix(fix)));
            }
        }
    }
    Ok(configuration)
}

/// Lines of a session without configuration.
fn is_of_session(word: &str) -> bool {
    matches!(word, "configure" | "commit" | "save" | "exit" | "edit" | "top" | "comment")
}

/// Whether the footer of a `config.boot`, or the name of a peer, says that it is of VyOS 1.3 or before.
fn is_old(text: &str) -> bool {
    let footer = ["vyos-config-version:", "vyatta-config-version:"]
        .iter()
        .find_map(|name| text.rsplit_once(name).map(|(_, footer)| footer));
    let footer = footer.and_then(|footer| footer.lines().next()).unwrap_or_default();
    let version = footer.split([':', '"', '=', ' ']).find_map(|part| part.strip_prefix("ipsec@"));
    version.and_then(|version| version.parse().ok()).is_some_and(|version: u32| version <= OLD)
}

/// Branches of which each line is looked at.
fn is_served(words: &[&str]) -> bool {
    let is_rule = matches!(words, ["nat", "source" | "destination", "rule", _, _, ..]);
    (is_rule || matches!(words, ["interfaces", "wireguard", ..] | ["vpn", "ipsec" | "rsa-keys", ..]))
        && !matches!(words, ["vpn", "ipsec", "remote-access" | "profile", ..])
}

/// Whether a path may be one of the grammar that is imported.
fn leads_on(words: &[&str]) -> bool {
    if words.first() == Some(&"firewall") {
        return false;
    }
    let mut cursor = Cursor::root();
    for word in words {
        match cursor.down(word) {
            Some(next) if matches!(next.place(), Node::Unsupported(_)) => return false,
            Some(next) => cursor = next,
            // The value of a node.
            None => return cursor.node().is_some(),
        }
    }
    true
}

impl Configuration {
    fn blocks(&mut self, parts: Vec<Part>, place: &impl Fn(Location) -> Place) {
        let mut path: Vec<Token> = Vec::new();
        let mut around: Vec<usize> = Vec::new();
        // A branch that is left out: how deep it is, and where it began.
        let mut skipping: Option<(usize, Skipped)> = None;
        // Whether the block that was opened last is empty so far.
        let mut is_empty = false;
        for part in parts {
            match part {
                Part::Open(words) => {
                    around.push(path.len());
                    let location = words.first().map(|word| word.location).unwrap_or_default();
                    path.extend(words);
                    let texts = texts(&path);
                    if skipping.is_none() && !is_served(&texts) && !leads_on(&texts) {
                        let skipped = Skipped { path: texts.join(" "), place: place(location) };
                        skipping = Some((around.len(), skipped));
                    }
                    is_empty = true;
                }
                Part::Comment(_) => {}
                Part::Close => {
                    if let (None, true, Some(last)) = (&skipping, is_empty, path.last()) {
                        let at = place(last.location);
                        self.add(&path, at, true);
                    }
                    if let Some((depth, _)) = &skipping
                        && *depth == around.len()
                    {
                        self.skipped.extend(skipping.take().map(|(_, skipped)| skipped));
                    }
                    path.truncate(around.pop().unwrap_or_default());
                    is_empty = false;
                }
                Part::Leaf(words) => {
                    is_empty = false;
                    let Some(first) = words.first() else { continue };
                    let at = place(first.location);
                    if let Some((_, skipped)) = &mut skipping {
                        skipped.place.last_line = at.line;
                        continue;
                    }
                    let before = path.len();
                    path.extend(words);
                    self.add(&path, at, false);
                    path.truncate(before);
                }
            }
        }
    }

    /// Adds a statement. A block that is empty may be one that only leads to others.
    fn add(&mut self, path: &[Token], place: Place, is_block: bool) {
        let texts = texts(path);
        let inner = Cursor::at(texts.iter().copied()).map(Cursor::place);
        if is_block && matches!(inner, Some(Node::Inner(_))) {
            return;
        }
        if !is_served(&texts) && !leads_on(&texts) {
            let path = without_value(&texts);
            return self.skipped.push(Skipped { path, place });
        }
        let words = path.iter().map(|word| word.text.clone()).collect();
        self.statements.push(Statement { words, place });
    }

    /// Adds a line. Lines of one branch that is left out are one entry.
    fn line(&mut self, words: Vec<Token>, place: &impl Fn(Location) -> Place) {
        let Some(first) = words.first() else { return };
        let at = place(first.location);
        let texts = texts(&words);
        if is_served(&texts) || leads_on(&texts) {
            let words = words.into_iter().map(|word| word.text).collect();
            return self.statements.push(Statement { words, place: at });
        }
        let path = without_value(&texts);
        match self.skipped.last_mut() {
            Some(last) if last.path == path => last.place.last_line = at.line,
            _ => self.skipped.push(Skipped { path, place: at }),
        }
    }
}

/// The words of a line that is left out, up to the first that the grammar does not know: a value may be a secret.
fn without_value(texts: &[&str]) -> String {
    let known = (1..=texts.len().min(3)).find(|length| !leads_on(&texts[..*length])).unwrap_or(1);
    texts[..known].join(" ")
}

fn texts(path: &[Token]) -> Vec<&str> {
    path.iter().map(|word| word.text.as_str()).collect()
}

/// Reports a branch that is not imported.
fn leave(skipped: &Skipped, draft: &mut Draft) {
    let Skipped { path, place } = skipped;
    let origin = Origin { place: place.clone(), option: path.clone() };
    let words: Vec<&str> = path.split(' ').collect();
    let known =
        (1..=words.len()).find_map(|length| match Cursor::at(words[..length].iter().copied())?.place() {
            Node::Unsupported(known) => Some(known.instead),
            _ => None,
        });
    // It is in no result, so that there is no line to remove.
    let known = known.filter(|instead| !instead.starts_with("remove the line"));
    let only = "Postern serves VPNs, and leaves this to the system";
    match words[..] {
        // One of which a condition is not served would let in more than the router does.
        ["firewall" | "zone-policy", ..] => draft.leave_open(
            &origin,
            "rules of a firewall are not imported",
            "write zones and rule sets, as docs/router.md shows: packets of tunnels come from ipsec0 and wgN",
        ),
        ["nat" | "nat66" | "policy" | "traffic-policy" | "port-forward", ..] => {
            draft.leave_open(
                &origin,
                "NAT has source and destination rules for IPv4 only",
                "write the rules in nftables.conf: packets of tunnels come from ipsec0 and wgN",
            );
        }
        ["vpn", ..] | ["interfaces", "openvpn" | "vti" | "tunnel" | "l2tpv3" | "vxlan" | "macsec", ..] => {
            let why = "Postern has WireGuard, and IPsec between sites: this is not served";
            draft.leave_open(
                &origin,
                why,
                known.unwrap_or("keep the router for it, or use a tunnel with prefixes"),
            );
        }
        ["protocols", "static", ..] => {
            draft.leave(
                &origin,
                only,
                "routes to the prefixes of tunnels are set by Postern; set the others in the system",
            );
        }
        _ => draft.leave(&origin, only, known.unwrap_or("configure it with the operating system")),
    }
}
