//! `postern import`: what it writes, to whom, and a tunnel between a site that was imported and one that still has wg-quick.

use crate::daemon::{Site, key_pair};
use crate::support::{PATIENCE, answers, postern, sites, skip, tcp_arrives_whole, unavailable};
use lab::{has_program, wait_until};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

fn import(arguments: &[&str]) -> Output {
    Command::new(postern()).arg("import").args(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The file of one of two sites.
fn wg_quick(end: usize, private: &str, public: &str) -> String {
    format!(
        "[Interface]\nPrivateKey = {private}\nListenPort = 51820\nAddress = 10.66.0.{}/24\nMTU = 1400\n\
         # other\n[Peer]\nPublicKey = {public}\nEndpoint = 192.168.77.{}:51820\nAllowedIPs = 10.66.0.{}\n",
        end + 1,
        2 - end,
        2 - end
    )
}

#[test]
fn a_site_of_wg_quick_is_imported_and_the_other_keeps_it() {
    let Some(mut lab) = sites() else { return };
    if Path::new("/sys/module/wireguard").exists() {
        return unavailable("wg-quick would use the WireGuard of this kernel");
    }
    if !has_program("wg-quick") {
        return skip("needs wg-quick");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, theirs) = (key_pair(), key_pair());
    let other = lab.interface("q");
    let [conf, its] = ["wg0".to_owned(), other].map(|name| folder.path().join(format!("{name}.conf")));
    std::fs::write(&conf, wg_quick(0, &ours.0, &theirs.1)).expect("a file");
    std::fs::write(&its, wg_quick(1, &theirs.0, &ours.1)).expect("a file");
    let imported = import(&["wg-quick", &conf.to_string_lossy()]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    assert!(!text(&imported.stderr).contains(&ours.0), "the report has no secrets");
    let mut site = Site::new(&lab, "a", &ours.0);
    (*site).write(&text(&imported.stdout));
    site.start(&mut lab);
    // wg-quick takes the name of a program without arguments.
    let program = folder.path().join("postern-wireguard");
    std::os::unix::fs::symlink(postern(), &program).expect("a link");
    let quick = |verb: &str| {
        let mut command = lab.command("b", "wg-quick");
        command.args([verb, &its.to_string_lossy()]).env("WG_QUICK_USERSPACE_IMPLEMENTATION", &program);
        let output = command.process_group(0).output().expect("it runs");
        assert!(output.status.success(), "{verb}: {}", text(&output.stderr));
    };
    quick("up");
    let both = || answers(&lab, "a", "10.66.0.2") && answers(&lab, "b", "10.66.0.1");
    wait_until(PATIENCE, both)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", text(&imported.stdout), site.logged()));
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    quick("down");
}

#[test]
fn the_lines_go_to_a_new_file_of_its_owner_and_the_report_is_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let (conf, output) = (folder.path().join("wg7.conf"), folder.path().join("postern.conf"));
    let private = key_pair().0;
    std::fs::write(&conf, wg_quick(0, &private, &key_pair().1) + "PostUp = a\n").expect("a file");
    let (conf, to) = (conf.to_string_lossy(), output.to_string_lossy());
    // The format is seen from the file.
    let imported = import(&[&conf, "--output", &to, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&imported.stderr).expect("JSON");
    assert_eq!((imported.status.code(), imported.stdout.len()), (Some(0), 0));
    assert_eq!((&report["valid"], &report["left_security"]), (&true.into(), &1.into()), "{report:#}");
    let left = report["options"].as_array().expect("a list").iter().find(|it| it["outcome"] == "left");
    assert_eq!(
        left.map(|it| (it["line"].clone(), it["option"].clone())),
        Some((11.into(), "Peer PostUp".into()))
    );
    assert!(!report.to_string().contains(&private));
    assert_eq!(output.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(
        std::fs::read_to_string(&output).expect("text").contains(&format!("wg7 private-key {private}\n"))
    );
    let again = import(&["wg-quick", &conf, "--output", &to]);
    assert!(
        again.status.code() == Some(2) && text(&again.stderr).contains("exists\n  fix:"),
        "{}",
        text(&again.stderr)
    );
}

#[test]
fn what_cannot_be_served_or_read_is_told_by_the_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let conf = folder.path().join("wg0.conf");
    for (content, code, said) in [
        ("[Interface]\nAddress = 10.0.0.1/8\n", 1, "refused: "),
        ("[Interface]\nOpenSesame\n", 2, "wg0.conf:2:1: no = in this line\n  fix: "),
        ("nothing\n", 2, "the format of the file is not known"),
    ] {
        std::fs::write(&conf, content).expect("a file");
        let output = import(&[&conf.to_string_lossy()]);
        let shown = text(&output.stderr);
        assert!(output.status.code() == Some(code) && shown.contains(said), "{content}: {shown}");
        assert!(!shown.contains("Sesame"), "{shown}");
    }
}
