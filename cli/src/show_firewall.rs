//! `postern show firewall`: zones, rule sets and rules, with the packets that each has counted.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use ::bench::report::table;
use gateway::firewall::model::{Count, Firewall, From, RuleSet, StatePolicy, Zone};

/// Zones, and the rule sets between them.
pub(crate) fn all(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(read(request)?, text))
}

/// The zones alone.
pub(crate) fn zones(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(Firewall { rule_sets: Vec::new(), ..read(request)? }, text))
}

fn read(request: &Request) -> Result<Firewall, Failure> {
    let answers: Vec<Firewall> = request.ask()?;
    let mut all = Firewall::default();
    for Firewall { states, zones, rule_sets } in answers {
        all.states.extend(states);
        all.zones.extend(zones);
        all.rule_sets.extend(rule_sets);
    }
    Ok(all)
}

fn text(firewall: &Firewall) -> String {
    let Firewall { states, zones, rule_sets } = firewall;
    if zones.is_empty() && states.is_empty() {
        return "there is no zone\n  to make one: set firewall zone LAN member interface eth1\n".to_owned();
    }
    let mut parts = Vec::new();
    if !zones.is_empty() {
        let rows: Vec<Vec<String>> = zones.iter().flat_map(of_zone).collect();
        let heads = ["Zone", "Interfaces", "From", "IPv4", "IPv6", "Otherwise", "Packets", "Bytes"];
        parts.push(table(&heads, &rows));
    }
    if !states.is_empty() {
        parts.push(table(
            &["State", "Action", "Packets", "Bytes"],
            &states.iter().map(of_state).collect::<Vec<_>>(),
        ));
    }
    parts.extend(rule_sets.iter().map(of_set));
    parts.join("\n")
}

/// A line for each zone that packets come from; the first has what becomes of the others.
fn of_zone(zone: &Zone) -> Vec<Vec<String>> {
    let interfaces = if zone.is_local { "this machine".to_owned() } else { zone.interfaces.join(",") };
    let mut own =
        vec![vec![zone.name.clone(), interfaces], of_default(&zone.default_action, zone.default_count)];
    let none = [From { zone: "none".to_owned(), ..From::default() }];
    let from = if zone.from.is_empty() { &none[..] } else { &zone.from };
    let set = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let mut rows = Vec::new();
    for from in from {
        let between = vec![from.zone.clone(), set(&from.name), set(&from.ipv6_name)];
        rows.push([own[0].clone(), between, own[1].clone()].concat());
        own = vec![vec![String::new(); 2], vec![String::new(); 3]];
    }
    rows
}

fn of_default(action: &str, count: Count) -> Vec<String> {
    [vec![action.to_owned()], counted(count)].concat()
}

fn counted(count: Count) -> Vec<String> {
    vec![count.packets.to_string(), count.bytes.to_string()]
}

fn of_state(state: &StatePolicy) -> Vec<String> {
    [vec![state.state.clone(), state.action.clone()], counted(state.count)].concat()
}

fn of_set(set: &RuleSet) -> String {
    let any = || "any".to_owned();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for rule in &set.rules {
        let words = [&rule.action, &rule.protocol, &rule.source, &rule.destination, &rule.conditions];
        let words = words.map(|word| if word.is_empty() { "-".to_owned() } else { word.clone() });
        rows.push([vec![rule.number.to_string()], words.to_vec(), counted(rule.count)].concat());
    }
    let rest =
        ["default".to_owned(), set.default_action.clone(), "all".to_owned(), any(), any(), "-".to_owned()];
    rows.push([rest.to_vec(), counted(set.default_count)].concat());
    let heads = ["Rule", "Action", "Protocol", "Source", "Destination", "Conditions", "Packets", "Bytes"];
    format!("{} name {}\n{}", set.family, set.name, table(&heads, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::firewall::model::Rule;

    #[test]
    fn zones_and_rules_are_lines_with_their_counters() {
        let count = Count { packets: 7, bytes: 420 };
        let from = |zone: &str, name: &str| From {
            zone: zone.to_owned(),
            name: Some(name.to_owned()),
            ipv6_name: None,
        };
        let lan = Zone {
            name: "LAN".to_owned(),
            interfaces: vec!["eth1".to_owned(), "wg0".to_owned()],
            from: vec![from("DMZ", "A"), from("WAN", "B")],
            default_action: "drop".to_owned(),
            default_count: count,
            ..Zone::default()
        };
        let me = Zone {
            name: "ME".to_owned(),
            is_local: true,
            default_action: "reject".to_owned(),
            ..Zone::default()
        };
        let rule = Rule {
            number: 10,
            action: "accept".to_owned(),
            protocol: "tcp".to_owned(),
            source: "any".to_owned(),
            destination: "any:443".to_owned(),
            count,
            ..Rule::default()
        };
        let set = RuleSet {
            family: "ipv4".to_owned(),
            name: "A".to_owned(),
            rules: vec![rule],
            default_action: "drop".to_owned(),
            ..RuleSet::default()
        };
        let state = StatePolicy { state: "established".to_owned(), action: "accept".to_owned(), count };
        let shown = text(&Firewall { states: vec![state], zones: vec![lan, me], rule_sets: vec![set] });
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        for line in [
            &["LAN", "eth1,wg0", "DMZ", "A", "-", "drop", "7", "420"][..],
            &["WAN", "B", "-"],
            &["ME", "this", "machine", "none", "-", "-", "reject", "0", "0"],
            &["established", "accept", "7", "420"],
            &["ipv4", "name", "A"],
            &["10", "accept", "tcp", "any", "any:443", "-", "7", "420"],
            &["default", "drop", "all", "any", "any", "-", "0", "0"],
        ] {
            assert!(lines.iter().any(|it| it == line), "{line:?}: {shown}");
        }
        assert!(text(&Firewall::default()).contains("set firewall zone LAN"));
    }
}
