//! Tar files that are right, and tar files that are made to do harm.

use super::*;
use serde_json::{Value, json};

const CONFIGURATION: &str = "/etc/postern/postern.conf";

fn entry(name: &str, mode: u32, bytes: &[u8]) -> Entry {
    Entry {
        place: Place::parse(name).expect("a place"),
        mode,
        user: "root".to_owned(),
        group: "postern".to_owned(),
        content: Content::new(bytes.to_vec()),
    }
}

pub(crate) fn backup() -> Backup {
    let long = format!("files/config/scripts/{}/a.sh", "folder/".repeat(30).trim_end_matches('/'));
    Backup {
        version: "0.1.0".to_owned(),
        time: "2026-11-23T05:00:00Z".to_owned(),
        host: "gw1".to_owned(),
        configuration: CONFIGURATION.to_owned(),
        entries: vec![
            entry("files/etc/postern/postern.conf", 0o640, b"set system allow-empty\n"),
            entry("files/config/scripts/a b.sh", 0o755, b"#!/bin/sh\n"),
            entry(&long, 0o700, b""),
            entry("revisions/00000012.conf", 0o600, &[7; 5000]),
        ],
    }
}

/// A tar file of these regular files.
fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        // Names that the library refuses to write.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, *bytes).expect("memory");
    }
    tar.into_inner().expect("memory")
}

/// A list of the configuration and of one more file, and the tar file of it.
fn hostile(name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let text = b"x";
    let listed = |name: &str| {
        let sha256 = Content::new(text.to_vec()).digest();
        json!({"name": name, "size": 1, "sha256": sha256, "mode": "0600", "user": "root", "group": "root"})
    };
    let mut list = json!({
        "format": 1, "postern": "0.1.0", "time": "2026-11-23T05:00:00Z", "host": "gw1", "configuration": CONFIGURATION,
        "files": [listed("files/etc/postern/postern.conf"), listed(name)],
    });
    change(&mut list);
    let list = serde_json::to_vec(&list).expect("JSON");
    tar_of(&[(manifest::NAME, &list), ("files/etc/postern/postern.conf", text), (name, text)])
}

#[test]
fn what_is_packed_is_unpacked_as_the_same() {
    let backup = backup();
    let tar = pack(&backup).expect("memory");
    assert_eq!(unpack(&tar).expect("it is whole"), backup);
    assert!(!format!("{backup:?}").contains("allow-empty"), "contents are not printed");
}

#[test]
fn other_programs_read_the_tar_file() {
    let folder = lab::files::Files::default();
    let path = folder.path().join("a.tar");
    std::fs::write(&path, &*pack(&backup()).expect("memory")).expect("ours");
    let status = std::process::Command::new("tar").arg("-xf").arg(&path).current_dir(folder.path()).status();
    assert!(status.expect("tar is there").success());
    let text =
        std::fs::read_to_string(folder.path().join("files/etc/postern/postern.conf")).expect("it is there");
    assert_eq!(text, "set system allow-empty\n");
}

#[test]
fn a_file_that_is_cut_off_or_changed_is_refused() {
    let tar = pack(&backup()).expect("memory");
    // The end of a tar file is 1024 zeros, which may be missing.
    for length in (0..tar.len() - 1024).step_by(511) {
        assert!(unpack(&tar[..length]).is_err(), "{length}");
    }
    let at = tar.windows(4).rposition(|four| four == [7; 4]).expect("the revision");
    let mut changed = tar.to_vec();
    changed[at] = 8;
    assert_eq!(unpack(&changed), Err(UnpackError::Changed("revisions/00000012.conf".to_owned())));
}

#[test]
fn no_path_leads_out_and_no_list_lies() {
    let named = |name: &str| unpack(&hostile(name, |_| ())).expect_err(name);
    assert!(unpack(&hostile("files/config/a", |_| ())).is_ok());
    for name in [
        "files/../etc/shadow",
        "/etc/shadow",
        "../a",
        "files/a/../../b",
        "revisions/../../a",
        "other/a",
        "files/a\nb",
    ] {
        assert_eq!(named(name), UnpackError::Place(name.to_owned()));
    }
    let with = |change: fn(&mut Value)| unpack(&hostile("files/config/a", change)).expect_err("refused");
    assert!(matches!(with(|list| list["files"][1]["sha256"] = "00".into()), UnpackError::Changed(_)));
    assert!(matches!(with(|list| list["files"][1]["size"] = 2.into()), UnpackError::Changed(_)));
    assert!(matches!(with(|list| list["files"][1]["size"] = (1_u64 << 40).into()), UnpackError::Large(_)));
    assert!(matches!(with(|list| list["files"][1]["mode"] = "4755".into()), UnpackError::Manifest(_)));
    assert!(matches!(with(|list| list["files"][1]["user"] = "a\nb".into()), UnpackError::Manifest(_)));
    assert!(matches!(with(|list| list["configuration"] = "/etc/shadow".into()), UnpackError::Manifest(_)));
    assert!(matches!(with(|list| list["host"] = "\u{1b}[2J".into()), UnpackError::Manifest(_)));
    assert_eq!(with(|list| list["format"] = 2.into()), UnpackError::Newer("0.1.0".to_owned()));
    assert!(matches!(
        with(|list| _ = list["files"].as_array_mut().expect("a list").pop()),
        UnpackError::Unlisted(_)
    ));
    let doubled = |list: &mut Value| {
        let files = list["files"].as_array_mut().expect("a list");
        files.push(files[1].clone());
    };
    assert!(matches!(with(doubled), UnpackError::Manifest(_)));
    let more = |list: &mut Value| {
        let files = list["files"].as_array_mut().expect("a list");
        let mut next = files[1].clone();
        next["name"] = "files/config/b".into();
        files.push(next);
    };
    assert_eq!(with(more), UnpackError::Missing("files/config/b".to_owned()));
    let many = |list: &mut Value| {
        let files = list["files"].as_array_mut().expect("a list");
        let one = files[1].clone();
        files.extend((0..5000).map(|_| one.clone()));
    };
    assert!(matches!(with(many), UnpackError::Large(_)));
}

#[test]
fn links_devices_and_sparse_files_are_refused() {
    let good = hostile("files/config/a", |_| ());
    let at = good.windows(14).rposition(|name| name == b"files/config/a").expect("the last file");
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Directory,
        EntryType::Fifo,
        EntryType::GNUSparse,
        EntryType::XGlobalHeader,
        EntryType::Continuous,
    ] {
        let mut tar = good.clone();
        let mut header = Header::new_gnu();
        header.as_mut_bytes().copy_from_slice(&tar[at..at + 512]);
        header.set_entry_type(kind);
        header.set_cksum();
        tar[at..at + 512].copy_from_slice(header.as_bytes());
        assert!(unpack(&tar).is_err(), "{kind:?}");
    }
}

#[test]
fn other_files_are_named_as_such() {
    assert_eq!(unpack(&[]), Err(UnpackError::NoManifest));
    assert_eq!(unpack(&tar_of(&[("a", b"x")])), Err(UnpackError::NoManifest));
    assert!(unpack(b"set system allow-empty\n").is_err());
    assert!(unpack(&[0x55; 2048]).is_err());
}
