//! A program with ports of DPDK, from a capture file that it reads again and again to a port that forgets: packets and processor time of a
//! window in which it has more than it can do. It is DPDK's example program ipsec-secgw, or `postern secgw --dpdk`.

use super::load::{Load, Way};
use crate::Outcome;
use port::pcap::write_frames;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket,
};
use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Memory for its tables, which are of a fixed size, and its buffers.
const MEGABYTES: &str = "768";
/// How long it may take to start.
const START: Duration = Duration::from_secs(30);

/// Builds the program in a directory, unless it is there; returns its path.
///
/// # Errors
/// A package is missing, or the source is not to be had: with what to install.
pub fn build(directory: &Path) -> Outcome<PathBuf> {
    // The first one starts the other, beside it.
    const SCRIPTS: [(&str, &str); 2] = [
        ("ipsec-secgw.sh", include_str!("../../../scripts/ipsec-secgw.sh")),
        ("dpdk-source.sh", include_str!("../../../scripts/dpdk-source.sh")),
    ];
    let scripts = tempfile::Builder::new().prefix("postern-bench-").tempdir()?;
    for (name, text) in SCRIPTS {
        let path = scripts.path().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))?;
    }
    let output = Command::new("bash").arg(scripts.path().join(SCRIPTS[0].0)).arg(directory).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned().into());
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}

/// Which program.
#[derive(Clone, Debug)]
pub enum Program {
    /// ipsec-secgw.
    IpsecSecgw(PathBuf),
    /// Ours.
    Postern(PathBuf),
}

impl Program {
    /// The name, the file, the words before those of EAL, and the thread that carries packets: without a name the first.
    fn parts(&self) -> (&'static str, &Path, &'static [&'static str], &'static str) {
        match self {
            Self::IpsecSecgw(path) => ("ipsec-secgw", path, &["--vdev", "crypto_aesni_gcm0"], ""),
            Self::Postern(path) => {
                ("postern secgw", path, &["secgw", "--dpdk", "--telemetry", "--api", "api"], "secgw")
            }
        }
    }
}

/// The program with a load.
pub struct Rival {
    name: &'static str,
    child: Child,
    /// The thread that carries packets.
    thread: u32,
    telemetry: OwnedFd,
    log: PathBuf,
    _directory: TempDir,
}

impl Rival {
    /// Starts it on a core with the frames that it receives.
    pub fn start(program: &Program, load: &Load, way: Way, frames: &[Vec<u8>], core: usize) -> Outcome<Self> {
        let directory = tempfile::Builder::new().prefix("postern-bench-").tempdir()?;
        let path = |name: &str| directory.path().join(name);
        let (capture, log) = (path("frames.pcap"), path("log"));
        write_frames(&capture, frames.iter().map(Vec::as_slice))?;
        std::fs::write(path("x.cfg"), load.file())?;
        let prefix = format!("postern{}", std::process::id());
        let (name, program, words, thread) = program.parts();
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(directory.path())
            .env("RUNTIME_DIRECTORY", directory.path())
            .args(["--no-huge", "-m", MEGABYTES, "--no-pci", "--iova-mode=va", "--file-prefix", &prefix])
            .args(["--lcores", &format!("0@{core}")])
            .args(["--vdev", "net_pcap0,rx_pcap=frames.pcap,infinite_rx=1", "--vdev", "net_null1,no-rx=1"])
            .args(["--", "-f", "x.cfg"])
            .args(way.words().split(' '))
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        let socket = path("dpdk").join(&prefix).join("dpdk_telemetry.v2");
        let mut child = command.spawn()?;
        match telemetry(&mut child, &socket) {
            Ok(telemetry) => {
                let thread = thread_of(child.id(), thread).unwrap_or(child.id());
                Ok(Self { name, child, thread, telemetry, log, _directory: directory })
            }
            Err(error) => {
                end(&mut child);
                Err(format!("{name} does not start: {error}\n{}", last_lines(&log)).into())
            }
        }
    }

    /// Lets it run for so many seconds; returns the packets that left, and the nanoseconds of its thread.
    pub fn measure(&mut self, seconds: f64) -> Outcome<(u64, f64)> {
        // The kernel adds up processor time at its ticks; the window is long beside them.
        let look = |rival: &Self| {
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((rival.sent()?, rival.nanoseconds()?))
        };
        let before = look(self)?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let after = look(self)?;
        if after.0 == before.0 {
            return Err(format!("no packet left {}\n{}", self.name, last_lines(&self.log)).into());
        }
        Ok((after.0 - before.0, after.1 - before.1))
    }

    /// The packets that have left by port 1.
    fn sent(&self) -> Outcome<u64> {
        sent(&self.telemetry)
    }

    /// Processor time of its thread.
    fn nanoseconds(&self) -> Outcome<f64> {
        let path = format!("/proc/{}/task/{}/schedstat", self.child.id(), self.thread);
        let text = std::fs::read_to_string(&path)?;
        Ok(text.split_whitespace().next().ok_or("an empty schedstat")?.parse()?)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The thread of a process with this name.
fn thread_of(process: u32, name: &str) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let is_it = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|it| it.trim_end() == name)
    };
    tasks.into_iter().find(is_it)?.file_name().to_str()?.parse().ok()
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits until the program carries packets.
fn telemetry(child: &mut Child, path: &Path) -> Outcome<OwnedFd> {
    let begun = Instant::now();
    let address = SocketAddrUnix::new(path)?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Err(status.to_string().into());
        }
        let telemetry = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        if connect(&telemetry, &address).is_ok() {
            // Its greeting.
            recv(&telemetry, &mut [0; 1024], RecvFlags::empty())?;
            if sent(&telemetry).is_ok_and(|count| count > 0) {
                return Ok(telemetry);
            }
        }
        if begun.elapsed() > START {
            return Err(format!("no packet within {} s", START.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn sent(telemetry: &OwnedFd) -> Outcome<u64> {
    send(telemetry, b"/ethdev/stats,1", SendFlags::empty())?;
    let mut answer = [0; 16 * 1024];
    let (length, _) = recv(telemetry, &mut answer, RecvFlags::empty())?;
    let answer: serde_json::Value = serde_json::from_slice(&answer[..length])?;
    Ok(answer["/ethdev/stats"]["opackets"].as_u64().ok_or("no count of sent packets")?)
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(6)..].join("\n")
}
