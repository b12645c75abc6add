use super::*;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use tempfile::TempDir;

fn folder() -> (TempDir, Folder) {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = Folder::open(temporary.path()).expect("it is there");
    (temporary, folder)
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

#[test]
fn a_file_is_replaced_whole_with_the_mode_that_is_wanted() {
    let (temporary, folder) = folder();
    let at = temporary.path().join("a");
    folder.write(name("a"), &Wanted::private(b"one")).expect("written");
    assert_eq!(fs::metadata(&at).expect("there").mode() & 0o7777, 0o600);
    fs::write(temporary.path().join(".a.postern-new"), "left by a process that was killed").expect("ours");
    folder.write(name("a"), &Wanted { mode: 0o644, ..Wanted::private(b"two") }).expect("written");
    assert_eq!(
        (fs::read(&at).expect("there"), fs::metadata(&at).expect("there").mode() & 0o7777),
        (b"two".to_vec(), 0o644)
    );
    assert_eq!(folder.names().expect("ours"), ["a"]);
}

#[test]
fn two_processes_do_not_write_one_file_at_once() {
    let (temporary, folder) = folder();
    folder.write(name("a"), &Wanted::private(b"one")).expect("written");
    let other = File::create(temporary.path().join(".a.postern-new")).expect("ours");
    flock(&other, FlockOperation::NonBlockingLockExclusive).expect("free");
    let error = folder.write(name("a"), &Wanted::private(b"two")).expect_err("another one writes");
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    assert_eq!(fs::read(temporary.path().join("a")).expect("there"), b"one");
    drop(other);
    folder.write(name("a"), &Wanted::private(b"two")).expect("it has ended");
}

#[test]
fn a_file_for_output_is_private_and_is_no_link_of_another_user() {
    use std::io::Write;
    let (temporary, _) = folder();
    let at = temporary.path().join("log");
    output(&at, false).expect("made").write_all(b"one").expect("ours");
    output(&at, true).expect("ours").write_all(b" two").expect("ours");
    assert_eq!(fs::read(&at).expect("there"), b"one two");
    assert_eq!(fs::metadata(&at).expect("there").mode() & 0o7777, 0o600);
    output(&at, false).expect("ours");
    assert!(fs::read(&at).expect("there").is_empty(), "it begins anew");
    let target = temporary.path().join("target");
    fs::write(&target, "of root").expect("ours");
    symlink(&target, temporary.path().join("link")).expect("ours");
    output(&temporary.path().join("link"), true).expect("a link in a folder of this user alone counts");
    fs::set_permissions(temporary.path(), Permissions::from_mode(0o1777)).expect("ours");
    assert!(output(&temporary.path().join("link"), false).is_err(), "any user may have made it");
    assert_eq!(fs::read(&target).expect("there"), b"of root");
    assert!(output(temporary.path(), false).is_err());
    output(Path::new("/dev/null"), false).expect("a device of root");
}

#[test]
fn devices_and_pipes_are_neither_replaced_nor_waited_for() {
    let (temporary, folder) = folder();
    let made =
        rustix::fs::mknodat(&folder, "pipe", rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0);
    made.expect("ours");
    assert!(folder.write(name("pipe"), &Wanted::private(b"")).is_err());
    assert!(folder.read(name("pipe"), 10).is_err());
    fs::write(temporary.path().join("large"), [0; 11]).expect("ours");
    assert!(folder.read(name("large"), 10).is_err());
    assert_eq!(folder.read(name("large"), 11).expect("it fits").0.len(), 11);
    // What a process of another user may have put in the way.
    symlink("/nonexistent", temporary.path().join(".a.postern-new")).expect("ours");
    folder.write(name("a"), &Wanted::private(b"one")).expect("the link is removed");
    assert!(!temporary.path().join("a").is_symlink());
}

#[test]
fn links_count_only_in_folders_that_nobody_else_can_change() {
    let (temporary, _) = folder();
    let at = |path: &str| temporary.path().join(path);
    for inside in ["ours", "theirs", "target"] {
        fs::create_dir(at(inside)).expect("ours");
    }
    fs::set_permissions(at("theirs"), Permissions::from_mode(0o777)).expect("ours");
    for inside in ["ours", "theirs"] {
        symlink(at("target"), at(inside).join("link")).expect("ours");
        symlink("../target/file", at(inside).join("file")).expect("ours");
    }
    let private = Wanted::private(b"new");
    Folder::open(&at("ours/link")).and_then(|it| it.write(name("a"), &private)).expect("root made the link");
    write(&at("ours/file"), &private).expect("root made the link");
    assert!(at("target/a").exists() && at("ours/file").is_symlink());
    assert_eq!(fs::read(at("target/file")).expect("there"), b"new");
    assert!(Folder::open(&at("theirs/link")).is_err());
    assert!(Folder::make(&at("theirs/link/below"), 0o755).is_err());
    assert!(write(&at("theirs/file"), &Wanted::private(b"other")).is_err());
    assert!(read(&at("theirs/file"), 10).is_err());
    assert_eq!(fs::read(at("target/file")).expect("there"), b"new");
    let theirs = Folder::open(&at("theirs")).expect("it is a folder");
    assert!(theirs.folder(name("link")).is_err() && theirs.read(name("file"), 10).is_err());
}

#[test]
fn what_a_link_leads_to_is_not_removed() {
    let (temporary, folder) = folder();
    for inside in ["old/inner", "other"] {
        fs::create_dir_all(temporary.path().join(inside)).expect("ours");
    }
    fs::write(temporary.path().join("other/file"), "").expect("ours");
    symlink("../../other", temporary.path().join("old/inner/link")).expect("ours");
    folder.remove_all(name("old")).and_then(|()| folder.remove_all(name("none"))).expect("removed");
    assert_eq!(folder.names().expect("ours"), ["other"]);
    assert!(temporary.path().join("other/file").exists());
}

#[test]
fn folders_are_made_with_their_mode_whatever_the_umask() {
    let (temporary, _) = folder();
    let before = rustix::process::umask(Mode::from_raw_mode(0o077));
    let made = Folder::make(&temporary.path().join("a/b"), 0o700);
    rustix::process::umask(before);
    assert_eq!(made.expect("made").metadata().expect("ours").mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(temporary.path().join("a")).expect("made").mode() & 0o7777, 0o755);
    assert!(
        Folder::open(&temporary.path().join("none"))
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    );
    assert_eq!(normalized(Path::new("/a/./b/../c//d")).expect("absolute"), Path::new("/a/c/d"));
}
