//! Abbreviations of operational commands: `sh vpn ips sa`.

use super::command_line::verbs;
use super::{beginning_with, find, is_argument};
use crate::Failure;

/// The verb that a word is, or of which it is the only beginning, of two letters or more.
pub(crate) fn verb(word: &str) -> Option<&'static str> {
    let all = verbs();
    let exact = all.iter().copied().find(|verb| *verb == word);
    exact.or_else(|| match all.into_iter().filter(|verb| verb.starts_with(word)).collect::<Vec<_>>()[..] {
        [only] if word.len() >= 2 => Some(only),
        _ => None,
    })
}

/// The words in full. One that nothing begins with stays what it is: the command line reports it.
pub(crate) fn expand(words: &[&str]) -> Result<Vec<String>, Failure> {
    let mut full: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let before: Vec<&str> = full.iter().map(String::as_str).collect();
        full.push(match at {
            _ if word.starts_with("--") => (*word).to_owned(),
            0 => verb(word).unwrap_or(word).to_owned(),
            _ => next(&before, word)?,
        });
    }
    Ok(full)
}

fn next(before: &[&str], word: &str) -> Result<String, Failure> {
    let following: Vec<&str> =
        beginning_with(before).into_iter().filter_map(|(entry, _)| entry.words().nth(before.len())).collect();
    let mut known: Vec<&str> =
        following.iter().copied().filter(|known| !is_argument(known) && known.starts_with(word)).collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&word) || following.iter().any(|word| is_argument(word)) {
        return Ok(word.to_owned());
    }
    match known[..] {
        [only] => Ok(only.to_owned()),
        [] => Ok(word.to_owned()),
        _ => Err(format!(
            "Ambiguous command: [{} {word}]\n  fix: write one of {}",
            before.join(" "),
            known.join(", ")
        )
        .into()),
    }
}

/// Whether an operational command begins with this word, which may be abbreviated.
pub(crate) fn is_verb(word: &str) -> bool {
    verb(word).is_some()
}

/// Whether a line is an operational command, with all of its words.
pub(crate) fn is_command(line: &str) -> bool {
    let words = config::words(line).unwrap_or_default();
    let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
    let full = expand(&words).unwrap_or_default();
    find(&full.iter().map(String::as_str).collect::<Vec<_>>()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_abbreviated_as_long_as_one_is_meant() {
        let full = |line: &str| {
            expand(&line.split(' ').collect::<Vec<_>>())
                .map(|words| words.join(" "))
                .map_err(|it| it.to_string())
        };
        assert_eq!(full("sh vpn ips sa det").as_deref(), Ok("show vpn ipsec sa detail"));
        assert_eq!(
            full("reset vpn ipsec site peer al").as_deref(),
            Ok("reset vpn ipsec site-to-site peer al")
        );
        assert_eq!(full("show drops --all").as_deref(), Ok("show drops --all"));
        assert_eq!(full("show frob").as_deref(), Ok("show frob"));
        assert!(full("show vpn ip sta").is_err_and(|error| error.contains("state, status")));
        assert!(is_command("sh vpn ips sa") && is_command("show log tail 7") && !is_command("show vpn frob"));
        assert!(is_verb("show") && is_verb("sh") && !is_verb("re") && !is_verb("ls") && !is_verb("s"));
    }
}
