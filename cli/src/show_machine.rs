//! `postern show system option performance` and `show system managed`: what is done by the kernel and by other programs.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use ::bench::report::table;
use gateway::machine::model::{Finding, Machine, Part, Setting, State};
use std::fmt::Write;

const PERFORMANCE: &str = "system option performance";

fn parts(request: &Request) -> Result<Machine, Failure> {
    let answers: Vec<Machine> = request.ask()?;
    Ok(Machine { parts: answers.into_iter().flat_map(|answer| answer.parts).collect() })
}

/// What a profile has set, and what was before.
pub(crate) fn performance(request: &Request) -> Result<Answer, Failure> {
    let mut machine = parts(request)?;
    machine.parts.retain(|part| part.path == PERFORMANCE);
    Ok(Answer::new(machine, performance_text))
}

/// What is done by other programs, and in which files.
pub(crate) fn managed(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(parts(request)?, managed_text))
}

fn performance_text(machine: &Machine) -> String {
    let is_set = |part: &&Part| part.state != State::Unset;
    let Some(part) = machine.parts.iter().find(is_set) else {
        return "no profile is set, and no value is changed\n  to set one: set system option performance throughput|latency\n"
            .to_owned();
    };
    let profile = part.lines.iter().find_map(|line| line.rsplit(' ').next()).unwrap_or_default();
    let mut text = format!("Profile: {profile} ({})\n\n", part.state);
    let rows: Vec<Vec<String>> = part.settings.iter().map(row).collect();
    text += &table(&["Setting", "Before", "Wanted", "Now", "Note"], &rows);
    text + &findings(&part.findings)
}

fn row(setting: &Setting) -> Vec<String> {
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let is_same = setting.before.as_ref() == Some(&setting.wanted);
    let note = match &setting.problem {
        Some(problem) => format!("not set: {problem}"),
        None if setting.now.as_ref() != Some(&setting.wanted) => {
            "changed since by another program".to_owned()
        }
        None if is_same => "was so already".to_owned(),
        None => "set".to_owned(),
    };
    vec![setting.name.clone(), or_none(&setting.before), setting.wanted.clone(), or_none(&setting.now), note]
}

fn managed_text(machine: &Machine) -> String {
    let mut text = String::new();
    for part in machine.parts.iter().filter(|part| part.state != State::Unset) {
        let _ = writeln!(text, "{}: {}", part.path, part.state);
        for file in &part.files {
            let _ = writeln!(text, "  file: {file}");
        }
        if part.path != PERFORMANCE {
            for Setting { name, before, wanted, problem, .. } in &part.settings {
                let before = before.as_deref().unwrap_or("-");
                let _ = match problem {
                    Some(problem) => writeln!(text, "  value: {name} is not set: {problem}"),
                    None => writeln!(text, "  value: {name} = {wanted}, and {before} before"),
                };
            }
        } else if !part.settings.is_empty() {
            let set = part.settings.iter().filter(|setting| setting.problem.is_none()).count();
            let _ = writeln!(text, "  values: {set} of {}: postern show {PERFORMANCE}", part.settings.len());
        }
        text += &findings(&part.findings);
    }
    if text.is_empty() { "nothing of the machine is configured\n".to_owned() } else { text }
}

/// What does not work, and what to do.
pub(crate) fn findings(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { path, why, fix, .. } in findings {
        let _ = writeln!(text, "  {path}: {why}");
        if !fix.is_empty() {
            let _ = writeln!(text, "    fix: {fix}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, before: &str, now: &str, problem: Option<&str>) -> Setting {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Setting {
            name: name.to_owned(),
            before: some(before),
            wanted: "50".to_owned(),
            now: some(now),
            problem: problem.map(str::to_owned),
            ..Setting::default()
        }
    }

    fn machine() -> Machine {
        let settings = vec![
            setting("net.core.busy_poll", "0", "50", None),
            setting("net.core.busy_read", "50", "50", None),
            setting("kernel.numa_balancing", "", "", Some("this kernel does not have it")),
            setting("net.core.netdev_budget", "0", "7", None),
        ];
        let finding = Finding {
            path: "service snmp community".to_owned(),
            why: "snmpd is not installed".to_owned(),
            fix: "apt-get install snmpd".to_owned(),
            is_refused: false,
        };
        let part = |path: &str, state| Part { path: path.to_owned(), state, ..Part::default() };
        let lines = vec![format!("set {PERFORMANCE} latency")];
        let files = vec!["/etc/snmp/postern/snmpd.conf".to_owned()];
        Machine {
            parts: vec![
                Part { settings, lines, ..part(PERFORMANCE, State::InForce) },
                part("system syslog", State::Unset),
                Part { files, findings: vec![finding], ..part("service snmp", State::Waiting) },
            ],
        }
    }

    #[test]
    fn every_value_is_told_with_what_it_was_and_why_it_could_not_be_set() {
        let text = performance_text(&machine());
        let notes = [
            "set",
            "was so already",
            "not set: this kernel does not have it",
            "changed since by another program",
        ];
        assert!(text.starts_with("Profile: latency (in force)\n\n"), "{text}");
        for (line, note) in text.lines().skip(4).zip(notes) {
            assert!(line.ends_with(note), "{text}");
        }
        let none = performance_text(&Machine::default());
        assert!(none.contains("set system option performance throughput|latency"), "{none}");
    }

    #[test]
    fn what_is_managed_is_told_with_its_files_and_what_is_missing() {
        assert_eq!(
            managed_text(&machine()),
            "system option performance: in force\n\
             \x20 values: 3 of 4: postern show system option performance\n\
             service snmp: waiting\n\
             \x20 file: /etc/snmp/postern/snmpd.conf\n\
             \x20 service snmp community: snmpd is not installed\n\
             \x20   fix: apt-get install snmpd\n"
        );
    }
}
