//! Reads lines of `set` and `delete`. Every wrong line is reported, each with its place and the nearest valid word.

use crate::error::{ConfigError, Location, NEAR};
use crate::schema::{self, Kind, Place};
use crate::tree::Tree;
use zeroize::Zeroizing;

/// A word of a line.
struct Token {
    /// It may be a secret, or have one in a wrong place.
    text: Zeroizing<String>,
    location: Location,
}

/// Reads a configuration.
pub fn parse(text: &str) -> Result<Tree, Vec<ConfigError>> {
    let mut tree = Tree::default();
    let mut errors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Err(error) = split(line, index + 1).and_then(|words| read(&words, &mut tree)) {
            errors.push(error);
        }
    }
    if errors.is_empty() { Ok(tree) } else { Err(errors) }
}

/// The words of a line. Quotes, single or double, make one word of several; a line that begins with # is a comment.
fn split(line: &str, number: usize) -> Result<Vec<Token>, ConfigError> {
    let mut words = Vec::new();
    let mut characters = line.chars().enumerate().peekable();
    while let Some(&(start, first)) = characters.peek() {
        if first.is_whitespace() {
            characters.next();
            continue;
        }
        if first == '#' && words.is_empty() {
            break;
        }
        // All the room that it may need: text that moves leaves a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(line.len()));
        let (mut quote, mut end) = (None, start);
        while let Some(&(position, character)) = characters.peek() {
            match quote {
                None if character.is_whitespace() => break,
                None if character == '\'' || character == '"' => quote = Some(character),
                Some(open) if character == open => quote = None,
                _ => text.push(character),
            }
            end = position + 1;
            characters.next();
        }
        let location = Location { line: number, column: start + 1, width: end - start };
        if quote.is_some() {
            return Err(
                ConfigError::new(location, "a quotation that does not end").fix("add the closing quote")
            );
        }
        words.push(Token { text, location });
    }
    Ok(words)
}

/// Carries out one line.
fn read(words: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    let Some((verb, words)) = words.split_first() else { return Ok(()) };
    match verb.text.as_str() {
        "set" => set(verb, words, tree),
        "delete" => delete(verb, words, tree),
        other => Err(unknown(verb, other, &["set", "delete"])),
    }
}

fn set(verb: &Token, words: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    let (place, path, rest) = walk(words)?;
    let located: Vec<(&str, Location)> =
        path.iter().map(|word| (word.text.as_str(), word.location)).collect();
    let last = path.last().unwrap_or(verb);
    match (place, rest) {
        (Place::Inner, _) => Err(more_words(last, path)),
        (Place::Tag(_) | Place::Node(schema::Node { kind: Kind::Flag, .. }), []) => {
            tree.make(&located);
            Ok(())
        }
        (Place::Node(node), [value]) if let Kind::Value(kind) | Kind::Values(kind) = node.kind => {
            kind.check(&value.text).map_err(|reason| ConfigError::new(value.location, reason))?;
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
        (Place::NotServed, []) => Err(not_served(last)),
    }
}

fn delete(verb: &Token, words: &[Token], tree: &mut Tree) -> Result<(), ConfigError> {
    let (place, path, rest) = walk(words)?;
    let last = path.last().unwrap_or(verb);
    let texts: Vec<&str> = path.iter().map(|word| word.text.as_str()).collect();
    let value = match (place, rest) {
        (_, []) => None,
        (Place::Node(schema::Node { kind: Kind::Value(_) | Kind::Values(_), .. }), [value]) => {
            Some(value.text.as_str())
        }
        (_, [extra, ..]) => return Err(ConfigError::new(extra.location, "nothing may follow here")),
    };
    if texts.is_empty() {
        return Err(more_words(verb, path));
    }
    if tree.remove(&texts, value) {
        return Ok(());
    }
    Err(ConfigError::new(last.location, "nothing to delete: it is not set"))
}

/// Follows the words through the grammar; returns where they end, the path, and what follows it.
fn walk(words: &[Token]) -> Result<(Place, &[Token], &[Token]), ConfigError> {
    let mut place = Place::Inner;
    for length in 1..=words.len() {
        if let Place::Node(_) = place {
            return Ok((place, &words[..length - 1], &words[length - 1..]));
        }
        let texts: Vec<&str> = words[..length].iter().map(|word| word.text.as_str()).collect();
        let (word, before) = (&words[length - 1], &texts[..length - 1]);
        place = match schema::find(&texts) {
            Some(Place::NotServed) => return Err(not_served(word)),
            Some(Place::Tag(tag)) => {
                tag.kind.check(&word.text).map_err(|reason| ConfigError::new(word.location, reason))?;
                Place::Tag(tag)
            }
            Some(found) => found,
            None => return Err(unknown(word, &word.text, &schema::following(before))),
        };
    }
    Ok((place, words, &[]))
}

fn not_served(word: &Token) -> ConfigError {
    ConfigError::new(
        word.location,
        format!("{:?} is known to VyOS but not served by Postern", word.text.as_str()),
    )
    .fix("remove the line")
}

fn more_words(last: &Token, path: &[Token]) -> ConfigError {
    let texts: Vec<&str> = path.iter().map(|word| word.text.as_str()).collect();
    let following = schema::following(&texts);
    ConfigError::new(end_of(last), "the line is not complete")
        .fix(format!("add one of {}", following.join(", ")))
}

fn unknown(word: &Token, text: &str, valid: &[&str]) -> ConfigError {
    let error = ConfigError::new(word.location, format!("unknown word {text:?}"));
    let nearest = valid
        .iter()
        .filter(|valid| !valid.starts_with('<'))
        .map(|valid| (strsim::damerau_levenshtein(text, valid), *valid))
        .min();
    match nearest {
        Some((distance, nearest)) if distance <= NEAR && distance < nearest.len() => {
            error.fix(format!("did you mean {nearest}?"))
        }
        _ if valid.is_empty() => error,
        _ => error.fix(format!("write one of {}", valid.join(", "))),
    }
}

/// The place behind a word.
fn end_of(word: &Token) -> Location {
    Location { column: word.location.column + word.location.width, width: 1, ..word.location }
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
        assert_eq!(error("delete interfaces wireguard wg0").reason, "nothing to delete: it is not set");
    }

    #[test]
    fn a_wrong_word_is_placed_and_the_nearest_named() {
        let wrong = error("set interfaces wireguard wg0 adress 10.0.0.1/8");
        assert_eq!(wrong.location, Location { line: 1, column: 30, width: 6 });
        assert_eq!(wrong.fix.as_deref(), Some("did you mean address?"));
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
            "a quotation that does not end"
        );
    }

    #[test]
    fn what_vyos_has_and_we_do_not_is_told_from_a_mistake() {
        assert!(error("set interfaces wireguard wg0 vrf red").reason.contains("known to VyOS"));
    }

    #[test]
    fn all_wrong_lines_are_reported_at_once() {
        let errors =
            parse("set x\nset interfaces wireguard wg0 mtu 1400\nset y\n").expect_err("two wrong lines");
        assert_eq!(errors.iter().map(|error| error.location.line).collect::<Vec<_>>(), [1, 3]);
    }
}
