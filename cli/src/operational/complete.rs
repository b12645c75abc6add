//! `postern complete`: what can follow the words of an operational command, for the completion of a shell.

use super::{about_words, beginning_with, is_argument};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Ask the daemon at this socket only
    #[arg(long, value_name = "SOCKET")]
    api: Option<PathBuf>,
    /// The words so far, of which the last may be incomplete or empty
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A word that can come next, with its help.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) word: String,
    pub(crate) about: &'static str,
}

/// The words that can follow `words` and begin with `last`: words of the table, and names that exist now.
pub(crate) fn candidates(words: &[&str], last: &str, api: Option<PathBuf>) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut asked = Vec::new();
    for (entry, values) in beginning_with(words) {
        let Some(next) = entry.words().nth(words.len()).filter(|_| !entry.is_hidden) else { continue };
        let mut add = |word: String, about| {
            if word.starts_with(last) && !found.iter().any(|it| it.word == word) {
                found.push(Candidate { word, about });
            }
        };
        if !is_argument(next) {
            let path: Vec<&str> = entry.words().take(words.len() + 1).collect();
            let is_whole = entry.words().count() == path.len();
            add(next.to_owned(), about_words(&path).unwrap_or(if is_whole { entry.about } else { "" }));
        } else if let Some(argument) =
            entry.arguments.get(values.len()).filter(|it| !asked.contains(&it.names))
        {
            // Several entries have the same argument: the daemon is asked once.
            asked.push(argument.names);
            argument
                .names
                .existing(&values, api.clone())
                .into_iter()
                .for_each(|name| add(name, argument.about));
        }
    }
    found
}

/// What is added to the generated completion of bash: it asks this program first.
pub(crate) fn for_bash() -> String {
    let verbs = super::verbs().join("|");
    format!(
        r#"
# Words and existing names of operational commands come from the program.
_postern_operational() {{
    case "${{COMP_WORDS[1]}}" in
        {verbs})
            mapfile -t COMPREPLY < <("${{COMP_WORDS[0]}}" complete -- "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null | cut -f 1)
            [[ ${{#COMPREPLY[@]}} -gt 0 ]] && return
            ;;
    esac
    _postern "$@"
}}
complete -F _postern_operational -o nosort -o bashdefault -o default postern
"#
    )
}

/// Prints the candidates, one a line: the word, a tab, and its help.
pub(crate) fn run(arguments: &Arguments) {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (*last, before));
    for Candidate { word, about } in candidates(before, last, arguments.api.clone()) {
        println!("{word}\t{about}");
    }
}
