//! `getopt_long`: options with one dash, together or alone, and with two dashes, which may be shortened.

/// An option that takes an argument or none.
#[derive(Clone, Copy)]
pub(super) struct Spec {
    /// The letter, if it has one.
    pub(super) letter: Option<char>,
    /// The long name, if it has one.
    pub(super) name: Option<&'static str>,
    /// Whether it takes an argument.
    pub(super) argument: Takes,
}

/// The argument of an option.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Takes {
    Nothing,
    Argument,
    /// Only behind `=`.
    Optional,
}

/// An option of a command line, with the index of its row.
#[derive(Debug, PartialEq)]
pub(super) struct Given<'a> {
    pub(super) row: usize,
    pub(super) argument: &'a str,
    /// As written, with its dashes.
    pub(super) word: String,
}

/// The options, and the words that are none.
pub(super) struct Parsed<'a> {
    pub(super) options: Vec<Given<'a>>,
    pub(super) others: Vec<&'a str>,
}

/// Reads all words; the error is a sentence.
pub(super) fn parse<'a>(words: &'a [String], table: &[Spec]) -> Result<Parsed<'a>, String> {
    let mut parsed = Parsed { options: Vec::new(), others: Vec::new() };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let row = by_name(table, name)?;
            let argument = match (table[row].argument, value) {
                (Takes::Nothing, Some(_)) => return Err(format!("--{name} takes no argument")),
                (Takes::Argument, None) => {
                    rest.next().ok_or_else(|| format!("--{name} needs an argument"))?
                }
                (_, value) => value.unwrap_or_default(),
            };
            parsed.options.push(Given { row, argument, word: format!("--{name}") });
        } else if word.len() > 1 && word.starts_with('-') {
            letters(table, &word[1..], &mut rest, &mut parsed.options)?;
        } else {
            parsed.others.push(word);
        }
    }
    Ok(parsed)
}

fn letters<'a>(
    table: &[Spec],
    letters: &'a str,
    rest: &mut std::slice::Iter<'a, String>,
    options: &mut Vec<Given<'a>>,
) -> Result<(), String> {
    for (index, letter) in letters.char_indices() {
        let row = table.iter().position(|spec| spec.letter == Some(letter));
        let row = row.ok_or_else(|| format!("-{letter} is no option here"))?;
        let word = format!("-{letter}");
        if table[row].argument != Takes::Argument {
            options.push(Given { row, argument: "", word });
            continue;
        }
        let behind = &letters[index + letter.len_utf8()..];
        let argument = if behind.is_empty() {
            rest.next().map(String::as_str).ok_or_else(|| format!("{word} needs an argument"))?
        } else {
            behind
        };
        options.push(Given { row, argument, word });
        break;
    }
    Ok(())
}

/// The row with this name, or the only one that begins with it.
fn by_name(table: &[Spec], name: &str) -> Result<usize, String> {
    let begin = |spec: &Spec| spec.name.is_some_and(|full| full.starts_with(name));
    if let Some(row) = table.iter().position(|spec| spec.name == Some(name)) {
        return Ok(row);
    }
    let mut rows = (0..table.len()).filter(|&row| begin(&table[row]));
    match (rows.next(), rows.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => Err(format!("--{name} may be several options")),
        _ => Err(format!("--{name} is no option here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Spec] = &[
        Spec { letter: Some('a'), name: None, argument: Takes::Nothing },
        Spec { letter: Some('p'), name: Some("ports"), argument: Takes::Argument },
        Spec { letter: None, name: Some("ports-all"), argument: Takes::Nothing },
        Spec { letter: None, name: Some("stack"), argument: Takes::Optional },
    ];

    fn read(line: &str) -> Result<Vec<(usize, String)>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let parsed = parse(&words, TABLE)?;
        Ok(parsed.options.into_iter().map(|given| (given.row, given.argument.to_owned())).collect())
    }

    #[test]
    fn options_are_read_as_getopt_long_does() {
        let given = |row, argument: &str| (row, argument.to_owned());
        assert_eq!(read("-ap0x3 -p 1"), Ok(vec![given(0, ""), given(1, "0x3"), given(1, "1")]));
        assert_eq!(read("--ports=3 --ports 4"), Ok(vec![given(1, "3"), given(1, "4")]));
        assert_eq!(read("--ports-a --sta --stack=5"), Ok(vec![given(2, ""), given(3, ""), given(3, "5")]));
        for wrong in ["-x", "-p", "--port", "--ports", "--none", "--ports-all=1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let words = ["x".to_owned(), "-a".to_owned(), "-".to_owned()];
        assert_eq!(parse(&words, TABLE).map(|parsed| parsed.others), Ok(vec!["x", "-"]));
    }
}
