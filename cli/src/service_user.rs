//! The user to which a daemon started by root switches, and the folders that this user needs.

use crate::{Failure, engines};
use disk::Folder;
use gateway::api;
use gateway::wireguard::uapi_server;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::OsStr;
use std::fs::{DirBuilder, DirEntry, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown, fchown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The default folder of revisions.
pub(crate) const STATE: &str = "/var/lib/postern";

/// The user to switch to without `--user`, if it exists.
const DEFAULT: &str = "postern";
/// The sticky bit: in a folder that the group may write, only the owner of a file may remove it.
const SHARED: u32 = 0o1775;
/// Folders within the state folder.
const DEEPEST: usize = 2;
/// A daemon listens on a socket within this time after it made the file.
const STARTING: Duration = Duration::from_secs(10);

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl User {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Its group.
    pub(crate) fn gid(&self) -> u32 {
        self.gid
    }
}

/// The user to switch to: the requested one, else `postern` if it exists. None if this process is not root or is to stay
/// root.
pub(crate) fn wanted(asked: Option<&str>) -> Result<Option<User>, Failure> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = find(&users, asked.unwrap_or(DEFAULT));
    match (user, asked) {
        (None, Some(name)) => {
            Err(format!("there is no user {name:?} in /etc/passwd\n  fix: {}", how_to_make(name)).into())
        }
        (Some(user), _) if user.uid == geteuid().as_raw() => Ok(None),
        (Some(user), Some(name)) if !geteuid().is_root() => {
            let we = geteuid().as_raw();
            Err(format!("only root can become {name}: this is user {we}, that is user {}", user.uid).into())
        }
        (user, _) => Ok(user.filter(|_| geteuid().is_root())),
    }
}

/// Logs the user that the daemon runs as.
pub(crate) fn report(user: Option<&User>) {
    match user {
        Some(user) => tracing::info!("runs as user {}", user.name),
        None if geteuid().is_root() => {
            tracing::info!("runs as root, with few rights\n  fix: {}", how_to_make(DEFAULT));
        }
        None => {}
    }
}

/// The user and the group that a file of OpenVPN names; `None` if neither is named. It has no folders of ours.
pub(crate) fn named(user: Option<&str>, group: Option<&str>) -> Result<Option<User>, Failure> {
    let Some(name) = user.or(group) else { return Ok(None) };
    let own = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    let of_user = match user {
        Some(user) => by_name(user)?,
        None => User { name: name.to_owned(), uid: own.0, gid: own.1 },
    };
    let gid = group.map(group_by_name).transpose()?.unwrap_or(of_user.gid);
    let wanted = User { gid, ..of_user };
    let is_other = (wanted.uid, wanted.gid) != own;
    if is_other && !geteuid().is_root() {
        return Err(format!("only root can become {name}: this is user {}", own.0).into());
    }
    Ok(is_other.then_some(wanted))
}

/// The ids of a user and of a group.
#[cfg(feature = "openvpn")]
pub(crate) fn ids(user: Option<&str>, group: Option<&str>) -> Result<(Option<u32>, Option<u32>), Failure> {
    let user = user.map(by_name).transpose()?;
    Ok((user.map(|user| user.uid), group.map(group_by_name).transpose()?))
}

fn by_name(name: &str) -> Result<User, Failure> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let missing = || format!("there is no user {name:?} in /etc/passwd\n  fix: {}", how_to_make(name));
    Ok(find(&users, name).ok_or_else(missing)?)
}

fn group_by_name(name: &str) -> Result<u32, Failure> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let missing = || format!("there is no group {name:?} in /etc/group\n  fix: groupadd --system {name}");
    Ok(find_group(&groups, name).ok_or_else(missing)?)
}

/// Finds a group in a text in the format of group(5).
fn find_group(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        fields.next().filter(|&found| found == name)?;
        fields.nth(1)?.parse().ok()
    })
}

fn how_to_make(name: &str) -> String {
    format!("useradd --system --no-create-home --shell /usr/sbin/nologin {name}")
}

/// Finds a user in a text in the format of passwd(5).
fn find(users: &str, name: &str) -> Option<User> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next().filter(|&found| found == name)?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(User { name: found.to_owned(), uid, gid })
    })
}

/// Switches the calling thread, and the threads that it starts later, to this user. Keeps the permitted capabilities and drops
/// the supplementary groups.
pub(crate) fn become_user(user: &User) -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let changed = set_keep_capabilities(true)
        .and_then(|()| set_thread_groups(&[]))
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid));
    let fix = "fix: start it with CAP_SETUID and CAP_SETGID, or with --user root";
    changed.map_err(|error| format!("user {}: {error}\n  {fix}", user.name).into())
}

/// Gives the user access to our folders. The socket folders are shared with daemons that run as root, and neither user can
/// remove the other's sockets. The cache folder becomes the user's own.
pub(crate) fn share_folders(user: &User) {
    for socket in [api::path(""), uapi_server::path("")] {
        let folder = socket.parent().unwrap_or(Path::new("/"));
        refuse(folder, share(folder, user));
    }
    let cache = Path::new(engines::CACHE).parent().unwrap_or(Path::new("/"));
    refuse(cache, make(cache).and_then(|()| chown(cache, Some(user.uid), Some(user.gid))));
}

/// Makes the folder of revisions, and the files that a daemon of another user has left in it, the user's own; root's, if there is
/// no user. Other users may not read it. The user that had the folder may have put links there: none is followed.
pub(crate) fn give_state(path: &Path, user: Option<&User>) {
    let (uid, gid) = user.map_or((0, 0), |user| (user.uid, user.gid));
    // The folder of a file in ours must be reached too.
    if let Some(around) = path.parent().filter(|around| *around == Path::new(STATE)) {
        let made = Folder::make(around, 0o700);
        // Without a user it may be that of another daemon.
        refuse(around, made.and_then(|folder| if user.is_some() { give(&folder, uid, gid) } else { Ok(()) }));
    }
    let archive = path.join("archive");
    let made = Folder::make(path, 0o700).and_then(|folder| {
        give(&folder, uid, gid)?;
        folder.make_folder(OsStr::new("archive"), 0o700).map(|archive| (folder, archive))
    });
    match made {
        Ok((folder, _)) => give_inside(&folder, path, uid, gid, DEEPEST),
        Err(error) => refuse(&archive, Err(error)),
    }
}

fn give(folder: &Folder, uid: u32, gid: u32) -> io::Result<()> {
    fchown(folder, Some(uid), Some(gid))
}

/// Makes all files and folders of a folder the user's own.
fn give_inside(folder: &Folder, path: &Path, uid: u32, gid: u32, depth: usize) {
    for name in folder.names().unwrap_or_default() {
        let path = path.join(&name);
        match folder.folder(&name) {
            Ok(inner) if depth > 0 => {
                refuse(&path, give(&inner, uid, gid));
                give_inside(&inner, &path, uid, gid, depth - 1);
            }
            Ok(_) => {}
            Err(_) => refuse(&path, give_file(folder, &name, uid, gid)),
        }
    }
}

/// Makes a file the user's own, unless it has a second name: that may be in a folder of another user.
fn give_file(folder: &Folder, name: &OsStr, uid: u32, gid: u32) -> io::Result<()> {
    let file = folder.file(name)?;
    let there = file.metadata()?;
    if there.nlink() == 1 && there.uid() != uid {
        fchown(&file, Some(uid), Some(gid))?;
    }
    Ok(())
}

fn refuse(folder: &Path, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!("{}: it cannot be shared: {error}", folder.display());
    }
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

fn share(folder: &Path, user: &User) -> io::Result<()> {
    make(folder)?;
    chown(folder, None, Some(user.gid))?;
    std::fs::set_permissions(folder, Permissions::from_mode(SHARED))?;
    // From now on only a socket's owner may remove it, so stale sockets are removed first.
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if is_stale(&entry)? {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether this is the socket of a daemon that has ended.
fn is_stale(entry: &DirEntry) -> io::Result<bool> {
    let there = entry.metadata()?;
    let is_old = || there.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > STARTING);
    let is_refused = || {
        UnixStream::connect(entry.path()).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    Ok(there.file_type().is_socket() && is_old() && is_refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_user_are_given_but_not_what_links_lead_to() {
        if !geteuid().is_root() {
            return;
        }
        let folder = std::env::temp_dir().join(format!("postern-given-{}", std::process::id()));
        let file = |name: &str| folder.join("archive").join(name);
        let victim = folder.join("archive/victim/file");
        std::fs::create_dir_all(folder.join("archive/victim")).expect("a folder");
        for path in [&folder.join("lock"), &file("1.conf"), &victim] {
            std::fs::write(path, "").expect("a file");
        }
        std::os::unix::fs::symlink(&victim, file("soft")).expect("a link");
        std::fs::hard_link(&victim, file("hard")).expect("a link");
        let user = User { name: String::new(), uid: 12_345, gid: 12_346 };
        give_state(&folder, Some(&user));
        let owner = |path: &Path| std::fs::metadata(path).expect("it is there").uid();
        let owners = [owner(&folder), owner(&folder.join("lock")), owner(&file("1.conf")), owner(&victim)];
        give_state(&folder, None);
        let after = owner(&file("1.conf"));
        std::fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!((owners, after), ([12_345, 12_345, 12_345, 0], 0));
    }

    #[test]
    fn a_link_in_place_of_a_folder_gives_nothing_of_other_users_away() {
        if !geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().expect("a folder");
        let [state, other] = ["state", "other"].map(|name| place.path().join(name));
        let user = User { name: String::new(), uid: 12_345, gid: 12_346 };
        give_state(&state, Some(&user));
        std::fs::create_dir_all(other.join("archive")).expect("ours");
        for name in ["shadow", "archive/1.conf"] {
            std::fs::write(other.join(name), "").expect("ours");
        }
        // What a daemon of that user could do.
        std::fs::remove_dir(state.join("archive")).expect("ours");
        std::os::unix::fs::symlink(&other, state.join("archive")).expect("ours");
        std::os::unix::fs::symlink(&other, state.join("below")).expect("ours");
        for state in [state.clone(), state.join("below")] {
            give_state(&state, Some(&user));
        }
        for name in ["", "shadow", "archive", "archive/1.conf"] {
            let owner = std::fs::metadata(other.join(name)).expect("there").uid();
            assert_eq!(owner, 0, "{name}");
        }
    }

    #[test]
    fn groups_are_found_by_their_whole_name() {
        let groups = "root:x:0:\nnogroup2:x:7:\nbroken:x:y\nnogroup:x:65534:a,b\n";
        assert_eq!(find_group(groups, "nogroup"), Some(65_534));
        assert_eq!((find_group(groups, "broken"), find_group(groups, "nogr")), (None, None));
        let refused = named(Some("no-such-user"), None).expect_err("there is none").to_string();
        assert!(refused.contains("fix: useradd"), "{refused}");
        let refused = named(None, Some("no-such-group")).expect_err("there is none").to_string();
        assert!(refused.contains("fix: groupadd"), "{refused}");
        assert_eq!(named(None, None).expect("nothing is asked"), None);
    }

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\npostern2:x:7:8::/:\nbroken:x:y\npostern:x:998:997::/:/bin/no\n";
        let found = find(users, "postern").expect("it is there");
        assert_eq!((found.uid, found.gid), (998, 997));
        assert_eq!((find(users, "broken"), find(users, "post")), (None, None));
        let refused = wanted(Some("no-such-user")).expect_err("there is none").to_string();
        assert!(refused.contains("fix: useradd"), "{refused}");
    }
}
