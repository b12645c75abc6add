//! A WireGuard daemon in a lab: Postern or another one, all with the same interface.

use crate::Outcome;
use crate::{Lab, Process, wait_until};
use crypto::{PrivateKey, Secret};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A WireGuard daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// Postern.
    Postern(PathBuf),
    /// Postern with a given crypto engine.
    PosternWithEngine(PathBuf, String),
    /// Postern with so many threads that encrypt and decrypt.
    PosternWithThreads(PathBuf, u8),
    /// Postern without encryption, to measure the cost of the rest.
    PosternWithoutCipher(PathBuf),
    /// The ceiling: the least that carries packets with the ports of this Postern program, and with its cipher or without.
    Ceiling(PathBuf, bool),
    /// wireguard-go, or a program with the same command line.
    WireguardGo(PathBuf),
}

impl Daemon {
    /// The name used in reports.
    pub fn name(&self) -> String {
        match self {
            Self::Postern(_) => "postern".to_owned(),
            Self::PosternWithEngine(_, engine) => format!("postern, {engine}"),
            Self::PosternWithThreads(_, threads) => format!("postern, {threads} threads"),
            Self::PosternWithoutCipher(_) => "postern, no cipher".to_owned(),
            Self::Ceiling(_, true) => "ceiling".to_owned(),
            Self::Ceiling(_, false) => "ceiling, no cipher".to_owned(),
            Self::WireguardGo(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// The version that the daemon reports.
    pub fn version(&self) -> String {
        match self {
            Self::Postern(program)
            | Self::PosternWithEngine(program, _)
            | Self::PosternWithThreads(program, _)
            | Self::PosternWithoutCipher(program)
            | Self::Ceiling(program, _) => version_of_postern(program),
            Self::WireguardGo(path) => {
                let said = crate::run(&path.to_string_lossy(), ["--version"]).unwrap_or_default();
                said.lines().next().unwrap_or("unknown").to_owned()
            }
        }
    }

    /// Finds wireguard-go: the given path, the build of `make setup`, or the installed program.
    pub fn find_wireguard_go(given: Option<PathBuf>) -> Outcome<Self> {
        let built = [PathBuf::from(".peers/wireguard-go")];
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&paths).map(|directory| directory.join("wireguard-go"));
        let found = given.into_iter().chain(built).chain(installed).find(|path| path.is_file());
        found.map(Self::WireguardGo).ok_or_else(|| {
            "wireguard-go was not found\n  fix: make setup, or name it with --peer-path, or measure alone with --peer none".into()
        })
    }

    fn command(&self, lab: &Lab, namespace: &str, interface: &str) -> std::process::Command {
        let threads;
        let (program, verb) = match self {
            Self::PosternWithThreads(program, count) => {
                threads = count.to_string();
                (program, vec!["wireguard", "--foreground", "--threads", &threads])
            }
            Self::Postern(program) => (program, vec!["wireguard", "--foreground"]),
            Self::PosternWithEngine(program, engine) => {
                (program, vec!["wireguard", "--foreground", "--engine", engine])
            }
            Self::PosternWithoutCipher(program) => (program, vec!["bench", "gateway-without-cipher"]),
            Self::Ceiling(program, true) => (program, vec!["bench", "ceiling"]),
            Self::Ceiling(program, false) => (program, vec!["bench", "ceiling", "--without-cipher"]),
            Self::WireguardGo(program) => (program, vec!["--foreground"]),
        };
        let mut command = lab.command(namespace, program);
        command.args(verb);
        command.arg(interface).env("LOG_LEVEL", "error").stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// The version and commit of a Postern program, which need not be the running one.
pub fn version_of_postern(program: &Path) -> String {
    let said = crate::run(&program.to_string_lossy(), ["--version"]).unwrap_or_default();
    let mut lines = said.lines();
    let version = lines.next().and_then(|line| line.strip_prefix("postern ")).unwrap_or("unknown");
    let commit = lines.find_map(|line| line.strip_prefix("commit: ")).unwrap_or("unknown");
    format!("{version}, commit {commit}")
}

/// A running daemon and its interface.
pub struct Gateway {
    /// The process.
    pub process: Process,
    /// The interface.
    pub interface: String,
    /// Its namespace.
    pub namespace: String,
}

impl Gateway {
    /// Starts a daemon and waits until it can be configured.
    pub fn start(lab: &mut Lab, daemon: &Daemon, namespace: &str, interface: &str) -> Outcome<Self> {
        Self::start_with(lab, daemon, namespace, interface, &[])
    }

    /// As [`start`](Self::start), with additional arguments.
    pub fn start_with(
        lab: &mut Lab,
        daemon: &Daemon,
        namespace: &str,
        interface: &str,
        extra: &[&str],
    ) -> Outcome<Self> {
        let process = lab.start(daemon.command(lab, namespace, interface).args(extra))?;
        // As long as a busy machine needs to measure its engines with a program that is not optimised.
        let patience = Duration::from_secs(60);
        let said = |error| format!("{} does not serve {interface}: {error}", daemon.name());
        // The socket is there before the interface, so that no two daemons share one, and answers after it.
        wait_until(patience, || UnixStream::connect(socket_of(interface)).is_ok()).map_err(said)?;
        wait_until(patience, || converse(interface, "get=1\n\n").is_ok()).map_err(said)?;
        Ok(Self { process, interface: interface.to_owned(), namespace: namespace.to_owned() })
    }

    /// Sends a UAPI set request; the empty line at its end is added here.
    pub fn set(&self, request: &str) -> Outcome<()> {
        let reply = converse(&self.interface, &format!("set=1\n{request}\n"))?;
        if reply.trim_end() == "errno=0" {
            Ok(())
        } else {
            Err(format!("{}: {reply}", self.interface).into())
        }
    }

    /// Sends a UAPI get request.
    pub fn get(&self) -> Outcome<String> {
        converse(&self.interface, "get=1\n\n")
    }

    /// One value of [`get`](Self::get).
    pub fn value(&self, key: &str) -> Outcome<Option<String>> {
        let text = self.get()?;
        Ok(text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned))
    }
}

fn socket_of(interface: &str) -> PathBuf {
    Path::new("/var/run/wireguard").join(format!("{interface}.sock"))
}

/// Sends a UAPI request and returns the answer.
pub fn converse(interface: &str, request: &str) -> Outcome<String> {
    let mut stream = UnixStream::connect(socket_of(interface))?;
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line.is_empty() {
            return Ok(reply);
        }
        writeln!(reply, "{line}")?;
    }
    Err("the daemon closed the connection".into())
}

/// Two gateways with a tunnel between them.
pub struct Tunnel {
    /// Both gateways.
    pub gateways: [Gateway; 2],
    /// Their inner IPv4 addresses.
    pub inside: [String; 2],
    /// Their inner IPv6 addresses.
    pub inside_v6: [String; 2],
}

/// The parameters of a tunnel.
pub struct Plan<'a> {
    /// A prefix for the names of the interfaces.
    pub name: &'a str,
    /// The namespaces.
    pub namespaces: [&'a str; 2],
    /// The outer addresses of the gateways.
    pub outside: [&'a str; 2],
    /// The UDP port of both gateways.
    pub port: u16,
    /// The first two bytes of the inner addresses, such as "10.7".
    pub net: &'a str,
    /// The MTU of the tunnel interfaces.
    pub mtu: u32,
}

impl Plan<'static> {
    /// A tunnel between the namespaces `a` and `b`.
    pub const SITES: Self = Plan {
        name: "t",
        namespaces: ["a", "b"],
        outside: ["192.168.77.1", "192.168.77.2"],
        port: 51_820,
        net: "10.77",
        mtu: 1420,
    };
}

impl Tunnel {
    /// Starts both gateways and configures each as a peer of the other.
    pub fn start(lab: &mut Lab, daemon: &Daemon, plan: &Plan<'_>) -> Outcome<Self> {
        Self::start_between(lab, [daemon, daemon], plan, &[])
    }

    /// As [`start`](Self::start), with two different daemons, and additional arguments for Postern.
    pub fn start_between(
        lab: &mut Lab,
        daemons: [&Daemon; 2],
        plan: &Plan<'_>,
        extra: &[&str],
    ) -> Outcome<Self> {
        let keys = [0, 1].map(|end| private_key(plan.port, end));
        let inside = [1, 2].map(|end| format!("{}.0.{end}", plan.net));
        let inside_v6 = [1, 2].map(|end| format!("fd00:{:x}::{end}", plan.port));
        let mut gateways = Vec::new();
        for end in [0, 1] {
            let interface = lab.interface(&format!("{}{end}", plan.name));
            let ours = matches!(daemons[end], Daemon::Postern(_));
            let extra = if ours { extra } else { &[] };
            let gateway = Gateway::start_with(lab, daemons[end], plan.namespaces[end], &interface, extra)?;
            let (ours, theirs, other) = (&keys[end], keys[1 - end].public(), 1 - end);
            gateway.set(&format!(
                "private_key={}\nlisten_port={}\npublic_key={}\nendpoint={}\nallowed_ip={}/32\nallowed_ip={}/128\n",
                base16ct::lower::encode_string(ours.secret().expose()),
                plan.port,
                base16ct::lower::encode_string(&theirs.0),
                SocketAddr::new(plan.outside[other].parse()?, plan.port),
                inside[other],
                inside_v6[other],
            ))?;
            for address in [format!("{}/24", inside[end]), format!("{}/64 nodad", inside_v6[end])] {
                lab.ip(plan.namespaces[end], &format!("address add {address} dev {interface}"))?;
            }
            lab.ip(plan.namespaces[end], &format!("link set {interface} up mtu {}", plan.mtu))?;
            gateways.push(gateway);
        }
        let gateways = gateways.try_into().unwrap_or_else(|_| unreachable!("two were pushed"));
        let tunnel = Self { gateways, inside, inside_v6 };
        let first = plan.namespaces[0];
        wait_until(Duration::from_secs(15), || {
            lab.run(first, "ping", &["-c", "1", "-W", "1", &tunnel.inside[1]]).is_ok()
        })
        .map_err(|error| {
            format!("{} and {} make no tunnel: {error}", daemons[0].name(), daemons[1].name())
        })?;
        Ok(tunnel)
    }

    /// CPU time of both gateways in seconds.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        Ok(self.gateways[0].process.cpu_seconds()? + self.gateways[1].process.cpu_seconds()?)
    }
}

/// The private key of the first or the second gateway of a tunnel on `port`.
pub fn private_key(port: u16, end: u8) -> PrivateKey {
    let mut bytes = [end + 1; 32];
    bytes[..2].copy_from_slice(&port.to_be_bytes());
    PrivateKey::new(Secret::new(bytes))
}
