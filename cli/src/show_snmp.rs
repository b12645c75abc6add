//! `show snmp`: whether snmpd answers, and its sub-agent.

use crate::Failure;
use crate::answer::Answer;
use crate::output::{ago, timestamp};
use crate::request::Request;
use crate::show_machine::findings;
use gateway::snmp::model::{Problem, Snmp, SubAgent};
use std::fmt::Write;

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(request.ask::<Snmp>()?, |all| all.iter().map(text).collect()))
}

fn text(snmp: &Snmp) -> String {
    if !snmp.is_configured {
        return "SNMP is off\n  fix: set service snmp community SECRET network PREFIX\n".to_owned();
    }
    let mut text = match &snmp.agent {
        Some(agent) if snmp.is_running => running(agent),
        Some(agent) => {
            format!("snmpd:     unknown\nSub-agent: does not run, and is started again\n{}", counted(agent))
        }
        None => "snmpd:     unknown\nSub-agent: is being started\n".to_owned(),
    };
    text += &findings(&snmp.findings);
    text
}

fn running(agent: &SubAgent) -> String {
    let socket = &agent.socket;
    let Some(since) = agent.connected else {
        let mut text =
            format!("snmpd:     does not answer at {socket}\nSub-agent: waits for snmpd\n{}", counted(agent));
        if let Some(Problem { why, fix, .. }) = &agent.problem {
            let _ = writeln!(text, "Error:     {why}\n  fix: {fix}");
        }
        return text;
    };
    let mut text = format!(
        "snmpd:     answers at {socket}\nSub-agent: connected since {} ({})\n{}",
        timestamp(since),
        ago(since),
        counted(agent)
    );
    if let Some(Problem { at, why, .. }) = &agent.problem {
        let _ = writeln!(text, "Error:     {} {why}; no more", timestamp(*at));
    }
    text
}

fn counted(agent: &SubAgent) -> String {
    format!("Requests:  {} answered\nTraps:     {} sent\n", agent.requests, agent.traps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::machine::model::Finding;

    #[test]
    fn what_works_is_told_and_for_what_does_not_what_to_do() {
        let problem = Problem { at: 7, why: "/a: No such file".to_owned(), fix: "start it".to_owned() };
        let agent = SubAgent { socket: "/a".to_owned(), requests: 3, traps: 2, ..SubAgent::default() };
        let snmp = |agent, is_running| Snmp { is_configured: true, is_running, agent, ..Snmp::default() };
        let connected = SubAgent { connected: Some(0), problem: Some(problem.clone()), ..agent.clone() };
        let shown = text(&snmp(Some(connected), true));
        assert!(
            shown.starts_with("snmpd:     answers at /a\nSub-agent: connected since 1970-01-01T00:00:00Z ("),
            "{shown}"
        );
        let rest = "\nRequests:  3 answered\nTraps:     2 sent\n\
                    Error:     1970-01-01T00:00:07Z /a: No such file; no more\n";
        assert!(shown.ends_with(rest), "{shown}");
        let waiting = SubAgent { problem: Some(problem), ..agent.clone() };
        let shown = text(&snmp(Some(waiting), true));
        assert!(shown.starts_with("snmpd:     does not answer at /a\n"), "{shown}");
        assert!(shown.ends_with("Error:     /a: No such file\n  fix: start it\n"), "{shown}");
        let shown = text(&snmp(Some(agent), false));
        assert!(shown.contains("Sub-agent: does not run, and is started again\n"), "{shown}");
        let finding = Finding {
            path: "service snmp".to_owned(),
            why: "snmpd is not installed".to_owned(),
            fix: "apt-get install snmpd".to_owned(),
            is_refused: false,
        };
        let shown = text(&Snmp { findings: vec![finding], ..snmp(None, false) });
        assert!(shown.contains("snmpd is not installed\n    fix: apt-get install snmpd\n"), "{shown}");
        assert!(text(&Snmp::default()).contains("is off\n  fix: set service snmp community"));
    }
}
