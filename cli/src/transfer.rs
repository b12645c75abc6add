//! Text that goes to another machine or comes from one, by scp or curl. The text is in memory only: no file on a disk has it.
//!
//! ```text
//! put: text ──> file in memory, /proc/self/fd/N ── scp, curl ──> location
//! get: location ── scp, curl ──> file in memory, /proc/self/fd/N ──> text
//! ```

use config::Text;
use config::schema::Location;
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time that an unattended program may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seconds until a machine that does not answer is given up.
const CONNECT: &str = "15";
/// Seconds without a byte until a connection of curl is given up.
const SILENCE: &str = "60";
/// Bytes of a program's output that are looked at.
const SHOWN: u64 = 4096;
/// Bytes of a text that is fetched.
const LARGEST: u64 = 64 << 20;

/// The way to another machine.
pub(crate) struct Way<'a> {
    /// A URL of scp, http, https or ftp.
    pub(crate) location: &'a Location,
    /// The address that connections come from.
    pub(crate) source: Option<IpAddr>,
    /// If no person can be asked: whether to give up now.
    pub(crate) unattended: Option<&'a dyn Fn() -> bool>,
}

impl Way<'_> {
    /// Sends a text; into the location under a name, or else to the location itself. The error is the message of the program.
    pub(crate) fn put(&self, name: Option<&str>, text: &Text) -> Result<(), String> {
        let file = memory(MemfdFlags::empty())
            .and_then(|mut file| file.write_all(text.bytes()).map(|()| file))
            .map_err(|error| format!("no memory for a copy: {error}"))?;
        let mut command;
        if let Location::Url(url) = self.location {
            command = self.curl(url);
            command.arg("--upload-file").arg(path_of(&file)).arg("--").arg(joined(url, name));
        } else {
            command = self.scp();
            command.arg("--").arg(path_of(&file)).arg(self.place(name));
        }
        self.run(&mut command)
    }

    /// Fetches a text.
    pub(crate) fn get(&self) -> Result<Text, String> {
        let failed = |error: io::Error| format!("no memory for a copy: {error}");
        let file = memory(MemfdFlags::empty()).map_err(failed)?;
        let mut command;
        if let Location::Url(url) = self.location {
            command = self.curl(url);
            command.arg("--max-filesize").arg(LARGEST.to_string());
            command.arg("--output").arg(path_of(&file)).arg("--").arg(url);
        } else {
            command = self.scp();
            command.arg("--").arg(self.place(None)).arg(path_of(&file));
        }
        self.run(&mut command)?;
        if file.metadata().map_err(failed)?.len() > LARGEST {
            return Err(format!("it is larger than {} MiB", LARGEST >> 20));
        }
        Text::read_from(&file).map_err(failed)
    }

    fn scp(&self) -> Command {
        let mut scp = Command::new("scp");
        // With -q it would not say why it fails.
        scp.args(["-o", "LogLevel=ERROR", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]);
        scp.arg("-o").arg(format!("ConnectTimeout={CONNECT}"));
        if self.unattended.is_some() {
            // No question, no unknown host, no password.
            scp.args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]);
        }
        if let Location::Scp { port: Some(port), .. } = self.location {
            scp.arg("-P").arg(port.to_string());
        }
        if let Some(source) = self.source {
            scp.arg("-o").arg(format!("BindAddress={source}"));
        }
        scp
    }

    /// The place as scp names it.
    fn place(&self, name: Option<&str>) -> String {
        let Location::Scp { user, host, folder, .. } = self.location else { return String::new() };
        let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        // An IPv6 address stands in brackets.
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        format!("{user}{host}:{}", joined(folder, name))
    }

    fn curl(&self, url: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--silent", "--show-error", "--netrc-optional", "--write-out", "%{http_code}"]);
        // One URL is one request, by these protocols only, also after a redirection.
        curl.args(["--globoff", "--proto", "=http,https,ftp"]);
        curl.args(["--connect-timeout", CONNECT, "--speed-limit", "1", "--speed-time", SILENCE]);
        if self.unattended.is_none() {
            curl.arg("--location");
            if url.starts_with("https:") {
                // Keys of tunnels do not continue in the clear.
                curl.args(["--proto-redir", "=https"]);
            }
        }
        if let Some(source) = self.source {
            curl.arg("--interface").arg(source.to_string());
        }
        curl
    }

    /// Runs a program until its end. The error is its message.
    fn run(&self, command: &mut Command) -> Result<(), String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error: io::Error| format!("{program}: {error}");
        let mut output = memory(MemfdFlags::CLOEXEC).map_err(failed)?;
        let mut errors = memory(MemfdFlags::CLOEXEC).map_err(failed)?;
        command.stdout(output.try_clone().map_err(failed)?);
        if self.unattended.is_some() {
            // A group of its own, so that the ssh of an scp that is given up ends, too.
            command.stdin(Stdio::null()).stderr(errors.try_clone().map_err(failed)?).process_group(0);
        }
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let package = if program == "scp" { "openssh-client" } else { &program };
                format!("{program} is not installed\n  fix: apt-get install {package}")
            }
            _ => failed(error),
        })?;
        let ended = match self.unattended {
            Some(ended) => wait(&mut child, ended).map_err(failed)?,
            None => Some(child.wait().map_err(failed)?),
        };
        let Some(status) = ended else {
            return Err(format!("{program}: it did not end within {} seconds", PATIENCE.as_secs()));
        };
        let answer = said(&mut output);
        if !status.success() {
            let said = said(&mut errors);
            return Err(if said.is_empty() { format!("{program}: {status}") } else { said });
        }
        // curl takes a redirection for a success.
        if program == "curl" && !answer.starts_with('2') {
            return Err(format!("the server answers {answer}, and keeps nothing"));
        }
        Ok(())
    }
}

/// Waits for a program; its process group is killed if it takes too long.
fn wait(child: &mut Child, ended: &dyn Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > PATIENCE || ended() {
            let group = Pid::from_child(child);
            let _ = kill_process_group(group, Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn joined(folder: &str, name: Option<&str>) -> String {
    name.map_or_else(|| folder.to_owned(), |name| format!("{}/{name}", folder.trim_end_matches('/')))
}

/// A file without a name, for this user alone. Without CLOEXEC the next program that is started has it, too.
fn memory(flags: MemfdFlags) -> io::Result<File> {
    let file = memfd_create("configuration", flags)?;
    // scp gives its copy the same mode.
    fchmod(&file, Mode::from_raw_mode(0o600))?;
    Ok(File::from(file))
}

/// The path of a file for a program that inherits it.
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The beginning of a program's output.
fn said(output: &mut File) -> String {
    let mut text = Vec::new();
    let _ = output.rewind().and_then(|()| output.take(SHOWN).read_to_end(&mut text));
    String::from_utf8_lossy(&text).replace(|c: char| c.is_control() && c != '\n', " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::net::TcpListener;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    fn text() -> Text {
        let mut text = Text::default();
        text.write_str("set system allow-empty\n").expect("it grows");
        text
    }

    #[test]
    fn scp_asks_nothing_and_trusts_no_unknown_host() {
        let location = Location::parse("scp://vyos@[2001:db8::1]:2222/a/").expect("right");
        let way =
            Way { location: &location, source: "2001:db8::9".parse().ok(), unattended: Some(&|| false) };
        let words = words(&way.scp());
        for option in ["BatchMode=yes", "StrictHostKeyChecking=yes", "BindAddress=2001:db8::9"] {
            assert!(words.iter().any(|word| word == option), "{option}");
        }
        assert!(words.windows(2).any(|two| two == ["-P", "2222"]));
        assert_eq!(way.place(Some("c")), "vyos@[2001:db8::1]:/a/c");
        assert_eq!(way.place(None), "vyos@[2001:db8::1]:/a/");
    }

    #[test]
    fn a_program_that_fails_is_quoted_and_one_that_hangs_is_ended_with_its_children() {
        let location = Location::parse("scp://a/b").expect("right");
        let run = |line: &str, ended: &dyn Fn() -> bool| {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            Way { location: &location, source: None, unattended: Some(ended) }.run(&mut shell)
        };
        assert_eq!(run("true", &|| false), Ok(()));
        assert_eq!(run("echo no >&2; exit 3", &|| false), Err("no".to_owned()));
        // More than a pipe holds.
        assert!(run("yes | head -c 200000 >&2; exit 3", &|| false).is_err_and(|said| said.starts_with('y')));
        assert!(run("exit 3", &|| false).is_err_and(|said| said.contains('3')));
        let folder = tempfile::tempdir().expect("a folder");
        let noted = folder.path().join("pid");
        let line = format!("sleep 1000 & echo $! > {}.new; mv {0}.new {0}; wait", noted.display());
        assert!(run(&line, &|| noted.exists()).is_err());
        let child = std::fs::read_to_string(&noted).expect("noted");
        let stat = std::path::PathBuf::from(format!("/proc/{}/stat", child.trim()));
        let is_running = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let begun = Instant::now();
        while is_running() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the child of the program was left behind");
            std::thread::sleep(Duration::from_millis(10));
        }
        let way = Way { location: &location, source: None, unattended: Some(&|| false) };
        let missing = way.run(&mut Command::new("/nonexistent/scp")).expect_err("not there");
        assert!(missing.starts_with("/nonexistent/scp is not installed\n  fix: "), "{missing}");
    }

    /// Answers each request with a status, and notes its first line.
    fn server(status: &'static str) -> (u16, std::sync::mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let (note, noted) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut bytes = [0; 4096];
                let read = stream.read(&mut bytes).unwrap_or_default();
                let first = String::from_utf8_lossy(&bytes[..read]).lines().next().map(str::to_owned);
                let _ = note.send(first.unwrap_or_default());
                let location = "Location: http://127.0.0.1:9/\r\nContent-Length: 0\r\nConnection: close";
                let _ = write!(stream, "HTTP/1.1 {status}\r\n{location}\r\n\r\n");
                // Until the client has read it.
                let _ = stream.read(&mut bytes);
            }
        });
        (port, noted)
    }

    #[test]
    fn a_redirection_is_no_success_and_one_url_is_one_request() {
        if Command::new("curl").arg("--version").output().is_err() {
            return;
        }
        for (status, is_kept) in [("201 Created", true), ("301 Moved Permanently", false)] {
            let (port, noted) = server(status);
            let location = Location::parse(&format!("http://127.0.0.1:{port}/{{a,b}}")).expect("right");
            let way = Way { location: &location, source: None, unattended: Some(&|| false) };
            let put = way.put(Some("c"), &text());
            assert_eq!(put.is_ok(), is_kept, "{put:?}");
            let requests: Vec<String> = noted.try_iter().collect();
            assert!(requests.len() == 1 && requests[0].starts_with("PUT /"), "{requests:?}");
        }
    }
}
