//! A line as it is typed: a command, and what its output goes through.

/// The parts of a line between the bars that stand alone and outside quotes.
pub(crate) fn parts(line: &str) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let mut before = ' ';
    for (at, character) in outside_quotes(line) {
        let after = line[at + character.len_utf8()..].chars().next();
        // `||` is a word of the shell, and a bar within a word is part of it.
        if character == '|' && before.is_whitespace() && after != Some('|') {
            parts.push(line[start..at].trim());
            start = at + 1;
        }
        before = character;
    }
    parts.push(line[start..].trim());
    parts
}

/// Whether a line has something that only a program such as bash carries out: redirections, lists, substitutions.
pub(crate) fn has_shell_words(line: &str) -> bool {
    let found: Vec<char> = outside_quotes(line).map(|(_, character)| character).collect();
    found.iter().any(|character| ";<>&`".contains(*character)) || line.contains("$(") || line.contains("||")
}

/// Whether the end of a line is within quotes.
pub(crate) fn ends_in_quotes(line: &str) -> bool {
    let closed = format!("{line}|");
    outside_quotes(&closed).last().is_none_or(|(at, _)| at != line.len())
}

/// The characters of a line that do not stand in quotes.
fn outside_quotes(line: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    line.char_indices().filter(move |(_, character)| match quote {
        None if matches!(character, '\'' | '"') => {
            quote = Some(*character);
            false
        }
        Some(open) => {
            if *character == open {
                quote = None;
            }
            false
        }
        None => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_at_bars_that_stand_alone() {
        assert_eq!(parts("show vpn | match 'a | b' | count"), ["show vpn", "match 'a | b'", "count"]);
        assert_eq!(parts("set x pre-shared-secret a|b"), ["set x pre-shared-secret a|b"]);
        assert_eq!(parts("true || false"), ["true || false"]);
        assert_eq!(parts("show |"), ["show", ""]);
    }

    #[test]
    fn words_of_a_program_are_noticed_outside_quotes() {
        for line in
            ["a; b", "show vpn > /tmp/x", "cat << EOF", "save x-$(date)", "a && b", "a || b", "echo `id`"]
        {
            assert!(has_shell_words(line), "{line}");
        }
        for line in ["show vpn ipsec sa", "show configuration | match 'a;b'", "show x | grep -E \"(a|b)\""] {
            assert!(!has_shell_words(line), "{line}");
        }
    }

    #[test]
    fn an_open_quote_is_noticed() {
        assert!(ends_in_quotes("set x 'a") && ends_in_quotes("set \"it's"));
        assert!(!ends_in_quotes("set x 'a'") && !ends_in_quotes("") && !ends_in_quotes("set x ä"));
    }
}
