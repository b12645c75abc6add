//! `postern backup` and `postern restore`, with a machine below a folder. Needs no root.

use crate::support::postern;
use lab::files::Files;
use std::fs::{self, Permissions};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";

struct Machine(Files);

impl Machine {
    fn new() -> Self {
        let machine = Self(Files::default());
        let text = format!(
            "set interfaces wireguard wg0 address 10.0.0.1/24\nset interfaces wireguard wg0 private-key {KEY}\n\
             set pki ca home crl-file {}\n",
            machine.named("etc/home.crl")
        );
        machine.write("etc/postern.conf", &text);
        machine.write("etc/home.crl", "the list");
        machine.write("scripts/check.sh", "#!/bin/sh\n");
        machine.write("passphrase", "correct horse\n");
        fs::create_dir_all(machine.at("state/archive")).expect("ours");
        machine
    }

    fn write(&self, path: &str, text: &str) {
        self.0.write(path, text, 0o600);
    }

    fn read(&self, path: &str) -> String {
        self.0.read(path).unwrap_or_default()
    }

    fn command(&self, verb: &str, words: &[&str]) -> Command {
        let mut command = Command::new(postern());
        command.arg(verb).args([
            "--config",
            &self.named("etc/postern.conf"),
            "--state",
            &self.named("state"),
        ]);
        command.args(words).stdin(Stdio::null()).env_remove("POSTERN_PASSPHRASE");
        command
    }

    fn backup(&self, words: &[&str]) -> Output {
        let scripts = self.named("scripts");
        self.command("backup", &[&["--scripts", &scripts], words].concat()).output().expect("it runs")
    }

    fn restore(&self, words: &[&str]) -> Output {
        let (api, scripts) = (self.named("no.sock"), self.named("scripts"));
        self.command("restore", &[&["--api", &api, "--allow", &scripts], words].concat())
            .output()
            .expect("it runs")
    }
}

impl Deref for Machine {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.0
    }
}

fn said(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(!text.contains(KEY) && !text.contains("correct horse"), "{text}");
    text
}

#[test]
fn a_lost_machine_comes_back_from_one_file() {
    let machine = Machine::new();
    let (file, passphrase) = (machine.named("gate.backup"), machine.named("passphrase"));
    let with = ["--passphrase-file", &passphrase, &file];
    let text = said(&machine.backup(&with), 0);
    assert!(text.contains("gate.backup: 3 files, 0 revisions, "), "{text}");
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(!fs::read(&file).expect("there").windows(9).any(|bytes| bytes == b"wireguard"));
    assert!(said(&machine.backup(&with), 2).contains("is there already\n  fix: name another, or --force"));
    let text = said(&machine.restore(&[&["--list"], &with[..]].concat()), 0);
    assert!(
        text.contains("0600 ") && text.contains("/etc/home.crl\n") && text.contains("/scripts/check.sh\n"),
        "{text}"
    );
    let before = machine.read("etc/postern.conf");
    fs::remove_dir_all(machine.at("etc"))
        .and_then(|()| fs::remove_dir_all(machine.at("scripts")))
        .expect("ours");
    let text = said(&machine.restore(&[&["--dry-run"], &with[..]].concat()), 0);
    assert!(text.contains("  new        ") && text.ends_with("nothing was changed\n"), "{text}");
    assert!(!machine.at("etc").exists());
    let text = said(&machine.restore(&with), 0);
    assert!(
        text.ends_with("restored, and not in force\n  fix: systemctl start postern, or postern run\n"),
        "{text}"
    );
    assert_eq!(
        (machine.read("etc/postern.conf"), machine.read("etc/home.crl").as_str()),
        (before, "the list")
    );
    assert_eq!(machine.read("scripts/check.sh"), "#!/bin/sh\n");
}

#[test]
fn files_that_are_there_are_replaced_only_if_that_is_wanted() {
    let machine = Machine::new();
    let file = machine.named("gate.backup");
    said(&machine.backup(&["--passphrase-file", &machine.named("passphrase"), &file]), 0);
    machine.write("etc/home.crl", "another list");
    let with = ["--passphrase-file", &machine.named("passphrase"), &file];
    let text = said(&machine.restore(&with), 2);
    assert!(text.contains("this replaces 1 file; nothing was changed\n  fix: --yes"), "{text}");
    assert_eq!(machine.read("etc/home.crl"), "another list");
    let text = said(&machine.restore(&[&["--yes"], &with[..]].concat()), 0);
    assert!(text.contains("  unchanged  ") && text.contains("  replaced   "), "{text}");
    assert_eq!(machine.read("etc/home.crl"), "the list");
    let kept = fs::read_dir(machine.at("etc")).expect("there").flatten();
    let kept: Vec<_> =
        kept.filter(|entry| entry.file_name().to_string_lossy().contains(".before-2")).collect();
    assert_eq!(
        (kept.len(), fs::read_to_string(kept[0].path()).expect("there").as_str()),
        (1, "another list")
    );
}

#[test]
fn what_is_wrong_changes_nothing_and_is_named() {
    let machine = Machine::new();
    let (file, passphrase) = (machine.named("gate.backup"), machine.named("passphrase"));
    said(&machine.backup(&["--passphrase-file", &passphrase, &file]), 0);
    machine.write("etc/postern.conf", "set system allow-empty\n");
    machine.write("wrong", "wrong\n");
    let refused = |words: &[&str]| said(&machine.restore(words), 2);
    assert!(
        refused(&["--yes", "--passphrase-file", &machine.named("wrong"), &file])
            .contains("the passphrase is wrong")
    );
    assert!(refused(&["--yes", "--no-passphrase", &file]).contains("is encrypted\n  fix: "));
    let text = refused(&["--yes", &machine.named("etc/home.crl")]);
    assert!(
        text.contains("not encrypted with age\n  fix: if it is a tar file that you trust: --no-passphrase"),
        "{text}"
    );
    let mut bytes = fs::read(&file).expect("there");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(machine.at("damaged"), bytes).expect("ours");
    let text = refused(&["--yes", "--passphrase-file", &passphrase, &machine.named("damaged")]);
    assert!(text.contains("changed or cut off"), "{text}");
    // A configuration of a later version.
    machine.write("etc/postern.conf", "set interfaces wireguard wg0 frobnicate 1\n");
    let plain = machine.named("plain.tar");
    let text = said(&machine.backup(&["--no-passphrase", &plain]), 1);
    assert!(text.contains("it is not encrypted") && text.contains("not in it: "), "{text}");
    machine.write("etc/postern.conf", "set system allow-empty\n");
    let text = refused(&["--yes", "--no-passphrase", &plain]);
    assert!(
        text.contains("frobnicate") && text.contains("cannot serve the configuration of the backup"),
        "{text}"
    );
    assert_eq!(machine.read("etc/postern.conf"), "set system allow-empty\n");
}

#[test]
fn scripts_give_the_passphrase_without_a_terminal() {
    let machine = Machine::new();
    let mut backup = machine.command("backup", &["-"]);
    let output = backup.env("POSTERN_PASSPHRASE", "correct horse").output().expect("it runs");
    assert!(output.status.success() && output.stdout.starts_with(b"age-encryption.org/v1\n"));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("correct horse"));
    fs::write(machine.at("piped"), output.stdout).expect("ours");
    let descriptor = format!("exec \"$@\" --passphrase-file /dev/fd/3 3< {}", machine.named("passphrase"));
    let restore = machine.command("restore", &["--list", &machine.named("piped")]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &descriptor, "sh"]).arg(restore.get_program()).args(restore.get_args());
    assert!(said(&shell.output().expect("sh is there"), 0).contains("backup of "));
    // Without a terminal no question can be asked.
    let mut none = Command::new("setsid");
    let nobody = machine.command("backup", &[&machine.named("a.backup")]);
    none.arg("--wait")
        .arg(nobody.get_program())
        .args(nobody.get_args())
        .env_remove("POSTERN_PASSPHRASE")
        .stdin(Stdio::null());
    let text = said(&none.output().expect("setsid is there"), 2);
    assert!(
        text.contains("no terminal to ask for the passphrase")
            && text.contains("fix: --passphrase-file FILE"),
        "{text}"
    );
    assert!(!machine.at("a.backup").exists());
}

#[test]
fn the_script_of_the_guide_keeps_the_newest_backups() {
    let machine = Machine::new();
    let folder = machine.at("backups");
    fs::create_dir(&folder).expect("ours");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for day in 1..=4 {
        machine.write(&format!("backups/postern-{host}.2026010{day}_000000.backup"), "");
    }
    machine.write("backups/notes.txt", "");
    // The script takes the default paths of a machine.
    let bin = machine.at("bin");
    fs::create_dir(&bin).expect("ours");
    let wrapper = format!(
        "#!/bin/sh\nshift\nexec {} backup --config {} --state {} \"$@\"\n",
        postern().display(),
        machine.named("etc/postern.conf"),
        machine.named("state")
    );
    machine.write("bin/postern", &wrapper);
    fs::set_permissions(bin.join("postern"), Permissions::from_mode(0o755)).expect("ours");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/backup.sh");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.arg(script).arg(&folder).arg("3").env("PATH", path);
    command.env("POSTERN_PASSPHRASE_FILE", machine.named("passphrase"));
    said(&command.output().expect("bash is there"), 0);
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(names[0], "notes.txt");
    assert!(names.iter().all(|name| !name.contains("20260101") && !name.contains("20260102")), "{names:?}");
}
