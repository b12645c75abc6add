//! Network namespaces with veth links and processes in them, for the demo, the benchmarks and the tests.
//!
//! All names contain our process id, and everything is removed when the lab is dropped. [`postern`] runs ours from a file,
//! [`wireguard`], [`ipsec`] and [`openvpn`] start pairs of gateways, [`hub`] one with two peers, [`traffic`] sends traffic through them.
#![forbid(unsafe_code)]

pub mod files;
pub mod hub;
pub mod ipsec;
pub mod openvpn;
pub mod postern;
pub mod strongswan;
pub mod taken;
pub mod traffic;
pub mod wireguard;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A result with any error, to be read by a person.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Numbers the labs of this process.
static LABS: AtomicUsize = AtomicUsize::new(0);
/// The namespaces of all labs of this process.
static NAMESPACES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// How long to wait for processes to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(3);

/// A set of network namespaces and processes.
pub struct Lab {
    tag: String,
    namespaces: Vec<String>,
    processes: Vec<Child>,
}

/// A process in a lab.
#[derive(Clone, Copy, Debug)]
pub struct Process(u32);

impl Lab {
    /// Creates namespaces with these names, each with its loopback interface up.
    pub fn new(names: &[&str]) -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(
                "only root can create network namespaces\n  fix: run the same command with sudo".into()
            );
        }
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let tag = format!("postern-{}-{number}", std::process::id());
        let mut lab = Self { tag, namespaces: Vec::new(), processes: Vec::new() };
        for name in names {
            let namespace = lab.namespace(name);
            let mut all = namespaces();
            run("ip", ["netns", "add", &namespace])?;
            all.push(namespace.clone());
            drop(all);
            lab.namespaces.push(namespace);
            lab.ip(name, "link set lo up")?;
        }
        Ok(lab)
    }

    /// The full name of a namespace.
    pub fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.tag)
    }

    /// An interface name that no other lab uses: WireGuard sockets are named by interface, in all namespaces.
    pub fn interface(&self, name: &str) -> String {
        let unique = self.tag.trim_start_matches("postern-").replace('-', "x");
        format!("{name}{unique}")
    }

    /// Connects two namespaces by a veth pair with these interface names and addresses.
    pub fn connect(&self, a: (&str, &str, &str), b: (&str, &str, &str)) -> Outcome<()> {
        let (from, to) = (self.namespace(a.0), self.namespace(b.0));
        run("ip", ["link", "add", a.1, "netns", &from, "type", "veth", "peer", "name", b.1, "netns", &to])?;
        for (name, interface, address) in [a, b] {
            self.ip(name, &format!("address add {address} dev {interface}"))?;
            self.ip(name, &format!("link set {interface} up"))?;
        }
        Ok(())
    }

    /// Runs `ip` in a namespace.
    pub fn ip(&self, name: &str, arguments: &str) -> Outcome<String> {
        let namespace = self.namespace(name);
        run("ip", ["-n", &namespace].into_iter().chain(arguments.split_whitespace()))
    }

    /// A command to run in a namespace.
    pub fn command(&self, name: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(name)]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a command in a namespace, and returns its output.
    pub fn run(&self, name: &str, program: &str, arguments: &[&str]) -> Outcome<String> {
        output(self.command(name, program).args(arguments))
    }

    /// Runs a function in a namespace, in a thread of its own. Sockets that it opens belong to the namespace.
    pub fn enter<T: Send>(&self, name: &str, function: impl FnOnce() -> T + Send) -> Outcome<T> {
        enter(&self.network(name)?, function)
    }

    /// A namespace, which exists as long as this is open.
    fn network(&self, name: &str) -> io::Result<File> {
        File::open(Path::new("/run/netns").join(self.namespace(name)))
    }

    /// Starts a command that is stopped with the lab.
    pub fn start(&mut self, command: &mut Command) -> Outcome<Process> {
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let process = Process(child.id());
        self.processes.push(child);
        Ok(process)
    }

    /// Stops a process with this signal, and waits for its end.
    pub fn kill(&mut self, process: Process, signal: Signal) {
        if let Some(index) = self.processes.iter().position(|child| child.id() == process.0) {
            let mut child = self.processes.swap_remove(index);
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, signal);
            }
            let _ = child.wait();
        }
    }

    /// The exit status of a process that has ended by itself.
    pub fn ended(&mut self, process: Process) -> Option<std::process::ExitStatus> {
        let child = self.processes.iter_mut().find(|child| child.id() == process.0)?;
        child.try_wait().ok().flatten()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in &mut self.processes {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for child in &mut self.processes {
            if wait_until(PATIENCE, || child.try_wait().is_ok_and(|status| status.is_some())).is_err() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        let mut all = namespaces();
        for namespace in &self.namespaces {
            let _ = run("ip", ["netns", "delete", namespace]);
        }
        all.retain(|namespace| !self.namespaces.contains(namespace));
    }
}

/// Runs a function in a namespace, in a thread of its own.
fn enter<T: Send>(network: &File, function: impl FnOnce() -> T + Send) -> Outcome<T> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(function())
        });
        inside.join().map_err(|_| "the function panicked")?
    })
}

fn namespaces() -> MutexGuard<'static, Vec<String>> {
    NAMESPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops all processes in the namespaces of all labs, and removes the namespaces and files, for a process that is about
/// to exit. No lab is created or removed until the returned guard is dropped.
pub fn clean_up() -> impl Drop {
    let all = namespaces();
    let living = || all.iter().flat_map(|namespace| processes(namespace)).collect::<Vec<Pid>>();
    let signal = |signal| {
        for process in living() {
            let _ = kill_process(process, signal);
        }
    };
    signal(Signal::TERM);
    if wait_until(PATIENCE, || living().is_empty()).is_err() {
        signal(Signal::KILL);
    }
    for namespace in &*all {
        let _ = run("ip", ["netns", "delete", namespace]);
    }
    let ours = format!("postern-{}-", std::process::id());
    let files = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(&ours)) {
        let _ = std::fs::remove_dir_all(file.path()).or_else(|_| std::fs::remove_file(file.path()));
    }
    all
}

/// The processes of a namespace.
fn processes(namespace: &str) -> Vec<Pid> {
    let listed = run("ip", ["netns", "pids", namespace]).unwrap_or_default();
    listed.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
}

impl Process {
    /// The process id.
    pub fn id(self) -> u32 {
        self.0
    }

    /// Sends it a signal.
    pub fn signal(self, signal: Signal) {
        let process = Pid::from_raw(self.0 as i32).expect("a process has an id");
        kill_process(process, signal).expect("it lives");
    }

    /// CPU time in seconds so far, in user and in kernel mode.
    pub fn cpu_seconds(self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        // After the name, which is in parentheses and may contain anything, come field 3 and the following (proc(5)).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        Ok((ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64)
    }

    /// CPU time so far, by thread: its name, and seconds in user and in kernel mode, in steps of 10 ms. The kernel's time has that of
    /// softirqs that ran while the thread was running.
    pub fn threads(self) -> Outcome<BTreeMap<String, (String, [f64; 2])>> {
        let second = rustix::param::clock_ticks_per_second() as f64;
        let mut threads = BTreeMap::new();
        for entry in std::fs::read_dir(format!("/proc/{}/task", self.0))? {
            let entry = entry?;
            // The thread may have ended meanwhile.
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            let (head, rest) = stat.rsplit_once(')').ok_or("no name in stat")?;
            let name = head.split_once('(').map_or(head, |(_, name)| name).to_owned();
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let seconds = |index: usize| {
                fields.get(index).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0) / second
            };
            threads
                .insert(entry.file_name().to_string_lossy().into_owned(), (name, [seconds(11), seconds(12)]));
        }
        Ok(threads)
    }

    /// CPU time in seconds so far, by thread, with nanosecond resolution. It is kept by thread because the time of a
    /// thread that ends is lost.
    pub fn cpu_of_threads(self) -> Outcome<BTreeMap<String, f64>> {
        let mut threads = BTreeMap::new();
        for entry in std::fs::read_dir(format!("/proc/{}/task", self.0))? {
            let entry = entry?;
            // The thread may have ended meanwhile.
            let Ok(text) = std::fs::read_to_string(entry.path().join("schedstat")) else { continue };
            let nanoseconds = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
            let nanoseconds = nanoseconds.ok_or("no time in schedstat")?;
            threads.insert(entry.file_name().to_string_lossy().into_owned(), nanoseconds / 1e9);
        }
        Ok(threads)
    }

    /// Pins all its threads, and those that they will start, to one core.
    pub fn pin(self, core: usize) -> Outcome<()> {
        for entry in std::fs::read_dir(format!("/proc/{}/task", self.0))? {
            let thread = entry?.file_name().to_string_lossy().parse()?;
            // Ignore threads that have ended.
            let _ = pin_thread(Pid::from_raw(thread), core);
        }
        Ok(())
    }

    /// Resident memory in bytes.
    pub fn memory(self) -> Outcome<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
        Ok(kib * 1024)
    }
}

/// A directory for the files of a namespace, which [`clean_up`] removes if its owner cannot.
fn directory(lab: &Lab, namespace: &str) -> Outcome<TempDir> {
    Ok(tempfile::Builder::new().prefix(&format!("{}-", lab.namespace(namespace))).tempdir()?)
}

/// CPU time of the whole machine in softirqs so far, in seconds.
pub fn softirq_seconds() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    // After the word "cpu": user, nice, system, idle, iowait, irq, softirq (proc(5)).
    let ticks = stat.lines().next().and_then(|line| line.split_whitespace().nth(7)?.parse::<f64>().ok());
    Ok(ticks.ok_or("no softirq in /proc/stat")? / rustix::param::clock_ticks_per_second() as f64)
}

/// Pins a thread, or the calling one, to one core.
pub fn pin_thread(thread: Option<Pid>, core: usize) -> Outcome<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(thread, &cores)?)
}

/// Runs a program and returns its output.
pub fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Outcome<String> {
    output(Command::new(program).args(arguments).stdin(Stdio::null()))
}

/// Runs a command and returns its output.
pub fn output(command: &mut Command) -> Outcome<String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(written);
    }
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{shown}: {}\n{written}{error}", output.status).into())
}

/// Waits until a condition is true; fails after `patience`.
pub fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> Outcome<()> {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() >= deadline {
            return Err(format!("timed out after {patience:?}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether a program is installed.
pub fn has_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(name).is_file()) || Path::new(name).is_file()
}
