//! The devices: encryptors in network namespaces of their own, all on one core, with their ports at those of the tester.
//!
//! ```text
//! tester:t0 ── p0 [encryptor] u0 ══ u1 [encryptor] p1 ── t1:tester     a pair
//! tester:t0 ── p0 [encryptor] u0 ══════════════════════ t1:tester     one, with ESP at t1
//! ```
//! A device rests, stopped by SIGSTOP, while another is measured: ipsec-secgw never sleeps.

use super::protocol::Setup;
use super::secgw::{Keys, LEFT, RIGHT};
use crate::Outcome;
use crate::rfc2544::session::{Protected, Session};
use crate::rfc2544::wire::Opened;
use crate::rfc2544::{Addresses, Esp, FrameSize, Plan, Protection, Protocol, Wire};
use lab::strongswan::StrongSwan;
use lab::{Lab, Process};
use port::xdp::Deferral;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a device may take until it carries frames.
const PATIENCE: Duration = Duration::from_secs(60);
/// Room for ESP around the longest frame.
const MTU: u32 = 1700;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// `postern secgw`.
    #[serde(rename = "postern")]
    Postern,
    /// strongSwan with kernel-libipsec.
    #[serde(rename = "strongswan")]
    StrongSwan,
    /// DPDK's ipsec-secgw.
    #[serde(rename = "ipsec-secgw")]
    IpsecSecgw,
}

impl Kind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postern => "postern",
            Self::StrongSwan => "strongswan",
            Self::IpsecSecgw => "ipsec-secgw",
        }
    }
}

/// The programs of ours and of ipsec-secgw.
pub(super) struct Programs<'a> {
    pub postern: &'a Path,
    pub ipsec_secgw: Option<&'a Path>,
    /// The core of the devices.
    pub core: usize,
}

/// A device with the tester at its ports.
pub(super) struct Device {
    pub kind: Kind,
    pub setup: Setup,
    pub session: Session,
    pub esp: Option<Esp>,
    processes: Vec<Process>,
    _charons: Vec<StrongSwan>,
    lab: Lab,
    directory: TempDir,
}

/// The tester's addresses; `routers` if the device routes.
pub(super) fn addresses(esp: Option<&Esp>, routes: bool) -> Addresses {
    Addresses {
        outer: [0, 1].map(|port| esp.map(|esp| esp.addresses(port)).unwrap_or_default()),
        routers: routes.then(|| [[198, 18, 0, 1].into(), [198, 19, 0, 1].into()]),
        ..Addresses::between([[198, 18, 0, 2].into(), [198, 19, 0, 2].into()])
    }
}

/// The tester with its ports connected to each other; with ESP as at one encryptor.
pub(super) fn looped(setup: Setup) -> Outcome<Session> {
    let esp = (setup == Setup::One).then(|| Keys::random().map(|keys| keys.esp())).transpose()?;
    let addresses = addresses(esp.as_ref(), false);
    let wire = if setup == Setup::Memory { Wire::Memory } else { Wire::AfXdp };
    let ends = Protected::load(esp.clone().map(Protection::Esp).as_ref(), &addresses)?.looped;
    Ok(Session::new(wire.open_loop(&addresses)?, addresses, ends))
}

impl Device {
    /// Starts a device, and waits until it carries frames in both directions.
    pub fn start(kind: Kind, setup: Setup, programs: &Programs<'_>) -> Outcome<Self> {
        let keys = Keys::random()?;
        let esp = (setup == Setup::One).then(|| keys.esp());
        let mut lab = match kind {
            Kind::StrongSwan => Lab::new(&["tester", "left", "right"])?,
            Kind::Postern | Kind::IpsecSecgw => Lab::new(&["tester", "device"])?,
        };
        connect(&lab, kind, setup)?;
        let directory =
            tempfile::Builder::new().prefix(&format!("{}-", lab.namespace("device"))).tempdir()?;
        let mut charons = Vec::new();
        let processes = if kind == Kind::StrongSwan {
            charons = start_charons(&mut lab)?;
            charons.iter().map(|charon| charon.process).collect()
        } else {
            let file = directory.path().join("x.cfg");
            std::fs::write(&file, keys.file(setup))?;
            let mut command = command(&lab, kind, setup, programs, directory.path())?;
            let log = std::fs::File::create(directory.path().join("log"))?;
            command.current_dir(directory.path()).stdout(log.try_clone()?).stderr(log);
            vec![lab.start(&mut command)?]
        };
        let addresses = addresses(esp.as_ref(), kind == Kind::StrongSwan);
        let open = || Wire::AfXdp.open(&["t0".to_owned(), "t1".to_owned()], &addresses, programs.core, false);
        let opened: Opened = lab.enter("tester", open)??;
        let ends = Protected::load(esp.clone().map(Protection::Esp).as_ref(), &addresses)?.ends;
        let session = Session::new(opened, addresses, ends);
        let mut device = Self { kind, setup, session, esp, processes, _charons: charons, lab, directory };
        device.wait()?;
        for process in &device.processes {
            process.pin(programs.core)?;
        }
        device.pause();
        Ok(device)
    }

    /// Waits until frames arrive in both directions.
    fn wait(&mut self) -> Outcome<()> {
        let begun = Instant::now();
        let plan = Plan { settle_seconds: 0.05, rest_seconds: 0.1, ..Plan::quick() };
        loop {
            if let Some(status) = self.processes.first().and_then(|first| self.lab.ended(*first)) {
                return Err(format!("{} does not start: {status}\n{}", self.kind.name(), self.log()).into());
            }
            let found = self.session.find_routers(true);
            if found.is_ok() {
                self.session.load(Protocol::Udp, true, FrameSize::Bytes(512));
                if self.session.carries(&plan)? {
                    return Ok(());
                }
            }
            if begun.elapsed() > PATIENCE {
                let why = found.err().map(|error| error.to_string()).unwrap_or_default();
                return Err(format!("{} carries no frames: {why}\n{}", self.kind.name(), self.log()).into());
            }
        }
    }

    /// The last lines that the program wrote.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Stops its processes until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.processes.iter().for_each(|process| process.signal(Signal::STOP));
    }

    /// Its processes.
    pub fn processes(&self) -> Vec<Process> {
        self.processes.clone()
    }

    /// Has the kernel defer NAPI of all ports of the device and of the tester, or not.
    pub fn defer_napi(&self, is_deferred: bool) -> Outcome<()> {
        for (namespace, interface) in [("tester", "t0"), ("tester", "t1"), ("device", "p0"), ("device", "u0")]
        {
            for (name, value) in Deferral::VALUES {
                let value = if is_deferred { value } else { "0" };
                let line = format!("echo {value} > /sys/class/net/{interface}/{name}");
                self.lab.run(namespace, "sh", &["-c", &line])?;
            }
        }
        Ok(())
    }

    /// Lets its processes run.
    pub fn resume(&self) {
        self.processes.iter().for_each(|process| process.signal(Signal::CONT));
    }

    /// Processor time of its processes so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.processes.iter().map(|process| process.cpu_seconds().unwrap_or_default()).sum()
    }
}

/// Sends a signal to processes, of which some may have ended.
pub(super) fn signal(processes: &[Process], signal: Signal) {
    for process in processes.iter().filter_map(|process| Pid::from_raw(process.id() as i32)) {
        let _ = kill_process(process, signal);
    }
}

/// Processor time of the threads of these processes so far, in seconds, and exact. It has that of softirqs which ran while a thread was
/// running.
pub(super) fn exact_cpu_seconds(processes: &[Process]) -> Outcome<f64> {
    let times = processes.iter().map(|process| Ok(process.cpu_of_threads()?.values().sum::<f64>()));
    times.sum()
}

impl Drop for Device {
    fn drop(&mut self) {
        // A stopped process would not end.
        signal(&self.processes, Signal::CONT);
    }
}

/// Makes the links.
fn connect(lab: &Lab, kind: Kind, setup: Setup) -> Outcome<()> {
    let [left, right] = if kind == Kind::StrongSwan { ["left", "right"] } else { ["device"; 2] };
    let links: &[[(&str, &str); 2]] = match setup {
        Setup::One | Setup::Bypass => &[[("tester", "t0"), (left, "p0")], [("tester", "t1"), (left, "u0")]],
        Setup::Pair | Setup::Memory => &[
            [("tester", "t0"), (left, "p0")],
            [(left, "u0"), (right, "u1")],
            [("tester", "t1"), (right, "p1")],
        ],
    };
    for [(from, near), (to, far)] in links {
        let [a, b] = [lab.namespace(from), lab.namespace(to)];
        let line =
            format!("link add {near} mtu {MTU} netns {a} type veth peer name {far} mtu {MTU} netns {b}");
        lab::run("ip", line.split(' '))?;
        for (namespace, interface) in [(from, near), (to, far)] {
            // The kernel's own multicast would be on the wire, too.
            lab.run(namespace, "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=1")])?;
            lab.ip(namespace, &format!("link set {interface} up"))?;
        }
    }
    Ok(())
}

/// The command line of both programs that read the file.
fn command(
    lab: &Lab,
    kind: Kind,
    setup: Setup,
    programs: &Programs<'_>,
    directory: &Path,
) -> Outcome<Command> {
    let core = programs.core;
    let mut command = if kind == Kind::Postern {
        let mut command = lab.command("device", programs.postern);
        command.args(["secgw", "-l", &core.to_string(), "--no-pci"]).env("LOG_LEVEL", "warn");
        command
    } else {
        let program = programs.ipsec_secgw.ok_or("ipsec-secgw is not there")?;
        let mut command = lab.command("device", program);
        let prefix = lab.interface("d");
        command.args(["--no-huge", "-m", "768", "--no-pci", "--iova-mode=va", "--no-shconf"]);
        command.args(["--no-telemetry", "--file-prefix", &prefix, "--lcores", &format!("{core}@{core}")]);
        command.args(["--vdev", "crypto_aesni_gcm0"]);
        command.env("RUNTIME_DIRECTORY", directory).env("XDG_RUNTIME_DIR", directory);
        command
    };
    let interfaces: &[&str] = if setup.is_single() { &["p0", "u0"] } else { &["p0", "u0", "u1", "p1"] };
    for (number, interface) in interfaces.iter().enumerate() {
        command.args(["--vdev", &format!("net_af_xdp{number},iface={interface}")]);
    }
    command.arg("--").args(super::secgw::words(setup, core).split(' ')).args(["-f", "x.cfg"]);
    if kind == Kind::Postern {
        command.arg("--api").arg(PathBuf::from("api.sock"));
    }
    command.stdin(Stdio::null());
    Ok(command)
}

/// Two charons with ESP in user space, and the tunnel between them.
fn start_charons(lab: &mut Lab) -> Outcome<Vec<StrongSwan>> {
    let sides = [("left", "p0", "u0", "198.18.0", LEFT), ("right", "p1", "u1", "198.19.0", RIGHT)];
    let mut charons = Vec::new();
    for (place, (name, protected, unprotected, net, outside)) in sides.into_iter().enumerate() {
        lab.ip(name, &format!("address add {net}.1/24 dev {protected}"))?;
        lab.ip(name, &format!("address add {outside}/16 dev {unprotected}"))?;
        let mac = Addresses::mac(place).map(|byte| format!("{byte:02x}")).join(":");
        lab.ip(name, &format!("neigh replace {net}.2 lladdr {mac} dev {protected}"))?;
        for word in
            ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"]
        {
            lab.run(name, "sysctl", &["-qw", word])?;
        }
    }
    for (place, (name, _, _, net, outside)) in sides.into_iter().enumerate() {
        let (.., far_net, far) = sides[1 - place];
        let swanctl = format!(
            "connections {{ site {{\n version = 2\n local_addrs = {outside}\n remote_addrs = {far}\n encap = yes\n\
             proposals = aes128gcm16-prfsha256-ecp256\n local {{ auth = psk\n id = {outside}\n }}\n\
             remote {{ auth = psk\n id = {far}\n }}\n children {{ net {{ local_ts = {net}.0/24\n\
             remote_ts = {far_net}.0/24\n esp_proposals = aes128gcm16\n }} }}\n }} }}\n\
             secrets {{ ike-site {{ secret = \"of a benchmark\"\n }} }}\n"
        );
        charons.push(StrongSwan::start(lab, name, &swanctl, "")?);
    }
    charons[0].initiate(lab, "net")?;
    for (name, ..) in sides {
        // Its TUN interface has an MTU of 1400, which would measure ICMP errors.
        lab.ip(name, "link set ipsec0 mtu 1600")?;
    }
    Ok(charons)
}
