//! `postern show failover`: groups of tunnels that stand in for each other, and which of them packets take.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use ::bench::report::table;
use gateway::failover::model::{Failover, Group, Member};

/// All groups.
pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<Failover> = request.ask()?;
    let groups: Vec<Group> = answers.into_iter().flat_map(|answer| answer.groups).collect();
    Ok(Answer::new(Failover { groups }, text))
}

fn text(failover: &Failover) -> String {
    if failover.groups.is_empty() {
        return "no tunnels stand in for each other\n  to have them: set protocols failover group NAME member 10 interface wg0\n"
            .to_owned();
    }
    let heads = ["", "Member", "Interface", "Peer", "State", "Up"];
    let group = |group: &Group| {
        let Group { name, prefixes, hold_seconds, members, switches } = group;
        let rows: Vec<Vec<String>> = members.iter().map(row).collect();
        let times = if *switches == 1 { "once".to_owned() } else { format!("{switches} times") };
        format!(
            "{name}: {}, switched {times}; back after {hold_seconds} s\n{}",
            prefixes.join(", "),
            table(&heads, &rows)
        )
    };
    failover.groups.iter().map(group).collect::<Vec<_>>().join("\n")
}

fn row(member: &Member) -> Vec<String> {
    let Member { number, interface, peer, state, up_seconds, is_used } = member;
    vec![
        if *is_used { ">" } else { "" }.to_owned(),
        number.to_string(),
        interface.clone(),
        peer.clone(),
        state.to_string(),
        up_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds} s")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::facts::model::State;

    #[test]
    fn what_packets_take_is_marked() {
        let member = |number, interface: &str, up_seconds: Option<u64>, is_used| Member {
            number,
            interface: interface.to_owned(),
            peer: "hq".to_owned(),
            state: if up_seconds.is_some() { State::Up } else { State::Down },
            up_seconds,
            is_used,
        };
        let group = Group {
            name: "berlin".to_owned(),
            prefixes: vec!["10.1.0.0/16".to_owned()],
            hold_seconds: 10,
            members: vec![member(10, "wg0", None, false), member(20, "ipsec0", Some(7), true)],
            switches: 1,
        };
        let shown = text(&Failover { groups: vec![group] });
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(shown.starts_with("berlin: 10.1.0.0/16, switched once; back after 10 s\n"), "{shown}");
        assert!(lines.contains(&vec!["10", "wg0", "hq", "down", "-"]), "{shown}");
        assert!(lines.contains(&vec![">", "20", "ipsec0", "hq", "up", "7", "s"]), "{shown}");
        assert!(text(&Failover::default()).contains("set protocols failover"));
    }
}
