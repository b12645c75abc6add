//! The lines of the guide that are about the machine, each in a commit of its own: they take effect, and deleting them undoes it.

use super::{BACKLOG, CRON, LINES, Root, SNMP, SYSLOG, Site};

/// What each line has done, in the order of the lines.
fn effects(root: &Root) -> [bool; 7] {
    let has = |file: &str, text: &str| root.read(file).is_some_and(|found| found.contains(text));
    let task = has(CRON, "0 0 */1 * * root '/config/scripts/qat-check.sh'");
    [
        has(SNMP, "\nrocommunity public "),
        has(SNMP, "\nrocommunity public 10.0.0.0/8 "),
        root.read(BACKLOG).as_deref() == Some("16384"),
        has(SYSLOG, "*.info"),
        has(SYSLOG, "auth.warning "),
        task,
        task,
    ]
}

/// Whether nothing of it is left.
fn is_as_before(root: &Root) -> bool {
    [SNMP, SYSLOG, CRON].iter().all(|file| root.read(file).is_none())
        && root.read(BACKLOG).as_deref() == Some("1000")
}

impl Site {
    fn commit(&self, command: &str) -> String {
        let output = self.ask(&["configure", "-c", command, "-c", "commit"]);
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        said
    }
}

impl Site {
    /// Deletes the names that are left of lines.
    fn delete_names(&self) {
        for branch in ["service snmp", "system syslog", "system task-scheduler"] {
            // There may be nothing left to delete.
            self.ask(&["configure", "-c", &format!("delete {branch}"), "-c", "commit"]);
        }
    }
}

fn site() -> Option<Site> {
    let site = Site::start("set system allow-empty\n", &[])?;
    site.root.write("usr/sbin/cron", "", 0o755);
    site.root.write("config/scripts/qat-check.sh", "#!/bin/sh\n", 0o755);
    Some(site)
}

#[test]
fn each_line_of_the_guide_commits_alone_and_goes_again() {
    let Some(site) = site() else { return };
    for (at, line) in LINES.lines().enumerate() {
        let words = line.strip_prefix("set ").expect("it sets");
        let said = site.commit(line);
        if words.starts_with("system task-scheduler") {
            assert!(
                said.contains("set system task-scheduler task qat-daily-check "),
                "what is missing: {said}"
            );
            assert!(!effects(&site.root)[at], "half a task is not run");
        } else {
            assert!(effects(&site.root)[at], "{line}: {said}");
        }
        site.commit(&format!("delete {words}"));
        // A community may ask, and a facility is logged, by its name alone.
        assert!(at == 0 || !effects(&site.root)[at], "{line}");
        site.delete_names();
        assert!(is_as_before(&site.root), "{line}");
    }
}

#[test]
fn the_lines_of_the_guide_add_up_one_by_one_and_go_one_by_one() {
    let Some(site) = site() else { return };
    let lines: Vec<&str> = LINES.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        site.commit(line);
        let effects = effects(&site.root);
        // A task has a program and a time.
        let done = if at == 5 { 5 } else { at + 1 };
        assert!(effects[..done].iter().all(|it| *it), "{line}: {effects:?}");
    }
    for (at, line) in lines.iter().enumerate().rev() {
        site.commit(&line.replacen("set", "delete", 1));
        let effects = effects(&site.root);
        let is_gone = at == 0 || !effects[at];
        assert!(is_gone && effects[..at.min(5)].iter().all(|it| *it), "{line}: {effects:?}");
    }
    site.delete_names();
    assert!(is_as_before(&site.root));
}

/// Its lines for VPNs and accelerators.
const VPN: &str = include_str!("../shell/guide.conf");

impl Site {
    /// Carries out commands in one session; those that fail end it, unless it is to go on.
    fn configure(&self, more: &[&str], commands: &str) -> (bool, String) {
        self.root.write("commands", commands, 0o600);
        let file = self.root.at("commands").display().to_string();
        let output = self.ask(&[&["configure", "--commands", &file], more].concat());
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn lines(&self) -> String {
        self.show(&["show", "configuration", "commands"])
    }

    fn delete_all(&self) {
        let branches = [
            "vpn",
            "service",
            "system acceleration",
            "system option",
            "system syslog",
            "system task-scheduler",
        ];
        let commands: String = branches.iter().map(|branch| format!("delete {branch}\n")).collect();
        let (done, said) = self.configure(&["--keep-going"], &format!("{commands}commit\n"));
        assert!(is_as_before(&self.root), "{done}: {said}");
    }
}

#[test]
fn all_lines_of_the_guide_commit_in_one_go_and_line_by_line() {
    let Some(site) = site() else { return };
    let before = site.lines();
    let lines: Vec<&str> = VPN.lines().chain(LINES.lines()).collect();
    let (done, said) = site.configure(&[], &format!("{}\ncommit\n", lines.join("\n")));
    assert!(done && effects(&site.root).iter().all(|it| *it), "{said}");
    let connections = site.show(&["show", "vpn", "ipsec", "connections"]);
    assert!(["203.0.113.10", "10.128.0.10", "185.185.185.10"].iter().all(|peer| connections.contains(peer)));
    let all = site.lines();
    site.delete_all();
    assert_eq!(site.lines(), before);
    // A peer is refused until it is complete, and what is missing is told; it is committed with the line that completes it.
    let commands: String = lines.iter().map(|line| format!("{line}\ncommit\n")).collect();
    let (_, said) = site.configure(&["--keep-going"], &commands);
    assert_eq!(site.lines(), all, "{said}");
    assert!(effects(&site.root).iter().all(|it| *it), "{said}");
    let commands: String =
        lines.iter().rev().map(|line| format!("{}\ncommit\n", line.replacen("set", "delete", 1))).collect();
    let (_, said) = site.configure(&["--keep-going"], &commands);
    assert!(
        !said.contains("not valid") && !said.contains("nothing to delete"),
        "each line can be deleted: {said}"
    );
    site.delete_all();
    assert_eq!(site.lines(), before);
}
