//! Carries one copy to a location, by a program of the machine; and says in a person's words why it could not.

use config::Text;
use config::schema::Location;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a copy may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seconds until a machine that does not answer is given up.
const CONNECT: &str = "15";
/// Bytes of a program's output that are looked at.
const SHOWN: u64 = 4096;

/// Why a copy did not arrive: what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) why: String,
    pub(super) fix: String,
}

impl Problem {
    fn new(why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { why: why.into(), fix: fix.into() }
    }
}

/// Sends a text to a location under a name. `ended` says when to give up.
pub(super) fn send(
    location: &Location,
    source: Option<IpAddr>,
    name: &str,
    text: &Text,
    ended: &dyn Fn() -> bool,
) -> Result<(), Problem> {
    if let Location::Folder(folder) = location {
        let path = Path::new(folder).join(name);
        return write(&path, text).map_err(|error| unwritable(&path, &error));
    }
    let folder =
        Temporary::new().map_err(|error| Problem::new(format!("no temporary folder: {error}"), ""))?;
    let file = folder.0.join(name);
    write(&file, text).map_err(|error| unwritable(&file, &error))?;
    let mut command = match location {
        Location::Url(url) => curl(url, source, name, &file),
        _ => scp(location, source, &file),
    };
    run(&mut command, ended).map_err(|said| explained(location, &said))
}

/// Writes a file in one step; one of that name is replaced.
fn write(path: &Path, text: &Text) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.new"));
    let _ = fs::remove_file(&new);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(&new, flags, Mode::from_raw_mode(0o600))?);
    let written = file
        .write_all(text.bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn unwritable(path: &Path, error: &io::Error) -> Problem {
    let folder = path.parent().unwrap_or(Path::new("/")).display();
    let fix = match error.kind() {
        io::ErrorKind::NotFound => format!("mkdir -p {folder}"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("make room in {folder}"),
        _ => format!("make {folder} writable for root"),
    };
    Problem::new(format!("{folder}: {error}"), fix)
}

fn scp(location: &Location, source: Option<IpAddr>, file: &Path) -> Command {
    let Location::Scp { user, host, port, folder } = location else { unreachable!("only called for scp") };
    let mut scp = Command::new("scp");
    // No question, no unknown host, no password.
    scp.args(["-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o"]);
    scp.arg(format!("ConnectTimeout={CONNECT}"));
    if let Some(port) = port {
        scp.arg("-P").arg(port.to_string());
    }
    if let Some(source) = source {
        scp.arg("-o").arg(format!("BindAddress={source}"));
    }
    let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
    // An IPv6 address stands in brackets.
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let folder = folder.trim_end_matches('/');
    scp.arg("--").arg(file).arg(format!("{user}{host}:{folder}/"));
    scp
}

fn curl(url: &str, source: Option<IpAddr>, name: &str, file: &Path) -> Command {
    let mut curl = Command::new("curl");
    curl.args([
        "--fail",
        "--silent",
        "--show-error",
        "--netrc-optional",
        "--proto",
        "=http,https,ftp",
        "--connect-timeout",
    ]);
    curl.arg(CONNECT);
    if let Some(source) = source {
        curl.arg("--interface").arg(source.to_string());
    }
    curl.arg("--upload-file").arg(file).arg("--").arg(format!("{}/{name}", url.trim_end_matches('/')));
    curl
}

/// Runs a program until its end; what it said if it failed.
fn run(command: &mut Command, ended: &dyn Fn() -> bool) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| format!("{program}: {error}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => failed(error),
    })?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if begun.elapsed() > PATIENCE || ended() {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(format!("{program}: it did not end within {} seconds", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    if let Some(errors) = child.stderr.take() {
        let _ = errors.take(SHOWN).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said).replace(|c: char| c.is_control() && c != '\n', " ");
    Err(if said.trim().is_empty() { format!("{program}: {status}") } else { said.trim().to_owned() })
}

/// What a program said, as a cause and what to do.
fn explained(location: &Location, said: &str) -> Problem {
    let last = said.lines().last().unwrap_or_default().trim().to_owned();
    if let Some(program) = said.strip_suffix(" is not installed") {
        let package = if program == "scp" { "openssh-client" } else { program };
        return Problem::new(said, format!("apt-get install {package}"));
    }
    let Location::Scp { user, host, port, folder } = location else {
        return Problem::new(last, "try the same with curl --upload-file");
    };
    let at = user.as_ref().map_or_else(|| host.clone(), |user| format!("{user}@{host}"));
    let with_port = |option: &str| port.map(|port| format!("{option} {port} ")).unwrap_or_default();
    if said.contains("Host key verification failed") || said.contains("No ED25519 host key is known") {
        let why = if said.contains("HAS CHANGED") {
            "the host key has changed"
        } else {
            "the host key is not known"
        };
        let fix = format!(
            "compare it with that of the machine, then as root: ssh-keyscan {}{host} >> ~/.ssh/known_hosts",
            with_port("-p")
        );
        return Problem::new(format!("{why}: {host}"), fix);
    }
    if said.contains("Permission denied (") || said.contains("Too many authentication failures") {
        let fix = format!("as root: ssh-keygen if there is no key, then ssh-copy-id {}{at}", with_port("-p"));
        return Problem::new(format!("{at} accepts no key of root"), fix);
    }
    if said.contains("No such file or directory") {
        return Problem::new(last, format!("ssh {}{at} mkdir -p {folder}", with_port("-p")));
    }
    Problem::new(last, format!("try it as root: sftp {}{at}", with_port("-P")))
}

/// A folder of this user alone, removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let folder =
                std::env::temp_dir().join(format!("postern-archiver-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Self(folder)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn scp_asks_nothing_and_trusts_no_unknown_host() {
        let location = Location::parse("scp://vyos@[2001:db8::1]:2222/a/").expect("right");
        let words = words(&scp(&location, "2001:db8::9".parse().ok(), Path::new("/tmp/c")));
        assert!(
            words.iter().any(|word| word == "BatchMode=yes")
                && words.iter().any(|word| word == "StrictHostKeyChecking=yes")
        );
        assert!(
            words.iter().any(|word| word == "BindAddress=2001:db8::9")
                && words.windows(2).any(|two| two == ["-P", "2222"])
        );
        assert_eq!(words[words.len() - 3..], ["--", "/tmp/c", "vyos@[2001:db8::1]:/a/"]);
    }

    #[test]
    fn what_scp_says_becomes_a_cause_and_a_fix() {
        let location = Location::parse("scp://vyos@backup.example.org:2222/a").expect("right");
        for (said, why, fix) in [
            (
                "No ED25519 host key is known for x and you have requested strict checking.\nHost key verification failed.",
                "is not known",
                "ssh-keyscan -p 2222 backup.example.org",
            ),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                "has changed",
                "ssh-keyscan",
            ),
            (
                "vyos@backup: Permission denied (publickey).",
                "accepts no key",
                "ssh-copy-id -p 2222 vyos@backup.example.org",
            ),
            ("scp is not installed", "not installed", "apt-get install openssh-client"),
            ("scp: dest open \"/a/c\": No such file or directory", "No such file", "mkdir -p /a"),
            (
                "ssh: connect to host x port 22: Connection refused",
                "Connection refused",
                "sftp -P 2222 vyos@",
            ),
        ] {
            let problem = explained(&location, said);
            assert!(problem.why.contains(why) && problem.fix.contains(fix), "{problem:?}");
        }
    }

    #[test]
    fn a_program_that_fails_is_quoted_and_one_that_hangs_is_ended() {
        let shell = |line: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            shell
        };
        assert_eq!(run(&mut shell("true"), &|| false), Ok(()));
        assert_eq!(run(&mut shell("echo no >&2; exit 3"), &|| false), Err("no".to_owned()));
        assert!(run(&mut shell("exit 3"), &|| false).is_err_and(|said| said.contains('3')));
        assert!(run(&mut shell("exec sleep 1000"), &|| true).is_err());
        assert_eq!(
            run(&mut Command::new("/nonexistent/scp"), &|| false),
            Err("/nonexistent/scp is not installed".to_owned())
        );
    }
}
