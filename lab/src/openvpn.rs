//! Pairs of OpenVPN gateways, a client and a server: Postern, or OpenVPN itself.
//!
//! The peers know each other's certificates by fingerprint. Each pair has its own namespaces and link, since all use the same
//! ports.

use crate::ipsec::{self, certificates, fingerprint};
use crate::wireguard::{Gateway, Tunnel, version_of_postern};
use crate::{Lab, Outcome, Process, directory, wait_until};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The outer address of the server.
const SERVER: &str = "192.168.77.2";
/// Time limit for a pair to connect.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that speaks OpenVPN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// OpenVPN.
    Stock,
    /// Postern.
    Postern(PathBuf),
    /// Postern with an engine that neither encrypts nor authenticates.
    PosternWithoutCipher(PathBuf),
}

impl Program {
    /// The version that the program reports.
    pub fn version(&self) -> String {
        match self {
            Self::Stock => ipsec::Daemon::OpenVpn.version(),
            Self::Postern(program) | Self::PosternWithoutCipher(program) => version_of_postern(program),
        }
    }

    fn command(&self, lab: &Lab, namespace: &str) -> std::process::Command {
        match self {
            Self::Stock => {
                let mut command = lab.command(namespace, "openvpn");
                command.args(["--disable-dco", "--verb", "1"]);
                command
            }
            Self::Postern(program) => {
                let mut command = lab.command(namespace, program);
                command.arg("openvpn");
                command
            }
            Self::PosternWithoutCipher(program) => {
                let mut command = lab.command(namespace, program);
                command.args(["bench", "openvpn-without-cipher"]);
                command
            }
        }
    }
}

/// How data packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataChannel {
    /// AES-256-GCM.
    Aead,
    /// AES-256-CBC with HMAC-SHA256.
    CipherAndDigest,
    /// HMAC-SHA256 alone.
    Digest,
    /// Neither: `cipher none` and `auth none`.
    Bare,
}

impl DataChannel {
    /// As directives of OpenVPN. After 64 MiB without a cipher OpenVPN would renew keys.
    fn directives(self) -> &'static str {
        match self {
            Self::Aead => "data-ciphers AES-256-GCM\n",
            Self::CipherAndDigest => "data-ciphers AES-256-CBC\nauth SHA256\n",
            Self::Digest => "data-ciphers none\nauth SHA256\nreneg-bytes 0\n",
            Self::Bare => "data-ciphers none\nauth none\nreneg-bytes 0\n",
        }
    }
}

/// What carries the packets of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// One TCP connection.
    Tcp,
}

impl Transport {
    /// As a directive of the client, or of the server.
    fn directive(self, is_server: bool) -> &'static str {
        match (self, is_server) {
            (Self::Udp, _) => "proto udp\n",
            (Self::Tcp, false) => "proto tcp-client\n",
            (Self::Tcp, true) => "proto tcp-server\n",
        }
    }
}

/// Two running gateways, with the files that must live as long.
pub struct Pair {
    /// The tunnel, in the form that measurements take: the client, and the server.
    pub tunnel: Tunnel,
    _directory: TempDir,
}

/// Connects two namespaces that have a link; the inner network is 10.`net`.0.0/24.
pub fn join(
    lab: &mut Lab,
    [client, server]: [&Program; 2],
    (transport, channel): (Transport, DataChannel),
    namespaces: [&str; 2],
    net: u8,
) -> Outcome<Pair> {
    let directory = directory(lab, namespaces[0])?;
    certificates(directory.path())?;
    let mut gateways = Vec::new();
    for (end, program) in [(1, server), (0, client)] {
        let interface = lab.interface(&format!("o{net}{}", ["c", "s"][end]));
        let text = configuration(directory.path(), end, &interface, (transport, channel), net)?;
        let file = directory.path().join(format!("{end}.conf"));
        std::fs::write(&file, text)?;
        let process = start(lab, program, namespaces[end], &file)?;
        gateways.insert(0, Gateway { process, interface, namespace: namespaces[end].to_owned() });
    }
    let gateways: [Gateway; 2] = gateways.try_into().unwrap_or_else(|_| unreachable!("two were inserted"));
    let inside = [2, 1].map(|host| format!("10.{net}.0.{host}"));
    let answers = || lab.run(namespaces[0], "ping", &["-c", "1", "-W", "1", &inside[1]]).is_ok();
    wait_until(PATIENCE, answers).map_err(|error| {
        let log = |end: u8| std::fs::read_to_string(directory.path().join(format!("{end}.log")));
        let logs = [0, 1].map(|end| log(end).unwrap_or_default()).concat();
        format!(
            "{client:?} and {server:?} with {transport:?} and {channel:?} do not connect: {error}\n{logs}"
        )
    })?;
    let inside_v6 = [String::new(), String::new()];
    Ok(Pair { tunnel: Tunnel { gateways, inside, inside_v6 }, _directory: directory })
}

fn start(lab: &mut Lab, program: &Program, namespace: &str, file: &Path) -> Outcome<Process> {
    let log = File::create(file.with_extension("log"))?;
    let mut command = program.command(lab, namespace);
    command.arg("--config").arg(file).env("LOG_LEVEL", "warn").stdout(log.try_clone()?).stderr(log);
    lab.start(&mut command)
}

fn configuration(
    directory: &Path,
    end: usize,
    interface: &str,
    (transport, channel): (Transport, DataChannel),
    net: u8,
) -> Outcome<String> {
    let file = |kind: &str| directory.join(format!("{end}.{kind}")).to_string_lossy().into_owned();
    let mut text = format!(
        "dev {interface}\ndev-type tun\n{}cert {}\nkey {}\n<peer-fingerprint>\n{}\n</peer-fingerprint>\n{}",
        transport.directive(end == 1),
        file("crt"),
        file("key"),
        fingerprint(&directory.join(format!("{}.crt", 1 - end)))?,
        channel.directives(),
    );
    if end == 0 {
        write!(text, "client\nnobind\nremote {SERVER} 1194\n")?;
    } else {
        write!(
            text,
            "port 1194\nserver 10.{net}.0.0 255.255.255.0\ntopology subnet\ndh none\nkeepalive 10 60\n"
        )?;
    }
    Ok(text)
}
