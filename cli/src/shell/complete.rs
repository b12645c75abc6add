//! What may follow what is typed: for TAB, and with help for `?`.

use super::api::{Router, Socket};
use super::line::parts;
use super::pipe::PIPES;
use super::verbs::{self, Follows, VERBS};
use super::{outside, showing};
use crate::operational::{self, complete::candidates};
use config::level::Completion;
use config::schema::{Kind, Place};
use config::{Level, Path, Tree};
use gateway::api::model::Revision;
use std::path::PathBuf;

/// What the completion of a line depends on.
#[derive(Clone, Default)]
pub(crate) struct Context {
    pub(crate) api: Option<PathBuf>,
    /// The candidate and the level in it; none for operational commands.
    pub(crate) session: Option<(Tree, Path)>,
}

/// Something that may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// How it is listed.
    pub(crate) shown: String,
    /// What completion writes; none for free text.
    pub(crate) word: Option<String>,
    /// `>` before what leads on, `+` before what there may be several of.
    pub(crate) mark: &'static str,
    pub(crate) about: String,
}

/// How a complete line is listed.
pub(crate) const ENTER: &str = "<Enter>";

impl Item {
    pub(super) fn word(word: impl Into<String>, about: impl Into<String>) -> Self {
        let word = word.into();
        Self { shown: word.clone(), word: Some(word), mark: "", about: about.into() }
    }

    /// A word, or in angle brackets what stands for one.
    fn listed(word: &str, about: &str) -> Self {
        let item = Self::word(word, about);
        if word.starts_with('<') { Self { word: None, ..item } } else { item }
    }

    fn enter() -> Self {
        Self {
            shown: ENTER.to_owned(),
            word: None,
            mark: "",
            about: "Execute the current command".to_owned(),
        }
    }
}

/// All that may follow a text up to the cursor. The last word of it may be incomplete.
pub(crate) fn items(text: &str, context: &Context) -> Vec<Item> {
    let (before, last) = split(text);
    let found = match parts(text)[..] {
        _ if is_foreign(text, context) => files(&last),
        [_] => commands(&before, &last, context),
        [.., piped] if !piped.contains(char::is_whitespace) && before.last().is_some_and(|it| it == "|") => {
            PIPES.iter().map(|(name, about)| Item::word(*name, *about)).collect()
        }
        _ => Vec::new(),
    };
    let begins = |item: &Item| match &item.word {
        Some(word) => word.starts_with(&last),
        None => last.is_empty() || item.shown != ENTER,
    };
    found.into_iter().filter(begins).collect()
}

/// What all that may follow have in common beyond what is typed, and whether it is only one.
pub(crate) fn common(text: &str, items: &[Item]) -> Option<(String, bool)> {
    let (_, last) = split(text);
    let words: Vec<&str> = items.iter().filter_map(|item| item.word.as_deref()).collect();
    let (first, others) = words.split_first()?;
    let is_free = items.iter().any(|item| item.word.is_none() && item.shown != ENTER);
    let length = others.iter().fold(first.len(), |length, word| {
        let same = first.char_indices().zip(word.chars()).take_while(|((_, one), other)| one == other);
        length.min(same.last().map_or(0, |((at, one), _)| at + one.len_utf8()))
    });
    let is_only = others.is_empty() && !(is_free && last.is_empty());
    let more = first.get(last.len()..length).unwrap_or_default();
    if is_free && last.is_empty() { None } else { Some((more.to_owned(), is_only)) }
}

/// The complete words of a text, and the last one, which may be empty.
fn split(text: &str) -> (Vec<String>, String) {
    let is_complete = text.ends_with(char::is_whitespace) || text.is_empty();
    let closed = config::words(text).or_else(|_| config::words(&format!("{text}'"))).unwrap_or_default();
    let mut words: Vec<String> = closed.iter().map(|word| word.as_str().to_owned()).collect();
    let last = if is_complete { String::new() } else { words.pop().unwrap_or_default() };
    (words, last)
}

fn commands(before: &[String], last: &str, context: &Context) -> Vec<Item> {
    let words: Vec<&str> = before.iter().map(String::as_str).collect();
    match (&context.session, words.split_first()) {
        (None, _) => operations(&words, last, context),
        (Some(_), None) => VERBS.iter().map(|verb| Item::word(verb.name, verb.about)).collect(),
        (Some((tree, level)), Some((verb, words))) => match verbs::find(verb) {
            Ok(verb) => following(verb.follows, words, last, tree, level, context),
            Err(_) => operations(&[&[*verb], words].concat(), last, context),
        },
    }
}

/// What may follow a command of a session.
fn following(
    follows: Follows,
    words: &[&str],
    last: &str,
    tree: &Tree,
    level: &Path,
    context: &Context,
) -> Vec<Item> {
    let some = |words: &[(&str, &str)]| words.iter().map(|(word, about)| Item::listed(word, about)).collect();
    match follows {
        Follows::Words(known) if words == ["confirm"] && known.iter().any(|(word, _)| *word == "confirm") => {
            following(verbs::COMMIT_CONFIRM, &[], last, tree, level, context)
        }
        Follows::Words(known) if words.is_empty() => [vec![Item::enter()], some(known)].concat(),
        Follows::Revision(known) if words.len() < 2 => {
            let revisions = Socket::new(context.api.clone()).revisions().unwrap_or_default();
            let about = |it: &Revision| format!("{} by {}", showing::time(&it.time), it.user);
            let numbered = revisions.iter().enumerate();
            let numbered = numbered.map(|(number, it)| Item::word(number.to_string(), about(it))).collect();
            [some(known), numbered].concat()
        }
        Follows::Nothing | Follows::Words(_) | Follows::Revision(_) => vec![Item::enter()],
        Follows::File => files(last),
        Follows::Command => operations(words, last, context),
        Follows::Setting | Follows::Set | Follows::Branch | Follows::Renamed => {
            let root = Level::root(tree);
            let at = level.words().into_iter().chain(words.iter().copied()).try_fold(root, Level::down);
            at.map_or_else(Vec::new, |at| settings(follows, at))
        }
    }
}

/// What may follow a path.
fn settings(follows: Follows, at: Level<'_>) -> Vec<Item> {
    let is_set = |item: &Completion<'_>| follows == Follows::Setting || item.is_set;
    let leads_on = |item: &Completion<'_>| {
        let next = item.text.and_then(|text| at.cursor().down(text));
        follows != Follows::Branch || next.is_some_and(|next| next.next().next().is_some())
    };
    let found = at.completions().into_iter();
    let mut items: Vec<Item> = found
        .filter(|item| (is_set(item) || follows == Follows::Branch) && leads_on(item))
        .map(|item| setting(&item, at))
        .collect();
    let is_whole = match at.cursor().place() {
        Place::Tag(_) => true,
        Place::Node(node) => matches!(node.kind, Kind::Flag | Kind::FlagOr(_) | Kind::Branch),
        Place::Inner(_) | Place::Unsupported(_) => false,
    };
    if is_whole || follows != Follows::Setting {
        items.insert(0, Item::enter());
    }
    items
}

fn setting(item: &Completion<'_>, at: Level<'_>) -> Item {
    let next = item.text.filter(|_| item.kind.is_none()).and_then(|text| at.cursor().down(text));
    let mark = match next {
        Some(next) if next.next().any(|after| after.tag().is_some()) => "+>",
        Some(next) if next.next().next().is_some() => ">",
        Some(next) if next.node().is_some_and(|node| matches!(node.kind, Kind::Values(_))) => "+",
        _ => "",
    };
    let free = || item.kind.map_or_else(String::new, |kind| kind.to_string());
    let shown = item.text.map_or_else(free, str::to_owned);
    Item { shown, word: item.text.map(config::print::quoted), mark, about: item.help.to_owned() }
}

/// What may follow operational commands.
fn operations(words: &[&str], last: &str, context: &Context) -> Vec<Item> {
    let full = operational::expand(words).unwrap_or_default();
    let full: Vec<&str> = full.iter().map(String::as_str).collect();
    let found = candidates(&full, last, context.api.clone());
    let mut items: Vec<Item> = found.into_iter().map(|it| Item::word(it.word, it.about)).collect();
    if words.is_empty() && context.session.is_none() {
        items.push(Item::word("configure", "Change the configuration"));
        items.push(Item::word("exit", "End"));
        items.push(Item::word("save", "Write what is in force to the file of the daemon, or to another"));
        items.sort_by(|one, other| one.shown.cmp(&other.shown));
    }
    if operational::find(&full).is_some() {
        items.insert(0, Item::enter());
    }
    items
}

/// The files that begin with a text.
fn files(last: &str) -> Vec<Item> {
    let (folder, shown) = match last.rsplit_once('/') {
        Some(("", _)) => ("/", "/".to_owned()),
        Some((folder, _)) => (folder, format!("{folder}/")),
        None => (".", String::new()),
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut items: Vec<Item> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let end = if entry.path().is_dir() { "/" } else { "" };
            Some(Item::word(format!("{shown}{name}{end}"), ""))
        })
        .filter(|item| last.ends_with('.') || !item.shown[shown.len()..].starts_with('.'))
        .collect();
    items.sort_by(|one, other| one.shown.cmp(&other.shown));
    items.insert(0, Item::enter());
    items
}

/// Whether a word begins a command that is not of this program: nothing is known of it.
pub(crate) fn is_foreign(text: &str, context: &Context) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_complete = text.trim_start().contains(char::is_whitespace);
    context.session.is_none()
        && is_complete
        && !outside::is_ours(first)
        && !["save", "configure"].contains(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "set vpn ipsec ike-group OFFICE lifetime 3600\nset vpn ipsec ike-group HOME\n\
        set interfaces wireguard wg0 description 'a b'";

    fn context(level: &str) -> Context {
        let tree = config::parse(TEXT).expect("right");
        // A socket on which nothing listens: there are no names, and no error.
        let api = Some(PathBuf::from("/nonexistent/postern.sock"));
        Context { api, session: Some((tree, Path::new(level.split_whitespace()))) }
    }

    fn shown(text: &str) -> Vec<String> {
        items(text, &context("")).into_iter().map(|item| format!("{}{}", item.mark, item.shown)).collect()
    }

    #[test]
    fn commands_paths_and_values_are_listed() {
        assert_eq!(shown("com"), ["comment", "commit", "commit-confirm", "compare"]);
        assert_eq!(shown("set v"), [">vpn"]);
        assert_eq!(shown("set vpn ipsec ike-group "), ["HOME", "OFFICE", "<name>"]);
        assert_eq!(shown("set vpn ips ike-group OFFICE life"), ["lifetime"]);
        assert_eq!(shown("set vpn ipsec ike-group OFFICE lifetime "), ["3600", "<0-86400>"]);
        assert_eq!(shown("delete "), [ENTER, ">interfaces", ">vpn"]);
        assert_eq!(shown("edit vpn ipsec ike-group OFFICE "), [ENTER, ">dead-peer-detection", "+>proposal"]);
        assert_eq!(shown("show | no"), ["no-match", "no-more"]);
        assert_eq!(shown("compare "), ["saved"]);
        assert_eq!(shown("commit c"), ["check", "comment", "confirm"]);
        assert_eq!(shown("commit-confirm "), [ENTER, "<minutes>", "comment"]);
        assert_eq!(shown("commit confirm "), [ENTER, "<minutes>", "comment"]);
        assert_eq!(shown("commit-confirm 5"), ["<minutes>"]);
        assert_eq!(shown("run show vpn ipsec st"), ["state", "status"]);
        assert_eq!(shown("set frob "), Vec::<String>::new());
        assert!(shown("set interfaces wireguard wg0 ").contains(&"+address".to_owned()));
    }

    #[test]
    fn a_level_and_operational_commands_have_their_own() {
        let at = items("set ", &context("vpn ipsec ike-group OFFICE"));
        assert!(at.iter().any(|item| item.shown == "lifetime") && at.iter().all(|item| item.shown != "vpn"));
        let operational = Context { session: None, ..context("") };
        let words = |text| items(text, &operational).into_iter().map(|it| it.shown).collect::<Vec<_>>();
        assert!(words("").contains(&"configure".to_owned()) && words("sh") == ["show"]);
        assert_eq!(words("sh vpn ips st"), ["state", "status"]);
        assert_eq!(words("show vpn ipsec sa "), [ENTER, "detail", "verbose"]);
        assert!(is_foreign("ls /t", &operational) && !is_foreign("sh", &operational));
    }

    #[test]
    fn what_is_common_is_completed() {
        let completed = |text: &str| common(text, &items(text, &context("")));
        assert_eq!(completed("comm"), Some((String::new(), false)));
        assert_eq!(completed("se"), Some(("t".to_owned(), true)));
        assert_eq!(completed("rollb"), Some(("ack".to_owned(), false)));
        assert_eq!(completed("set vpn ipsec ike-group "), None, "a name may be chosen");
        assert_eq!(completed("set vpn ipsec ike-group O"), Some(("FFICE".to_owned(), true)));
        assert_eq!(completed("set frob "), None);
    }
}
