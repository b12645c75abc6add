//! A machine below a temporary folder: backed up, lost, and restored.

use super::*;
use crate::collect::{Collected, Wanted, collect};
use crate::{pack, unpack};
use lab::files::Files;
use std::fs::Permissions;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Machine(Files);

impl Machine {
    /// A configuration that names a list and a program, with three revisions.
    fn new() -> Self {
        let machine = Self(Files::default());
        let named = |name: &str| machine.at(name).display().to_string();
        let text = format!(
            "set pki ca home crl-file {}\nset system task-scheduler task a executable path {}\n",
            named("crl/home.crl"),
            named("scripts/a.sh")
        );
        machine.write("etc/postern.conf", &text, 0o640);
        machine.write("crl/home.crl", "the list", 0o644);
        machine.write("scripts/a.sh", "#!/bin/sh\n. ./common.sh\n", 0o755);
        machine.write("scripts/common.sh", "true\n", 0o644);
        for number in 1..=3 {
            machine.write(
                &format!("state/archive/0000000{number}.conf"),
                &format!("revision {number}"),
                0o600,
            );
        }
        machine.write("state/archive/00000003.confirmed", "", 0o600);
        for name in crate::entry::HTTPS_FILES {
            machine.write(&format!("state/https/{name}"), name, 0o600);
        }
        machine
    }

    fn read(&self, path: &str) -> String {
        self.0.read(path).unwrap_or_default()
    }

    fn collect(&self, revisions: usize) -> Collected {
        let wanted = Wanted {
            configuration: self.at("etc/postern.conf"),
            state: self.at("state"),
            revisions,
            more: vec![self.at("scripts")],
            version: "0.1.0".to_owned(),
            time: "2026-11-23T05:00:00Z".to_owned(),
            host: "gw1".to_owned(),
        };
        collect(&wanted).expect("it is there")
    }

    fn backup(&self) -> Backup {
        let Collected { backup, left } = self.collect(2);
        assert_eq!(left, [""; 0]);
        unpack(&pack(&backup).expect("memory")).expect("it is whole")
    }

    fn target(&self) -> Target {
        Target {
            configuration: self.at("etc/postern.conf"),
            folders: vec![self.at("scripts"), self.at("crl")],
            state: Some(self.at("state")),
            owners: Owners::here(),
            is_root: rustix::process::geteuid().is_root(),
            stamp: "20261123-050000".to_owned(),
        }
    }
}

impl Deref for Machine {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.0
    }
}

const ASIDE: &str = ".before-20261123-050000";

fn restore(backup: &Backup, target: &Target) {
    plan(backup, target)
        .and_then(|plan| plan.carry_out(&mut |_| ()))
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_lost_machine_is_as_it_was() {
    let machine = Machine::new();
    let before = machine.read("etc/postern.conf");
    let backup = machine.backup();
    for folder in ["etc", "crl", "scripts", "state"] {
        fs::remove_dir_all(machine.at(folder)).expect("it is there");
    }
    let target = machine.target();
    let plan = plan(&backup, &target).expect("allowed");
    assert!(!plan.replaces() && plan.left.is_empty(), "{:?}", plan.left);
    plan.carry_out(&mut |_| ()).expect("the disk has room");
    assert_eq!(machine.read("etc/postern.conf"), before);
    assert_eq!(
        (machine.read("crl/home.crl").as_str(), machine.read("scripts/common.sh").as_str()),
        ("the list", "true\n")
    );
    assert_eq!((machine.mode("etc/postern.conf"), machine.mode("scripts/a.sh")), (0o640, 0o755));
    assert_eq!(machine.names("etc"), ["postern.conf"]);
    assert_eq!(machine.names("state/archive"), ["00000002.conf", "00000003.conf", "00000003.confirmed"]);
    assert_eq!(machine.names("state/https"), ["certificate.pem", "key.pem", "made.json"]);
    assert_eq!(
        (machine.read("state/https/key.pem").as_str(), machine.mode("state/https")),
        ("key.pem", 0o700)
    );
    assert_eq!((machine.mode("state/archive"), machine.mode("state/archive/00000003.conf")), (0o700, 0o600));
}

#[test]
fn what_was_there_stays_beside_it_and_what_is_the_same_is_not_touched() {
    let machine = Machine::new();
    let backup = machine.backup();
    machine.write("etc/postern.conf", "set system allow-empty\n", 0o600);
    machine.write("state/archive/00000009.conf", "revision 9", 0o600);
    let target = machine.target();
    let plan = plan(&backup, &target).expect("allowed");
    assert!(plan.replaces());
    let changes: Vec<&Change> = plan.steps.iter().map(|step| &step.change).collect();
    assert!(changes[..3].iter().all(|change| **change == Change::Same), "{changes:?}");
    assert_eq!(
        plan.steps.last().map(|step| &step.path),
        Some(&target.configuration),
        "the configuration is last"
    );
    plan.carry_out(&mut |_| ()).expect("the disk has room");
    assert_eq!(machine.read(&format!("etc/postern.conf{ASIDE}")), "set system allow-empty\n");
    assert_eq!(machine.mode(&format!("etc/postern.conf{ASIDE}")), 0o600);
    assert_eq!(machine.names("scripts"), ["a.sh", "common.sh"]);
    assert_eq!(
        machine.names("state"),
        ["archive", &format!("archive{ASIDE}"), "https", &format!("https{ASIDE}"), "lock"]
    );
    assert_eq!(machine.read(&format!("state/archive{ASIDE}/00000009.conf")), "revision 9");
    assert_eq!(machine.names("state/archive").len(), 3);
}

/// Ends at every point, as a loss of power does, and then once more without.
#[test]
fn a_loss_of_power_leaves_each_file_old_or_new_and_a_second_try_completes_it() {
    let mut points = 1;
    let mut ended = 0;
    while ended < points {
        let machine = Machine::new();
        let backup = machine.backup();
        let new = machine.read("etc/postern.conf");
        let files = ["etc/postern.conf", "crl/home.crl", "scripts/a.sh"];
        for file in files {
            machine.write(file, "old", 0o600);
        }
        machine.write("state/archive/00000003.conf", "old", 0o600);
        let (target, mut seen) = (machine.target(), 0);
        let plan = plan(&backup, &target).expect("allowed");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            plan.carry_out(&mut |_| {
                seen += 1;
                assert!(seen != ended + 1, "the power is lost");
            })
        }));
        std::panic::set_hook(hook);
        assert!(outcome.is_err());
        drop(plan);
        let is_new = machine.read("etc/postern.conf") == new;
        assert!(is_new || machine.read("etc/postern.conf") == "old", "{ended}");
        for file in &files[1..] {
            let is_old = machine.read(file) == "old";
            assert!(!machine.read(file).is_empty(), "{ended}: it is whole");
            assert!(!is_new || !is_old, "{ended}: the configuration comes last");
        }
        let archive = machine.read("state/archive/00000003.conf");
        assert!(archive == "old" || archive == "revision 3", "{ended}: {archive}");
        restore(&backup, &Target { stamp: "later".to_owned(), ..machine.target() });
        assert_eq!(
            (machine.read("etc/postern.conf"), machine.read("crl/home.crl")),
            (new, "the list".to_owned())
        );
        assert_eq!(machine.read("state/archive/00000003.conf"), "revision 3");
        for folder in ["etc", "crl", "scripts", "state"] {
            let left = machine.names(folder).into_iter().find(|name| name.contains("postern-new"));
            assert_eq!(left, None, "{ended}");
        }
        let folders = machine.names("state").into_iter().filter(|name| name.starts_with("archive"));
        let kept: Vec<String> =
            folders.map(|name| machine.read(&format!("state/{name}/00000003.conf"))).collect();
        assert!(kept.iter().any(|text| text == "old"), "{ended}: what was there before: {kept:?}");
        // prepared; named, exchanged and published for each folder; and one for each of the files.
        points = 10;
        ended += 1;
    }
}

#[test]
fn files_elsewhere_are_refused_before_anything_is_written() {
    let machine = Machine::new();
    let backup = machine.backup();
    machine.write("etc/postern.conf", "old", 0o600);
    let target = Target { folders: vec![machine.at("scripts")], ..machine.target() };
    let error = plan(&backup, &target).expect_err("crl is not allowed").to_string();
    let folder = machine.at("crl").display().to_string();
    assert!(
        error.contains("home.crl")
            && error.contains(&format!("\n  fix: if it belongs there: --allow {folder}")),
        "{error}"
    );
    // A folder whose name only begins the same.
    machine.write("crlx/a", "", 0o600);
    let target = Target { folders: vec![machine.at("scripts"), machine.at("cr")], ..machine.target() };
    assert!(plan(&backup, &target).is_err());
    assert_eq!(machine.read("etc/postern.conf"), "old");
}

#[test]
fn a_daemon_keeps_its_archive() {
    let machine = Machine::new();
    let backup = machine.backup();
    let lock = File::create(machine.at("state/lock")).expect("ours");
    flock(&lock, FlockOperation::LockExclusive).expect("free");
    let target = machine.target();
    let plan = plan(&backup, &target).expect("allowed");
    assert!(plan.revisions.is_empty());
    assert!(plan.left.len() == 1 && plan.left[0].contains("a daemon uses"), "{:?}", plan.left);
}

#[test]
fn nothing_is_changed_when_a_file_cannot_be_written() {
    let machine = Machine::new();
    let backup = machine.backup();
    fs::remove_file(machine.at("crl/home.crl")).expect("ours");
    machine.write("scripts/a.sh", "old", 0o755);
    machine.write("etc/postern.conf", "old", 0o600);
    // A file where a folder must be.
    fs::remove_dir_all(machine.at("crl")).expect("ours");
    machine.write("crl", "", 0o600);
    let target = machine.target();
    let error = plan(&backup, &target).expect("allowed").carry_out(&mut |_| ()).expect_err("no folder");
    assert!(error.to_string().ends_with("nothing was changed"), "{error}");
    assert_eq!(
        (machine.read("scripts/a.sh"), machine.read("etc/postern.conf")),
        ("old".to_owned(), "old".to_owned())
    );
    assert_eq!(machine.names("scripts"), ["a.sh", "common.sh"]);
    assert_eq!(machine.names("etc"), ["postern.conf"]);
}

#[test]
fn a_link_is_replaced_and_not_followed() {
    let machine = Machine::new();
    let backup = machine.backup();
    machine.write("elsewhere", "theirs", 0o600);
    fs::remove_file(machine.at("scripts/a.sh")).expect("ours");
    std::os::unix::fs::symlink(machine.at("elsewhere"), machine.at("scripts/a.sh")).expect("ours");
    restore(&backup, &machine.target());
    assert_eq!(machine.read("elsewhere"), "theirs");
    assert!(!machine.at("scripts/a.sh").is_symlink());
}

/// The daemon's user, who was taken over, waits for root.
#[test]
fn links_of_another_user_lead_root_nowhere() {
    let machine = Machine::new();
    let backup = machine.backup();
    machine.write("secret", "of root", 0o600);
    let theirs =
        |path: &str| fs::set_permissions(machine.at(path), Permissions::from_mode(0o777)).expect("ours");
    let link =
        |to: &str, path: &str| std::os::unix::fs::symlink(machine.at(to), machine.at(path)).expect("ours");
    for folder in ["state", "state/archive"] {
        theirs(folder);
    }
    // A revision that leads to a secret is not in a backup.
    link("secret", "state/archive/00000004.conf");
    let Collected { left, backup: leaked } = machine.collect(9);
    assert!(left.len() == 1 && left[0].contains("00000004"), "{left:?}");
    assert!(leaked.entries.iter().all(|entry| entry.content.bytes() != b"of root"));
    // No lock is made elsewhere, and no revision is written elsewhere.
    fs::create_dir(machine.at("elsewhere")).expect("ours");
    link("elsewhere/lock", "state/lock");
    let target = machine.target();
    let refused = plan(&backup, &target).expect("allowed");
    assert!(refused.revisions.is_empty() && refused.left.len() == 1, "{:?}", refused.left);
    drop(refused);
    fs::remove_file(machine.at("state/lock")).expect("ours");
    link("elsewhere", "state/archive.postern-new");
    restore(&backup, &machine.target());
    assert_eq!((machine.names("elsewhere"), machine.names("state/archive").len()), (vec![], 3));
    // No file is written through a folder of theirs.
    machine.write("scripts/inner/b.sh", "true\n", 0o755);
    let backup = machine.backup();
    fs::remove_dir_all(machine.at("scripts/inner")).expect("ours");
    theirs("scripts");
    link("elsewhere", "scripts/inner");
    let target = machine.target();
    let error =
        plan(&backup, &target).expect("allowed").carry_out(&mut |_| ()).expect_err("a link").to_string();
    assert!(error.contains("is a link") && error.ends_with("nothing was changed"), "{error}");
    assert_eq!(machine.names("elsewhere"), [""; 0]);
}

#[test]
fn what_cannot_be_read_is_left_out_and_named() {
    let machine = Machine::new();
    fs::remove_file(machine.at("crl/home.crl")).expect("ours");
    std::os::unix::fs::symlink("/etc/shadow", machine.at("scripts/link")).expect("ours");
    let Collected { backup, left } = machine.collect(0);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].contains("home.crl, which pki ca home crl-file names: "), "{left:?}");
    assert!(left[1].ends_with("scripts/link is a link to /etc/shadow"), "{left:?}");
    assert!(backup.entries.iter().all(|entry| entry.place.revision().is_none()));
    let wanted = Wanted {
        configuration: machine.at("nothing"),
        state: machine.at("state"),
        revisions: 0,
        more: Vec::new(),
        version: String::new(),
        time: String::new(),
        host: String::new(),
    };
    assert!(collect(&wanted).expect_err("nothing is there").to_string().contains("\n  fix: "));
}
