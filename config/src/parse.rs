//! Reads lines of `set` and `delete`, or blocks in braces as `config.boot` has them. The first 100 wrong lines are reported,
//! each with its place and the nearest valid word.
//!
//! Lines that begin and end a session at a router are skipped, so that text copied from a guide can be read.

use crate::braces::{self, Part};
use crate::comment::{self, Comments};
use crate::error::{ConfigError, Location, MOST_ERRORS};
use crate::path::Path;
use crate::schema::{Cursor, Kind, Node, Place, nearest};
use crate::statement::HIDDEN;
use crate::token::{Token, split};
use crate::tree::Tree;
use crate::walk::{check, end_of, more_words, suggest, unsupported, walk};
use zeroize::Zeroizing;

/// Lines of a session without configuration.
const SESSION: &[&str] = &["configure", "commit", "save", "exit"];

/// The reason of the error for a line that deletes what is not set.
pub const NOTHING_TO_DELETE: &str = "nothing to delete: it is not set";

/// Reads a configuration.
pub fn parse(text: &str) -> Result<Tree, Vec<ConfigError>> {
    if braces::is_in(text) {
        return blocks(text);
    }
    let mut tree = Tree::default();
    let mut errors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Err(error) = split(line, index + 1).and_then(|words| read(&words, &mut tree)) {
            errors.push(error);
            if errors.len() == MOST_ERRORS {
                break;
            }
        }
    }
    if errors.is_empty() { Ok(tree) } else { Err(errors) }
}

/// Reads a configuration in braces. Of a block that is not known only the beginning is an error.
fn blocks(text: &str) -> Result<Tree, Vec<ConfigError>> {
    let parts = braces::parts(text).map_err(|error| vec![error])?;
    let (mut tree, mut errors) = (Tree::default(), Vec::new());
    let mut path: Vec<Token> = Vec::new();
    // For each block around the place: the words of the path before it.
    let mut around = Vec::new();
    let mut comments = Comments::default();
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next()
        && errors.len() < MOST_ERRORS
    {
        let result = match part {
            Part::Comment(text) => {
                comments.next = Some(text);
                Ok(())
            }
            Part::Open(words) => {
                around.push(path.len());
                path.extend(words);
                comments.about(&path);
                match walk(&path) {
                    Err(error) => {
                        skip_block(&mut parts);
                        path.truncate(around.pop().unwrap_or_default());
                        Err(error)
                    }
                    // A name or a branch may have an empty block; so may a word that only leads to others.
                    Ok((cursor, ..)) if matches!(parts.peek(), Some(Part::Close)) => match cursor.place() {
                        Place::Inner(_) => Ok(()),
                        _ => set_last(&path, &mut tree),
                    },
                    Ok(_) => Ok(()),
                }
            }
            Part::Close => {
                path.truncate(around.pop().unwrap_or_default());
                comments.next = None;
                Ok(())
            }
            Part::Leaf(words) => {
                let before = path.len();
                path.extend(words);
                comments.about(&path);
                let result = set_last(&path, &mut tree);
                path.truncate(before);
                result
            }
        };
        errors.extend(result.err());
    }
    comments.attach(&mut tree);
    if errors.is_empty() { Ok(tree) } else { Err(errors) }
}

/// Goes on behind the block that was opened last.
fn skip_block(parts: &mut impl Iterator<Item = Part>) {
    let mut depth = 1;
    while depth > 0 {
        match parts.next() {
            Some(Part::Open(_)) => depth += 1,
            Some(Part::Close) => depth -= 1,
            Some(Part::Leaf(_) | Part::Comment(_)) => {}
            None => return,
        }
    }
}

/// Sets a path of which the last word is where an incomplete one is reported.
fn set_last(path: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    path.last().map_or(Ok(()), |last| set(last, path, tree))
}

/// Executes one line of `set` or `delete` at a level. Words of the grammar may be abbreviated.
pub fn execute(line: &str, level: &Path, tree: &mut Tree) -> Result<(), ConfigError> {
    let mut words = split(line, 1)?;
    if let [verb] = &words[..] {
        return Err(ConfigError::new(end_of(verb), "the line is not complete"));
    }
    let above = level
        .words()
        .into_iter()
        .map(|word| Token { text: Zeroizing::new(word.to_owned()), location: Location::default() });
    words.splice(words.len().min(1)..words.len().min(1), above);
    let mut cursor = Cursor::root();
    // The text of a comment is no word of the grammar.
    let of_path =
        words.len() - usize::from(words.first().is_some_and(|verb| verb.text.as_str() == "comment"));
    for word in words[..of_path].iter_mut().skip(1) {
        let Some(next) = cursor.expand(&word.text) else { break };
        if next.tag().is_none() {
            word.text = Zeroizing::new(next.word().to_owned());
        }
        cursor = next;
    }
    read(&words, tree)
}

/// Executes one line of `set` or `delete` with whole words. Returns the branch that it deleted by its name.
pub(crate) fn edit(line: &str, number: usize, tree: &mut Tree) -> Result<Option<Path>, ConfigError> {
    let words = split(line, number)?;
    match words.split_first() {
        Some((verb, words)) if verb.text.as_str() == "delete" => {
            delete(verb, words, tree)?;
            let (_, path, value) = walk(words)?;
            let branch = || Path::new(path.iter().map(|word| word.text.as_str()));
            Ok(value.is_empty().then(branch))
        }
        Some((verb, _)) if SESSION.contains(&verb.text.as_str()) => {
            Err(ConfigError::new(verb.location, "an edit begins with set or delete"))
        }
        _ => read(&words, tree).map(|()| None),
    }
}

/// Executes one line.
fn read(words: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    let Some((verb, words)) = words.split_first() else { return Ok(()) };
    match verb.text.as_str() {
        "set" => set(verb, words, tree),
        "delete" => delete(verb, words, tree),
        "comment" => comment::note(verb, words, tree),
        other if SESSION.contains(&other) && words.is_empty() => Ok(()),
        other => {
            const VERBS: &[&str] = &["set", "delete", "comment"];
            let error = ConfigError::new(verb.location, format!("unknown word {other:?}"));
            Err(suggest(error, nearest(other, VERBS), VERBS))
        }
    }
}

fn set(verb: &Token, words: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    let (cursor, path, rest) = walk(words)?;
    let located: Vec<(&str, Location)> =
        path.iter().map(|word| (word.text.as_str(), word.location)).collect();
    let last = path.last().unwrap_or(verb);
    match (cursor.place(), rest) {
        (Place::Inner(_), _) => Err(more_words(last, cursor)),
        (Place::Tag(_), []) => {
            tree.make(&located);
            Ok(())
        }
        (Place::Node(Node { kind: Kind::Flag | Kind::FlagOr(_) | Kind::Branch, .. }), []) => {
            tree.make(&located).unset();
            Ok(())
        }
        (Place::Node(node), [value]) if let Some(kind) = node.kind.value_type() => {
            if node.secret && value.text.as_str() == HIDDEN {
                return Err(ConfigError::new(
                    value.location,
                    "these stars stand for a secret that was not shown",
                )
                .fix("write the secret itself: show configuration commands --secrets prints it"));
            }
            check(kind, value)?;
            tree.make(&located).set(&value.text, value.location, matches!(node.kind, Kind::Values(_)));
            Ok(())
        }
        (Place::Node(node), []) => Err(ConfigError::new(end_of(last), "a value is missing").fix(format!(
            "{}: {}",
            last.text.as_str(),
            node.help
        ))),
        (_, [.., extra]) => Err(ConfigError::new(extra.location, "nothing may follow here")
            .fix("put a value with spaces in quotes")),
        (Place::Unsupported(known), []) => Err(unsupported(last, known)),
    }
}

/// Removes words that nothing follows any more, unless they are valid alone.
fn prune(path: &[&str], tree: &mut Tree) {
    for length in (1..path.len()).rev() {
        let words = &path[..length];
        let is_empty = tree.at(words).is_some_and(Tree::is_empty);
        let place = Cursor::at(words.iter().copied()).map(Cursor::place);
        if !is_empty || !matches!(place, Some(Place::Inner(_))) {
            return;
        }
        tree.remove(words, None);
    }
}

fn delete(verb: &Token, words: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    let (cursor, path, rest) = walk(words)?;
    let last = path.last().unwrap_or(verb);
    let texts: Vec<&str> = path.iter().map(|word| word.text.as_str()).collect();
    let value = match (cursor.place(), rest) {
        (_, []) => None,
        (Place::Node(node), [value]) if node.kind.value_type().is_some() => Some(value.text.as_str()),
        (_, [extra, ..]) => return Err(ConfigError::new(extra.location, "nothing may follow here")),
    };
    if texts.is_empty() {
        return Err(more_words(verb, cursor));
    }
    if tree.remove(&texts, value) {
        prune(&texts, tree);
        return Ok(());
    }
    Err(ConfigError::new(last.location, NOTHING_TO_DELETE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";

    fn error(line: &str) -> ConfigError {
        let mut errors = parse(line).expect_err("wrong");
        assert_eq!(errors.len(), 1, "{line}");
        errors.remove(0)
    }

    #[test]
    fn lines_make_a_tree() {
        let text = format!(
            "# office\n\nset interfaces wireguard wg0 address 10.1.0.1/30\n\
             set interfaces wireguard wg0 address '2001:db8::1/64'\n\
             set interfaces wireguard wg0 description \"to Berlin, the \"'long way'\n\
             set interfaces wireguard wg0 disable\n\
             set interfaces wireguard wg0 peer berlin public-key {KEY}\n"
        );
        let tree = parse(&text).expect("right");
        let wg0 = tree.at(&["interfaces", "wireguard", "wg0"]).expect("set");
        assert_eq!(wg0.values("address"), ["10.1.0.1/30", "2001:db8::1/64"]);
        assert_eq!(wg0.value("description"), Some("to Berlin, the long way"));
        assert!(wg0.has("disable"));
        assert_eq!(wg0.at(&["peer", "berlin"]).and_then(|peer| peer.value("public-key")), Some(KEY));
    }

    #[test]
    fn reading_stops_after_the_errors_that_are_reported() {
        let lines = "set frob\n".repeat(MOST_ERRORS + 1);
        assert_eq!(parse(&lines).expect_err("wrong").len(), MOST_ERRORS);
        let blocks = format!("interfaces {{\n{}}}\n", "frob a\n".repeat(MOST_ERRORS + 1));
        assert_eq!(parse(&blocks).expect_err("wrong").len(), MOST_ERRORS);
        let edits = vec!["set frob"; MOST_ERRORS + 1];
        let errors = crate::edits::carry_out(edits, &mut Tree::default()).expect_err("wrong");
        assert_eq!(errors.len(), MOST_ERRORS);
    }

    #[test]
    fn a_value_set_twice_is_replaced_or_added() {
        let tree = parse(
            "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg0 mtu 1300\n\
             set interfaces wireguard wg0 address 10.0.0.1/8\nset interfaces wireguard wg0 address 10.0.0.1/8",
        )
        .expect("right");
        let wg0 = tree.at(&["interfaces", "wireguard", "wg0"]).expect("set");
        assert_eq!((wg0.value("mtu"), wg0.values("address").len()), (Some("1300"), 1));
    }

    #[test]
    fn delete_takes_back() {
        let before = "set interfaces wireguard wg0 address 10.0.0.1/8\n\
                      set interfaces wireguard wg0 address 10.0.0.2/8\n\
                      set interfaces wireguard wg0 disable\n";
        let tree = parse(&format!(
            "{before}delete interfaces wireguard wg0 address 10.0.0.1/8\ndelete interfaces wireguard wg0 disable"
        ))
        .expect("right");
        let wg0 = tree.at(&["interfaces", "wireguard", "wg0"]).expect("set");
        assert_eq!((wg0.values("address"), wg0.has("disable")), (vec!["10.0.0.2/8"], false));
        assert_eq!(
            parse(&format!("{before}delete interfaces wireguard"))
                .expect("right")
                .at(&["interfaces", "wireguard"]),
            None
        );
        let tree = parse("set vpn ipsec log level 1\ndelete vpn ipsec log level").expect("right");
        assert_eq!(tree, Tree::default(), "no word is left over");
        let line = "interfaces wireguard wg0";
        let tree = parse(&format!("set {line} mtu 1400\ndelete {line} mtu")).expect("right");
        assert_eq!(tree, parse(&format!("set {line}")).expect("right"), "a name may stand alone");
        assert_eq!(error("delete interfaces wireguard wg0").reason, "nothing to delete: it is not set");
    }

    #[test]
    fn a_line_at_a_level_is_about_what_is_there_and_may_be_abbreviated() {
        let level = Path::new(["interfaces", "wireguard", "wg0"]);
        let mut tree = Tree::default();
        execute("set mtu 1400", &level, &mut tree).expect("right");
        execute("set int wire wg1 desc disable", &Path::default(), &mut tree).expect("right");
        let text = "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg1 description disable";
        assert_eq!(tree, parse(text).expect("right"));
        execute("delete mtu", &level, &mut tree).expect("it is set");
        assert_eq!(tree.at(&level.words()), Some(&Tree::default()), "a name may stand alone");
        let wrong = execute("set d", &level, &mut tree).expect_err("several words begin so");
        assert_eq!((wrong.location.column, wrong.reason.as_str()), (5, "ambiguous word \"d\""));
        assert_eq!(
            execute("delete", &level, &mut tree).expect_err("all of it?").reason,
            "the line is not complete"
        );
        assert!(tree.at(&level.words()).is_some());
    }

    #[test]
    fn a_wrong_word_is_placed_and_the_nearest_named() {
        let wrong = error("set interfaces wireguard wg0 adress 10.0.0.1/8");
        assert_eq!(wrong.location, Location { line: 1, column: 30, width: 6 });
        assert_eq!(wrong.fix.as_deref(), Some("did you mean address?"));
        assert_eq!(error("set int wireguard").fix.as_deref(), Some("did you mean interfaces?"));
        assert_eq!(error("sett interfaces").fix.as_deref(), Some("did you mean set?"));
        assert_eq!(error("set interface wireguard").fix.as_deref(), Some("did you mean interfaces?"));
        assert!(error("set interfaces bonding bond0").fix.expect("a list").contains("wireguard"));
        let wrong = error("set interfaces wireguard wg0 peer a allowed-ip 10.0.0.0/8");
        assert_eq!(wrong.fix.as_deref(), Some("did you mean allowed-ips?"));
    }

    #[test]
    fn wrong_values_are_refused_where_they_stand() {
        let wrong = error("set interfaces wireguard wg0 mtu 12");
        assert_eq!(
            (wrong.location.column, wrong.reason.as_str()),
            (34, "\"12\" is not a number from 68 to 65475")
        );
        let wrong = error("set interfaces wireguard vpn0 mtu 1400");
        assert_eq!((wrong.location.column, wrong.location.width), (26, 4));
        assert_eq!(error("set interfaces wireguard wg0 mtu").reason, "a value is missing");
        assert_eq!(error("set interfaces wireguard wg0 description a b").location.column, 44);
        assert_eq!(error("set interfaces wireguard wg0 disable yes").reason, "nothing may follow here");
        assert_eq!(error("set interfaces wireguard").reason, "the line is not complete");
        assert_eq!(
            error("set interfaces wireguard wg0 description 'a b").reason,
            "the closing quote is missing"
        );
    }

    #[test]
    fn what_vyos_has_and_we_do_not_is_told_from_a_mistake() {
        assert!(error("set interfaces wireguard wg0 vrf red").reason.contains("VyOS has \"vrf\""));
    }

    #[test]
    fn what_surrounds_a_session_is_passed_over() {
        let tree = parse("configure\nset interfaces wireguard wg0 mtu 1400\ncommit\nsave\nexit\n");
        assert!(tree.expect("right").has("interfaces"));
        assert!(error("commit confirm").reason.contains("unknown word"));
    }

    #[test]
    fn a_flag_may_have_had_a_value() {
        let at = |text: &str| {
            let tree = parse(text).expect("right");
            let group = tree.at(&["vpn", "ipsec", "ike-group", "A"]).expect("set").clone();
            (group.has("ikev2-reauth"), group.value("ikev2-reauth").map(str::to_owned))
        };
        let line = "set vpn ipsec ike-group A ikev2-reauth";
        assert_eq!(at(line), (true, None));
        assert_eq!(at(&format!("{line} no")), (true, Some("no".to_owned())));
        assert_eq!(at(&format!("{line} no\n{line}")), (true, None));
    }

    #[test]
    fn a_branch_may_be_set_and_gone_through() {
        let line = "set vpn ipsec ike-group A dead-peer-detection";
        let tree = parse(&format!("{line}\n{line} interval 9\n{line}")).expect("right");
        let group = tree.at(&["vpn", "ipsec", "ike-group", "A", "dead-peer-detection"]).expect("set");
        assert_eq!(group.value("interval"), Some("9"));
    }

    #[test]
    fn a_secret_in_the_place_of_a_word_is_not_shown() {
        let line = "set vpn ipsec authentication psk berlin OpenSesame";
        let wrong = error(line);
        let shown = format!("{wrong} {}", wrong.in_text("site.conf", line));
        assert!(!shown.contains("Sesame") && shown.contains("psk berlin *****"), "{shown}");
        assert!(wrong.fix.expect("a list").contains("secret"));
    }

    #[test]
    fn a_secret_that_was_not_shown_is_not_set() {
        let wrong = error("set vpn ipsec authentication psk a secret ********");
        assert!(wrong.reason.contains("stand for a secret"), "{wrong}");
    }

    #[test]
    fn all_wrong_lines_are_reported_at_once() {
        let errors =
            parse("set x\nset interfaces wireguard wg0 mtu 1400\nset y\n").expect_err("two wrong lines");
        assert_eq!(errors.iter().map(|error| error.location.line).collect::<Vec<_>>(), [1, 3]);
    }
}
