//! Archives in temporary folders.

use super::*;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("postern-archive-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn open(&self) -> Archive {
        Archive::open(&self.0).expect("it is ours")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join("archive").join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lines(number: u64) -> Text {
    let mut text = Text::default();
    writeln!(text, "set interfaces wireguard wg0 mtu {number}").expect("it grows");
    text
}

fn add(archive: &Archive, number: u64, kept: usize) -> u64 {
    let header = Header { user: "root".to_owned(), ..Header::default() };
    let pending = archive.prepare(header, &lines(number)).expect("there is room");
    archive.publish(pending, kept, 100).expect("there is room").revision
}

fn numbers(archive: &Archive) -> Vec<u64> {
    archive.list().into_iter().map(|(number, _)| number).collect()
}

#[test]
fn revisions_are_there_again_after_a_restart_and_only_their_owner_reads_them() {
    let folder = Folder::new("restart");
    let archive = folder.open();
    assert_eq!((add(&archive, 1400, 10), add(&archive, 1300, 10)), (1, 2));
    archive.confirm(1).expect("there is room");
    assert!(matches!(Archive::open(&folder.0), Err(ArchiveError::Busy(_))), "one daemon a folder");
    drop(archive);
    let archive = folder.open();
    assert_eq!(numbers(&archive), [2, 1]);
    assert_eq!(archive.read(1).expect("it is whole").1.as_str(), lines(1400).as_str());
    assert!(matches!(archive.entry(1), Some(Entry::Whole { is_confirmed: true, .. })));
    assert!(matches!(archive.entry(2), Some(Entry::Whole { is_confirmed: false, .. })));
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder.file("00000001.conf")), 0o600);
    assert_eq!(mode(&folder.0.join("archive")), 0o700);
}

#[test]
fn what_was_not_published_does_not_count() {
    let folder = Folder::new("pending");
    let archive = folder.open();
    add(&archive, 1400, 10);
    drop(archive.prepare(Header::default(), &lines(1300)).expect("there is room"));
    assert!(!folder.file("pending").exists(), "it was refused");
    std::mem::forget(archive.prepare(Header::default(), &lines(1300)).expect("there is room"));
    assert!(folder.file("pending").exists(), "it was killed");
    drop(archive);
    let archive = folder.open();
    assert_eq!(numbers(&archive), [1]);
    assert!(!folder.file("pending").exists());
}

#[test]
fn the_oldest_go_first_and_numbers_are_not_used_again() {
    let folder = Folder::new("oldest");
    let archive = folder.open();
    for number in 1..=5 {
        assert_eq!(add(&archive, 1000 + number, 3), number);
    }
    assert_eq!(numbers(&archive), [5, 4, 3]);
    drop(archive);
    let archive = folder.open();
    assert_eq!((add(&archive, 1006, 3), numbers(&archive)), (6, vec![6, 5, 4]));
}

fn add_to_confirm(archive: &Archive, number: u64, kept: usize, now: u64) -> Header {
    let confirm = Some(revision::Deadline { minutes: 2, deadline: 0, back_to: number - 1 });
    let header = Header { confirm, comment: Some("ü".to_owned()), ..Header::default() };
    let pending = archive.prepare(header, &lines(number)).expect("there is room");
    archive.publish(pending, kept, now).expect("there is room")
}

#[test]
fn a_commit_that_may_be_undone_removes_no_older_one() {
    let folder = Folder::new("back");
    let archive = folder.open();
    add(&archive, 1400, 2);
    add(&archive, 1350, 2);
    add_to_confirm(&archive, 1300, 1, 100);
    assert_eq!(numbers(&archive), [3, 2, 1]);
    add(&archive, 1200, 1);
    assert_eq!(numbers(&archive), [4]);
}

#[test]
fn the_time_until_a_commit_must_be_confirmed_begins_when_it_is_in_force() {
    let folder = Folder::new("deadline");
    let archive = folder.open();
    add(&archive, 1400, 10);
    // It took until then to apply it.
    let published = add_to_confirm(&archive, 1300, 10, 5000);
    let expected = Some(revision::Deadline { minutes: 2, deadline: 5120, back_to: 1299 });
    assert_eq!(published.confirm, expected);
    drop(archive);
    let archive = folder.open();
    let (header, text) = archive.read(2).expect("it is whole");
    assert_eq!((header.confirm, text.as_str()), (expected, lines(1300).as_str()));
}

#[test]
fn what_was_replaced_by_something_without_revision_is_known_after_a_restart() {
    let folder = Folder::new("replaced");
    let archive = folder.open();
    archive.replace_newest().expect("there is nothing");
    add(&archive, 1400, 10);
    add(&archive, 1300, 10);
    let replaced = |archive: &Archive, number| match archive.entry(number) {
        Some(Entry::Whole { is_replaced, .. }) => is_replaced,
        _ => panic!("it is whole"),
    };
    archive.replace_newest().expect("it is ours");
    archive.replace_newest().expect("it is replaced already");
    assert_eq!((replaced(&archive, 1), replaced(&archive, 2)), (false, true));
    drop(archive);
    let archive = folder.open();
    assert_eq!((replaced(&archive, 1), replaced(&archive, 2)), (false, true));
    assert_eq!(archive.read(2).expect("it is whole").1.as_str(), lines(1300).as_str());
    assert_eq!(archive.of_text(&revision::digest(lines(1300).bytes())), Some(2));
    assert_eq!((add(&archive, 1200, 1), numbers(&archive)), (3, vec![3]));
    assert!(!folder.file("00000002.replaced").exists(), "it was the oldest");
}

#[test]
fn a_file_that_cannot_be_read_or_has_a_huge_number_does_not_cost_the_others() {
    let folder = Folder::new("unreadable");
    let archive = folder.open();
    add(&archive, 1400, 10);
    drop(archive);
    std::fs::create_dir(folder.file("00000002.conf")).expect("it is ours");
    std::fs::write(folder.file(&format!("{}.conf", u64::MAX)), "").expect("it is ours");
    std::fs::write(folder.file("pending"), "").expect("it is ours");
    let archive = folder.open();
    assert!(matches!(archive.entry(2), Some(Entry::Corrupt(_))));
    std::fs::write(folder.file("pending"), "").expect("it is ours");
    assert_eq!((add(&archive, 1300, 10), archive.read(1).is_ok()), (3, true));
}

#[test]
fn a_corrupt_file_is_set_aside_and_not_overwritten() {
    let folder = Folder::new("corrupt");
    let archive = folder.open();
    for mtu in [1400, 1300, 1200] {
        add(&archive, mtu, 10);
    }
    drop(archive);
    let damage = |name: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(folder.file(name)).expect("it is there");
        assert!(text.contains(from));
        std::fs::write(folder.file(name), text.replace(from, to)).expect("it is ours");
    };
    damage("00000002.conf", "mtu 1300", "mtu 1301");
    damage("00000003.conf", "{", "");
    let archive = folder.open();
    assert!(matches!(archive.entry(3), Some(Entry::Corrupt(_))), "noticed at the start");
    assert!(folder.file("00000003.conf.corrupt").exists());
    let error = archive.read(2).expect_err("noticed when it is read").to_string();
    assert!(error.contains("00000002.conf.corrupt"), "{error}");
    assert!(matches!(archive.read(2), Err(ArchiveError::Aside(2, _))));
    assert_eq!((add(&archive, 1100, 10), archive.read(1).is_ok()), (4, true));
    drop(archive);
    let archive = folder.open();
    assert_eq!(numbers(&archive), [4, 3, 2, 1]);
    assert!(matches!(archive.entry(2), Some(Entry::Corrupt(_))));
}

#[test]
fn a_commit_that_deletes_much_is_read_again() {
    let folder = Folder::new("long");
    let archive = folder.open();
    let deleted =
        (0..3000).map(|number| format!("interfaces wireguard wg0 peer some-branch-{number}")).collect();
    let header = Header { deleted, ..Header::default() };
    let pending = archive.prepare(header, &lines(1400)).expect("there is room");
    archive.publish(pending, 10, 100).expect("there is room");
    drop(archive);
    assert_eq!(folder.open().read(1).expect("it is whole").1.as_str(), lines(1400).as_str());
}

#[test]
fn a_revision_is_not_confirmed_because_one_of_its_number_once_was() {
    let folder = Folder::new("again");
    let archive = folder.open();
    std::fs::write(folder.file("00000001.confirmed"), "").expect("it is ours");
    add(&archive, 1400, 10);
    drop(archive);
    assert!(matches!(folder.open().entry(1), Some(Entry::Whole { is_confirmed: false, .. })));
}
