//! `postern show nat`: the rules of translation of addresses, and the connections that each has translated.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use ::bench::report::table;
use gateway::nat::model::{List, Nat, Rule};

/// Both lists.
pub(crate) fn all(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(read(request)?, text))
}

/// The source rules.
pub(crate) fn source(request: &Request) -> Result<Answer, Failure> {
    of(request, List::Source)
}

/// The destination rules.
pub(crate) fn destination(request: &Request) -> Result<Answer, Failure> {
    of(request, List::Destination)
}

fn of(request: &Request, list: List) -> Result<Answer, Failure> {
    let mut nat = read(request)?;
    nat.rules.retain(|rule| rule.list == list);
    Ok(Answer::new(nat, text))
}

fn read(request: &Request) -> Result<Nat, Failure> {
    let answers: Vec<Nat> = request.ask()?;
    Ok(Nat { rules: answers.into_iter().flat_map(|answer| answer.rules).collect() })
}

fn text(nat: &Nat) -> String {
    if nat.rules.is_empty() {
        return "there is no rule\n  to make one: set nat source rule 10 outbound-interface name eth0\n               \
                set nat source rule 10 translation address masquerade\n"
            .to_owned();
    }
    let rows: Vec<Vec<String>> = nat.rules.iter().map(row).collect();
    let heads = ["Rule", "Interface", "Protocol", "Source", "Destination", "Translation", "Connections"];
    table(&heads, &rows)
}

fn row(rule: &Rule) -> Vec<String> {
    let words = [&rule.interface, &rule.protocol, &rule.source, &rule.destination, &rule.translation];
    let name = format!("{} {}", rule.list, rule.number);
    [name].into_iter().chain(words.map(String::clone)).chain([rule.connections.to_string()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_a_line_and_without_rules_the_first_one_is_shown() {
        let rule = Rule {
            number: 10,
            interface: "eth0".to_owned(),
            protocol: "all".to_owned(),
            source: "10.2.0.0/24".to_owned(),
            destination: "any".to_owned(),
            translation: "masquerade".to_owned(),
            connections: 7,
            ..Rule::default()
        };
        let shown = text(&Nat { rules: vec![rule] });
        let line = shown.lines().last().expect("a line");
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["source", "10", "eth0", "all", "10.2.0.0/24", "any", "masquerade", "7"]
        );
        assert!(text(&Nat::default()).contains("set nat source rule 10"));
    }
}
