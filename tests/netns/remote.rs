//! Configurations on other machines: a real SSH server and the scp of this machine, curl and a small server of HTTP, age.

use crate::shell::{program, said};
use crate::support::{PATIENCE, postern, skip};
use crate::transactions::Router;
use lab::{has_program, wait_until};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// What runs a program as root whose home is a folder of the test: ssh takes it from the list of users, and not from HOME.
const WITH_USERS: &str = "mount --bind \"$1/passwd\" /etc/passwd && mount --bind \"$1/shadow\" /etc/shadow && shift && exec \"$@\"";
/// The same for the server, which wants a folder of its own in /run.
const WITH_RUN: &str = "mount --bind \"$1/passwd\" /etc/passwd && mount --bind \"$1/shadow\" /etc/shadow && \
                        mount -t tmpfs none /run && mkdir -m 755 /run/sshd && shift && exec \"$@\"";

/// Programs that `make setup` brings.
fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/remote")
}

/// An SSH server with a folder for files, and a home with a key for it.
struct Server {
    folder: TempDir,
    port: u16,
    child: Child,
}

impl Server {
    fn start() -> Option<Self> {
        let missing = ["scp", "ssh-keygen", "unshare"].into_iter().find(|program| !has_program(program));
        // Since OpenSSH 9.8 the server is several programs, which it looks for at their installed places.
        let is_whole = peers().join("bin/sshd").is_file() && !peers().join("bin/sshd-session").exists();
        if missing.is_some() || !is_whole || !rustix::process::geteuid().is_root() {
            skip("needs root, an SSH server in .peers (make setup), and openssh-client");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().join(path);
        let here = folder.path().display();
        for inside in ["home/.ssh", "files", "server"] {
            fs::create_dir_all(at(inside)).expect("ours");
        }
        fs::set_permissions(at("home/.ssh"), Permissions::from_mode(0o700)).expect("ours");
        for key in ["server/key", "home/.ssh/id_ed25519"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(key))
                .status();
            assert!(made.expect("ssh-keygen is there").success());
        }
        fs::copy(at("home/.ssh/id_ed25519.pub"), at("server/authorized")).expect("ours");
        let users =
            format!("root:x:0:0::{here}/home:/bin/sh\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n");
        fs::write(at("passwd"), users).expect("ours");
        fs::write(at("shadow"), "root::19000:0:99999:7:::\n").expect("ours");
        // Nobody else takes the port between this and the server's start, usually; then the test waits and fails.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let text = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {here}/server/key\nAuthorizedKeysFile {here}/server/authorized\n\
             PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n"
        );
        fs::write(at("server/config"), text).expect("ours");
        let log = File::create(at("server/log")).expect("ours");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", WITH_RUN, "sh"]).arg(folder.path());
        command
            .arg(peers().join("lib/loader"))
            .arg("--library-path")
            .arg(peers().join("lib"))
            .arg(peers().join("bin/sshd"));
        command.args(["-r", "-D", "-e", "-f"]).arg(at("server/config"));
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("unshare is there");
        let server = Self { folder, port, child };
        wait_until(PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok())
            .unwrap_or_else(|error| panic!("{error}: {}", server.read("server/log")));
        server.trust();
        Some(server)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    /// Knows the host key.
    fn trust(&self) {
        let key = self.read("server/key.pub");
        let key: Vec<&str> = key.split(' ').take(2).collect();
        fs::write(self.at("home/.ssh/known_hosts"), format!("[127.0.0.1]:{} {}\n", self.port, key.join(" ")))
            .expect("ours");
    }

    fn distrust(&self) {
        fs::write(self.at("home/.ssh/known_hosts"), "").expect("ours");
    }

    fn url(&self, path: &str) -> String {
        format!("scp://root@127.0.0.1:{}{}", self.port, self.at(path).display())
    }

    /// A command by the root whose home has the key.
    fn by_its_root(&self, command: &Command) -> Command {
        // Without a terminal, at which ssh would ask.
        let mut wrapped = Command::new("setsid");
        wrapped
            .args(["--wait", "unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_USERS, "sh"])
            .arg(self.folder.path());
        wrapped
            .arg(command.get_program())
            .args(command.get_args())
            .env_remove("SUDO_USER")
            .stdin(Stdio::null());
        wrapped
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configured(router: &Router, lines: &[&str]) -> Command {
    let lines = lines.iter().flat_map(|line| ["-c", *line]);
    program(router, &["configure"].into_iter().chain(lines).collect::<Vec<_>>())
}

#[test]
fn configurations_are_saved_and_loaded_by_scp() {
    let Some(server) = Server::start() else { return };
    let Some(router) = Router::new() else { return };
    let run = |lines: &[&str]| -> Output {
        server.by_its_root(&configured(&router, lines)).output().expect("unshare is there")
    };
    let url = server.url("files/gate.boot");
    let text = said(&run(&[&format!("save {url}")]), 0);
    assert!(text.contains(&format!("Saving configuration to '{url}'...\nDone\n")), "{text}");
    let file = server.read("files/gate.boot");
    assert!(file.starts_with("interfaces {\n") && file.contains(&router.keys[0].0), "{file}");
    let mode = fs::metadata(server.at("files/gate.boot")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has secrets");
    fs::write(server.at("files/more.conf"), "set interfaces wireguard wg0 mtu 1300\n").expect("ours");
    said(&run(&[&format!("merge {}", server.url("files/more.conf")), "commit"]), 0);
    assert_eq!(router.mtu(), 1300);
    said(&run(&[&format!("load {url}"), "commit"]), 0);
    assert_ne!(router.mtu(), 1300);
    let text = said(&run(&[&format!("load {}", server.url("files/nothing"))]), 1);
    assert!(text.contains("No such file"), "{text}");
    // A server with an unknown host key is refused, and gets nothing.
    server.distrust();
    let text = said(&run(&[&format!("save {}", server.url("files/other.boot"))]), 1);
    assert!(text.contains("ost key verification failed"), "{text}");
    assert!(!server.at("files/other.boot").exists());
}

/// Paths, and what was put there.
type Files = Mutex<Vec<(String, Vec<u8>)>>;

/// A server of HTTP that keeps what is put there.
struct Web {
    port: u16,
    files: Arc<Files>,
}

impl Web {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let files = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&files);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = Self::answer(stream, &kept);
            }
        });
        Self { port, files }
    }

    fn answer(mut stream: TcpStream, files: &Files) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_ascii_lowercase());
        }
        let mut words = lines.first().map(String::as_str).unwrap_or_default().split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
        let length =
            lines.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut files = files.lock().expect("whole");
        let (status, body) = if method == "put" {
            if lines.iter().any(|line| line.starts_with("expect: 100")) {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            files.push((path, body));
            ("201 Created", Vec::new())
        } else {
            match files.iter().find(|(known, _)| *known == path) {
                Some((_, body)) => ("200 OK", body.clone()),
                None => ("404 Not Found", b"set system open-at-exit\n".to_vec()),
            }
        };
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len())?;
        stream.write_all(&body)
    }
}

#[test]
fn configurations_are_saved_and_loaded_by_http() {
    if !has_program("curl") {
        return skip("needs curl");
    }
    let Some(router) = Router::new() else { return };
    let web = Web::start();
    let url = |path: &str| format!("http://127.0.0.1:{}/{path}", web.port);
    let run = |lines: &[&str]| configured(&router, lines).stdin(Stdio::null()).output().expect("it runs");
    web.files
        .lock()
        .expect("whole")
        .push(("/more.conf".to_owned(), b"set interfaces wireguard wg0 mtu 1300\n".to_vec()));
    said(&run(&[&format!("merge {}", url("more.conf")), "commit", &format!("save {}", url("gate.conf"))]), 0);
    assert_eq!(router.mtu(), 1300);
    let files = web.files.lock().expect("whole").clone();
    let (_, saved) = files.iter().find(|(path, _)| path == "/gate.conf").expect("it was put");
    assert!(String::from_utf8_lossy(saved).contains("wg0 mtu 1300"));
    // What the server says of an error is no configuration.
    let text = said(&run(&[&format!("load {}", url("nothing"))]), 1);
    assert!(text.contains("404"), "{text}");
    let text = said(&run(&["load http://user:hunter2@127.0.0.1/a"]), 1);
    assert!(text.contains("fix: for scp use a key") && !text.contains("hunter2@"), "{text}");
}

/// Runs a program at a terminal of its own, and types a line whenever one of these texts is shown.
fn at_a_terminal(command: &Command, answers: &[(&str, &str)]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("it is ours");
    let name = ptsname(&keyboard, Vec::new()).expect("a name").into_string().expect("text");
    let open = || File::options().read(true).write(true).open(&name).expect("it is there");
    let mut login = Command::new("setsid");
    login
        .args(["--ctty", "--wait"])
        .arg(command.get_program())
        .args(command.get_args())
        .env_remove("POSTERN_PASSPHRASE");
    let mut child = login.stdin(open()).stdout(open()).stderr(open()).spawn().expect("setsid is there");
    drop(login);
    let screen = Arc::new(Mutex::new(String::new()));
    let (mut output, shown) = (File::from(keyboard.try_clone().expect("a descriptor")), Arc::clone(&screen));
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut bytes) {
            shown.lock().expect("whole").push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    });
    let mut keyboard = File::from(keyboard);
    let text = || screen.lock().expect("whole").clone();
    let mut seen = 0;
    for (prompt, line) in answers {
        wait_until(PATIENCE, || text()[seen..].contains(prompt))
            .unwrap_or_else(|error| panic!("{prompt}: {error}: {}", text()));
        seen = text().len();
        keyboard.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }
    wait_until(PATIENCE, || child.try_wait().is_ok_and(|status| status.is_some()))
        .unwrap_or_else(|error| panic!("{error}: {}", text()));
    // All that it has shown: the terminal is closed now.
    reader.join().expect("it reads");
    text()
}

#[test]
fn backups_are_read_by_age_and_those_of_age_are_read() {
    let age = peers().join("bin/age");
    if !age.is_file() {
        return skip("needs age in .peers (make setup)");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("postern.conf"), "set system allow-empty\n").expect("ours");
    let places = [format!("--config={}", at("postern.conf")), format!("--state={}", at("state"))];
    let ours = |words: &[&str]| {
        let mut command = Command::new(postern());
        command.arg(words[0]).args(&places).args(&words[1..]);
        command
    };
    let secret = "pass phrase \u{e4}";
    let shown = at_a_terminal(
        &ours(&["backup", "--revisions", "0", &at("gate.backup")]),
        &[("Passphrase: ", secret), ("The same again: ", secret)],
    );
    assert!(shown.contains("1 file, 0 revisions") && !shown.contains(secret), "{shown}");
    let mut theirs = Command::new(&age);
    theirs.args(["--decrypt", "--output", &at("theirs.tar"), &at("gate.backup")]);
    let shown = at_a_terminal(&theirs, &[("Enter passphrase", secret)]);
    let listed = Command::new("tar")
        .args(["-xOf", &at("theirs.tar"), "manifest.json"])
        .output()
        .expect("tar is there");
    assert!(listed.status.success(), "{shown}");
    assert!(String::from_utf8_lossy(&listed.stdout).contains("postern.conf\""));
    let mut theirs = Command::new(&age);
    theirs.args(["--passphrase", "--output", &at("theirs.backup"), &at("theirs.tar")]);
    at_a_terminal(&theirs, &[("Enter passphrase", secret), ("Confirm passphrase", secret)]);
    fs::write(at("postern.conf"), "set system open-at-exit\n").expect("ours");
    let shown = at_a_terminal(
        &ours(&["restore", &at("theirs.backup")]),
        &[("Passphrase: ", secret), ("Replace? [y/N] ", "y")],
    );
    assert!(shown.contains("restored, and not in force"), "{shown}");
    assert_eq!(fs::read_to_string(at("postern.conf")).expect("there"), "set system allow-empty\n");
    let shown = at_a_terminal(
        &ours(&["backup", &at("other.backup")]),
        &[("Passphrase: ", secret), ("The same again: ", "another")],
    );
    assert!(shown.contains("the passphrases differ") && !Path::new(&at("other.backup")).exists(), "{shown}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

const ARCHIVE: &str = "set system config-management commit-archive location";

#[test]
fn copies_of_commits_go_to_a_folder_and_to_a_machine_that_is_known() {
    let Some(server) = Server::start() else { return };
    let Some(mut router) = Router::stopped() else { return };
    let copies = server.at("copies");
    fs::create_dir(&copies).expect("ours");
    let run = ["run", "--copies", &copies.display().to_string()];
    router.site.start_with(&mut router.lab, &run, "info", PATIENCE).expect("it starts");
    router.commits(&[&format!("{ARCHIVE} {}", copies.display())]);
    let shown = || said(&program(&router, &["show", "system", "commit"]).output().expect("it runs"), 0);
    wait_until(PATIENCE, || shown().contains("up to date, with revision 2"))
        .unwrap_or_else(|error| panic!("{error}: {}", shown()));
    let first = names(&copies);
    assert!(first.len() == 1 && first[0].starts_with("config.boot-"), "{first:?}");
    // The network of this daemon has no such machine: the commit succeeds, and the copy waits.
    let url = server.url("files");
    router.commits(&[&format!("{ARCHIVE} {url}"), "set interfaces wireguard wg0 mtu 1300"]);
    assert_eq!(router.mtu(), 1300);
    let waits = format!("archive {url}: 1 copy waiting: ");
    wait_until(PATIENCE, || shown().contains(&waits)).unwrap_or_else(|error| panic!("{error}: {}", shown()));
    assert!(
        shown().contains("up to date, with revision 3"),
        "one location does not wait for another: {}",
        shown()
    );
    assert_eq!(names(&server.at("files")), [""; 0]);
    // A folder that root has not allowed.
    let elsewhere = server.at("server").display().to_string();
    router.commits(&[&format!("{ARCHIVE} {elsewhere}")]);
    let refused =
        format!("archive {elsewhere}: 1 copy waiting: {elsewhere} is in none of the folders for copies");
    wait_until(PATIENCE, || shown().contains(&refused))
        .unwrap_or_else(|error| panic!("{error}: {}", shown()));
    assert!(names(&server.at("server")).iter().all(|name| !name.starts_with("config.boot-")));
    router.commits(&[&format!("delete {} {elsewhere}", &ARCHIVE[4..])]);
    // The same by a root who has the network and a key, and does not know the server at first.
    fs::create_dir(server.at("state")).expect("ours");
    std::os::unix::fs::symlink(router.site.state.join("archive"), server.at("state/archive")).expect("ours");
    server.distrust();
    let mut archiver = Command::new(postern());
    archiver.args(["archiver", "--until-end-of-input", "--state"]).arg(server.at("state"));
    archiver.arg("--status").arg(server.at("status"));
    let mut archiver = server.by_its_root(&archiver).stdin(Stdio::piped()).spawn().expect("unshare is there");
    // During the next attempt the status has no cause: both are in one status.
    let keyscan = format!("ssh-keyscan -p {} 127.0.0.1", server.port);
    let is_unknown =
        |status: String| status.contains("the host key is not known") && status.contains(&keyscan);
    wait_until(PATIENCE, || is_unknown(server.read("status")))
        .unwrap_or_else(|error| panic!("{error}: {}", server.read("status")));
    server.trust();
    let copied = |count: usize| {
        let files = || names(&server.at("files"));
        wait_until(PATIENCE, || files().len() == count).unwrap_or_else(|error| {
            panic!("{error}: {:?} {} {}", files(), server.read("status"), server.read("server/log"))
        });
        files()
    };
    let sent = copied(1);
    // A file is there before its text.
    let sent_text = || server.read(&format!("files/{}", sent[0]));
    let _ = wait_until(PATIENCE, || sent_text().contains(&router.keys[0].0));
    let text = sent_text();
    assert!(text.starts_with("interfaces {\n") && text.contains(&router.keys[0].0), "{text}");
    let mode = fs::metadata(server.at("files").join(&sent[0])).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    router.commits(&["set interfaces wireguard wg0 mtu 1310"]);
    copied(2);
    drop(archiver.stdin.take());
    wait_until(PATIENCE, || archiver.try_wait().is_ok_and(|status| status.is_some()))
        .expect("it ends with its input");
    assert!(!server.at("status").exists());
}
