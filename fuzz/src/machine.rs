//! Requests to the process that changes settings of the machine, and what it writes for them.

use config::settings::Machine;
use config::settings::machine::Part;
use gateway::machine::helper::render;
use gateway::machine::request::Request;
use serde_json::json;

/// What a line of a file may begin with.
type Words = &'static [&'static str];

const SNMP: Words = &[
    "agentaddress ",
    "master agentx",
    "sysContact ",
    "sysLocation ",
    "sysDescr ",
    "view postern included .1",
    "view postern excluded .1",
    "view postern-rw included .1",
    "rocommunity ",
    "rocommunity6 ",
    "rwcommunity ",
    "rwcommunity6 ",
    "trap2sink ",
    "[snmp] clientaddr ",
];
const ROTATION: Words = &[
    "/var/log/",
    "\trotate ",
    "\tsize ",
    "\tmissingok",
    "\tnotifempty",
    "\tcompress",
    "\tpostrotate",
    "\t\t/usr/lib/",
    "\tendscript",
    "}",
];
const UNIT: Words = &[
    "[Unit]",
    "[Service]",
    "[Timer]",
    "[Install]",
    "Description=",
    "Type=oneshot",
    "ExecStart=\"/",
    "AccuracySec=1s",
    "OnCalendar=",
    "WantedBy=timers.target",
];

/// A request, or the lines of one for each part.
pub fn requests(data: &[u8]) {
    if let Ok(request) = Request::parse(data) {
        write(&request.machine);
    }
    let lines = String::from_utf8_lossy(data);
    for part in Part::ALL {
        let request = json!({ "verb": "apply", "part": part.to_string(), "lines": lines, "owner": "/a" });
        if let Ok(request) = Request::parse(request.to_string().as_bytes()) {
            write(&request.machine);
        }
    }
}

/// No value ends its line, or begins another one.
fn write(machine: &Machine) {
    if let Some(snmp) = &machine.snmp {
        check(&render::snmp(snmp, true), SNMP);
    }
    if let Some(syslog) = &machine.syslog {
        for line in render::syslog(syslog).lines() {
            let is_right = match line.split_once(" action(") {
                Some((filter, action)) => !filter.contains(['"', ' ']) && action.ends_with("\")"),
                None => line.starts_with("global(") || line.starts_with("module("),
            };
            assert!(is_right && line.matches('"').count() % 2 == 0, "{line}");
        }
        check(&render::rotation(syslog, true), ROTATION);
    }
    let tasks: Vec<_> = machine.tasks.iter().map(|(name, task)| (name.clone(), task.clone())).collect();
    for line in render::crontab(&tasks).lines().skip(2) {
        let is_right = line.starts_with("# ") || line.contains(" root '/");
        // Between quotes nothing has a meaning for a shell; outside there are only quotes that stand for themselves.
        let outside: String = line.split(" root ").skip(1).flat_map(|it| it.split('\'').step_by(2)).collect();
        assert!(is_right && outside.chars().all(|c| c == ' ' || c == '\\'), "{line}");
    }
    for (name, task) in &tasks {
        check(&render::task_service(name, task), UNIT);
        check(&render::task_timer(name, task), UNIT);
    }
}

fn check(text: &str, words: Words) {
    for line in text.lines() {
        assert!(words.iter().any(|word| line.starts_with(word)), "{line:?}");
    }
}
