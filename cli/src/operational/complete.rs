//! `postern complete`: what can follow the words of an operational command, for the completion of a shell.

use super::{about_words, beginning_with, is_argument};
use crate::client;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Ask the daemon at this socket only; by default at the one in POSTERN_API
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

/// The generated completion of bash, which asks this program first.
pub(crate) fn for_bash(generated: &str) -> String {
    let verbs = super::verbs().join("|");
    format!(
        r#"{generated}
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

/// The same for zsh.
pub(crate) fn for_zsh(generated: &str) -> String {
    let verbs = super::verbs().join("|");
    let (function, last) = ("\n_postern() {\n", "\nif [ \"$funcstack[1]\" = \"_postern\" ]; then\n");
    let asking = format!(
        r#"
# Words and existing names of operational commands come from the program.
_postern() {{
    local line
    local -a found
    case "$words[2]" in
        ({verbs})
            for line in "${{(@f)$("$words[1]" complete -- "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}"; do
                [[ -n "$line" ]] && found+=("${{${{line%%$'\t'*}}//:/\\:}}:${{line#*$'\t'}}")
            done
            (( $#found )) && _describe -V postern found && return
            ;;
    esac
    _postern_generated "$@"
}}
"#
    );
    generated.replace(function, "\n_postern_generated() {\n").replace(last, &(asking + last))
}

/// The same for fish, which merges all that it finds: the program alone offers words and names.
pub(crate) fn for_fish(generated: &str) -> String {
    let verbs = super::verbs();
    let is_word = |line: &&str| {
        line.contains(" -f -a ")
            && verbs.iter().any(|verb| line.contains(&format!("__fish_postern_using_subcommand {verb};")))
    };
    let kept: String =
        generated.lines().filter(|line| !is_word(line)).map(|line| format!("{line}\n")).collect();
    format!(
        r#"{kept}
# Words and existing names of operational commands come from the program.
function __fish_postern_operational
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    $program complete -- $words (commandline -ct) 2>/dev/null
end
complete -c postern -n "__fish_postern_using_subcommand {verbs}" -f -a "(__fish_postern_operational)"
"#,
        verbs = verbs.join(" ")
    )
}

/// Prints the candidates, one a line: the word, a tab, and its help.
pub(crate) fn run(arguments: &Arguments) {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (*last, before));
    for Candidate { word, about } in candidates(before, last, client::chosen(arguments.api.clone())) {
        println!("{word}\t{about}");
    }
}
