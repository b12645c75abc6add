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

/// The script of the guide that a task runs each day, as it stands there.
const CHECK: &str = r#"#!/bin/bash
LOG_FILE="/var/log/qat-health.log"
DATE=$(date "+%Y-%m-%d %H:%M:%S")
echo "[$DATE] QAT Health Check" >> $LOG_FILE
STATUS=$(show system acceleration qat status | grep "Active Devices")
echo "  $STATUS" >> $LOG_FILE
ERRORS=$(show system acceleration qat device qat_dev0 flows | grep "Errors:")
echo "  $ERRORS" >> $LOG_FILE
OPS=$(show system acceleration qat device qat_dev0 flows | grep "Operations/sec")
echo "  $OPS" >> $LOG_FILE
if echo "$ERRORS" | grep -v "Errors: 0" > /dev/null; then
    echo "  WARNING: QAT errors detected!" >> $LOG_FILE
fi
echo "" >> $LOG_FILE
"#;

/// The script of the guide that an operator looks at.
const MONITOR: &str = r#"#!/bin/bash
while true; do
clear
echo "QAT Performance Monitor - $(date)"
echo "========================================"
show system acceleration qat status
echo ""
echo "Flow Statistics:"
show system acceleration qat device qat_dev0 flows | grep -E "(Operations|Throughput|Errors)"
echo ""
echo "CPU Usage:"
top -bn1 | grep "Cpu(s)" | sed "s/.*, *\([0-9.]*\)%* id.*/\1/" | awk '{print "CPU Load: " 100 - $1"%"}'
echo ""
echo "IPsec Tunnels:"
show vpn ipsec sa | grep -E "(peer|State)"
sleep 5
done
"#;

#[test]
fn the_scripts_of_the_guide_run_as_they_stand_there_with_the_path_of_tasks() {
    let Some(site) = site() else { return };
    for line in LINES.lines().filter(|line| line.contains("task-scheduler")) {
        site.commit(line);
    }
    let root = &site.root;
    let tab = root.read(CRON).expect("the task");
    let path = tab.lines().find_map(|line| line.strip_prefix("PATH=")).expect("it has one");
    root.write("check.sh", CHECK, 0o755);
    root.write("monitor.sh", MONITOR, 0o755);
    // A device, as its driver shows it.
    for part in include_str!("../../../cli/tests/qat/c3xxx.tree").split("== ").skip(1) {
        let (name, text) = part.split_once('\n').expect("a path");
        match name.split_once(" -> ") {
            Some((name, target)) => {
                let at = root.at(&format!("qat/{name}"));
                std::fs::create_dir_all(at.parent().expect("a folder")).expect("ours");
                std::os::unix::fs::symlink(target, at).expect("ours");
            }
            None => _ = root.write(&format!("qat/{name}"), text, 0o644),
        }
    }
    // In a file system of its own: the script writes into /var/log.
    let (folder, postern) = (root.path().display(), crate::support::postern());
    let run = format!(
        "mount -t tmpfs none /var/log && mount -t tmpfs none /usr/local/lib && {} generate programs /usr/local/lib/postern && \
         export PATH={path} POSTERN_ROOT={folder}/qat TERM=dumb && {folder}/check.sh && cat /var/log/qat-health.log && \
         timeout 10 {folder}/monitor.sh; true",
        postern.display()
    );
    let output =
        std::process::Command::new("unshare").args(["--mount", "sh", "-c", &run]).output().expect("root may");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let (log, monitor) = said.split_once("QAT Performance Monitor").unwrap_or((&said, ""));
    for line in ["QAT Health Check", "  Active Devices: 1", "Errors: ", "Operations/sec: "] {
        assert!(log.contains(line), "{line}: {said}");
    }
    for line in [
        "QAT Device Status:",
        "Total Operations: ",
        "Throughput: ",
        "Errors: ",
        "CPU Load: ",
        "IPsec Tunnels:",
    ] {
        assert!(monitor.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("command not found"), "{said}");
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
