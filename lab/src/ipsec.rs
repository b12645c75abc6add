//! Pairs of gateways that connect two sites with AES-256-GCM: Postern with IPsec, strongSwan with ESP in user space,
//! and OpenVPN. Each pair has its own namespaces and link, since all use the same ports.

use crate::Outcome;
use crate::postern::Postern;
use crate::strongswan::{self, StrongSwan};
use crate::wireguard::{Gateway, Tunnel, version_of_postern};
use crate::{Lab, Process, directory, run, wait_until};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A gateway program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// Postern.
    Postern(PathBuf),
    /// Postern without encryption, to measure the cost of the rest.
    PosternWithoutCipher(PathBuf),
    /// strongSwan with kernel-libipsec.
    StrongSwan,
    /// OpenVPN.
    OpenVpn,
}

/// The pre-shared secret.
const SECRET: &str = "of a benchmark, and of nothing else";
/// Time limit for a pair to connect.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two running gateways, with the resources that must live as long.
pub struct Pair {
    /// The tunnel, in the form that measurements take.
    pub tunnel: Tunnel,
    _charons: Vec<StrongSwan>,
    _posterns: Vec<Postern>,
    _directory: TempDir,
}

impl Daemon {
    /// The name used in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Postern(_) => "postern",
            Self::PosternWithoutCipher(_) => "postern, no cipher",
            Self::StrongSwan => "strongswan",
            Self::OpenVpn => "openvpn",
        }
    }

    /// The version that the program reports.
    pub fn version(&self) -> String {
        match self {
            Self::Postern(program) | Self::PosternWithoutCipher(program) => version_of_postern(program),
            Self::StrongSwan => format!("{}, kernel-libipsec", strongswan::version()),
            Self::OpenVpn => {
                // `openvpn --version` exits with an error code.
                let said = Command::new("openvpn").arg("--version").output().map(|it| it.stdout);
                let said = said.unwrap_or_default();
                String::from_utf8_lossy(&said).lines().next().unwrap_or("unknown").to_owned()
            }
        }
    }

    /// Connects two namespaces that have a link; both inner networks are in 10.`net`.0.0/16.
    pub fn join(&self, lab: &mut Lab, namespaces: [&str; 2], net: u8) -> Outcome<Pair> {
        let directory = directory(lab, namespaces[0])?;
        let site = |end: usize| Site { end, namespace: namespaces[end], net, directory: directory.path() };
        let sites = [site(0), site(1)];
        let (mut charons, mut posterns) = (Vec::new(), Vec::new());
        let mut processes = Vec::new();
        if *self == Self::OpenVpn {
            certificates(directory.path())?;
        }
        for site in &sites {
            processes.push(match self {
                Self::Postern(program) | Self::PosternWithoutCipher(program) => {
                    let without = matches!(self, Self::PosternWithoutCipher(_));
                    let verb = if without { &["bench", "run-without-cipher"][..] } else { &["run"] };
                    site.add_inside(lab)?;
                    let mut postern = Postern::new(lab, site.namespace, program)?;
                    postern.write(&site.configuration());
                    let process = postern.start_with(lab, verb, "error", PATIENCE)?;
                    posterns.push(postern);
                    process
                }
                Self::StrongSwan => {
                    site.add_inside(lab)?;
                    let charon = StrongSwan::start(lab, site.namespace, &site.swanctl(), "")?;
                    charons.push(charon);
                    charons.last().expect("just pushed").process
                }
                Self::OpenVpn => site.start_openvpn(lab)?,
            });
        }
        if let Some(first) = charons.first() {
            first.initiate(lab, "net")?;
        }
        let gateways = [0, 1].map(|end| Gateway {
            process: processes[end],
            interface: String::new(),
            namespace: namespaces[end].to_owned(),
        });
        let inside = sites.each_ref().map(Site::inside);
        let pair = Pair {
            tunnel: Tunnel { gateways, inside: inside.clone(), inside_v6: [String::new(), String::new()] },
            _charons: charons,
            _posterns: posterns,
            _directory: directory,
        };
        let answers = || lab.run(namespaces[0], "ping", &["-c", "1", "-W", "1", &inside[1]]).is_ok();
        wait_until(PATIENCE, answers)
            .map_err(|error| format!("the pair of {} does not connect: {error}", self.name()))?;
        Ok(pair)
    }
}

/// One end of a pair.
struct Site<'a> {
    end: usize,
    namespace: &'a str,
    net: u8,
    directory: &'a Path,
}

impl Site<'_> {
    fn network(&self, end: usize) -> String {
        format!("10.{}.{}.0/24", self.net, end + 1)
    }

    fn inside(&self) -> String {
        format!("10.{}.{}.1", self.net, self.end + 1)
    }

    fn outside(end: usize) -> String {
        format!("192.168.77.{}", end + 1)
    }

    fn add_inside(&self, lab: &Lab) -> Outcome<()> {
        lab.ip(self.namespace, &format!("address add {}/24 dev lo", self.inside())).map(drop)
    }

    fn configuration(&self) -> String {
        let (ours, theirs) = (Self::outside(self.end), Self::outside(1 - self.end));
        let begins = if self.end == 0 { "initiate" } else { "none" };
        let (local, remote) = (self.network(self.end), self.network(1 - self.end));
        let lines = [
            "esp-group E proposal 1 encryption aes256gcm128".to_owned(),
            "ike-group I proposal 1 dh-group 19".to_owned(),
            "ike-group I proposal 1 encryption aes256gcm128".to_owned(),
            "ike-group I proposal 1 prf prfsha256".to_owned(),
            format!("authentication psk P id {ours}"),
            format!("authentication psk P id {theirs}"),
            format!("authentication psk P secret '{SECRET}'"),
            "site-to-site peer other authentication mode pre-shared-secret".to_owned(),
            format!("site-to-site peer other authentication local-id {ours}"),
            format!("site-to-site peer other authentication remote-id {theirs}"),
            format!("site-to-site peer other connection-type {begins}"),
            "site-to-site peer other ike-group I".to_owned(),
            format!("site-to-site peer other local-address {ours}"),
            format!("site-to-site peer other remote-address {theirs}"),
            "site-to-site peer other tunnel 1 esp-group E".to_owned(),
            format!("site-to-site peer other tunnel 1 local prefix {local}"),
            format!("site-to-site peer other tunnel 1 remote prefix {remote}"),
        ];
        lines.map(|line| format!("set vpn ipsec {line}\n")).concat()
    }

    fn swanctl(&self) -> String {
        let (ours, theirs) = (Self::outside(self.end), Self::outside(1 - self.end));
        let (local, remote) = (self.network(self.end), self.network(1 - self.end));
        format!(
            "connections {{ site {{\n version = 2\n local_addrs = {ours}\n remote_addrs = {theirs}\n encap = yes\n\
             proposals = aes256gcm16-prfsha256-ecp256\n\
             local {{ auth = psk\n id = {ours}\n }}\n remote {{ auth = psk\n id = {theirs}\n }}\n\
             children {{ net {{ local_ts = {local}\n remote_ts = {remote}\n esp_proposals = aes256gcm16\n }} }}\n }} }}\n\
             secrets {{ ike-site {{ secret = \"{SECRET}\"\n }} }}\n"
        )
    }

    fn start_openvpn(&self, lab: &mut Lab) -> Outcome<Process> {
        let other = 1 - self.end;
        let file = |name: String| self.directory.join(name).to_string_lossy().into_owned();
        let fingerprint = fingerprint(&self.directory.join(format!("{other}.crt")))?;
        let role = if self.end == 0 { "--tls-client" } else { "--tls-server" };
        let mut command = lab.command(self.namespace, "openvpn");
        command
            .args(["--dev", &format!("v{}{}", self.net, self.end), "--dev-type", "tun", "--proto", "udp"])
            .args(["--remote", &Self::outside(other), "--port", "1194", role])
            .args(["--ifconfig", &self.inside(), &format!("10.{}.{}.1", self.net, other + 1)])
            .args(["--cert", &file(format!("{}.crt", self.end)), "--key", &file(format!("{}.key", self.end))])
            .args(["--peer-fingerprint", &fingerprint, "--data-ciphers", "AES-256-GCM", "--verb", "1"])
            .args(if self.end == 1 { &["--dh", "none"][..] } else { &[] })
            .stdout(std::fs::File::create(self.directory.join(format!("{}.log", self.end)))?);
        lab.start(&mut command)
    }
}

/// The fingerprint of a certificate, as OpenVPN's `peer-fingerprint` takes it.
pub(crate) fn fingerprint(certificate: &Path) -> Outcome<String> {
    let file = certificate.to_string_lossy();
    let written = run("openssl", ["x509", "-noout", "-fingerprint", "-sha256", "-in", &file])?;
    Ok(written.trim().rsplit('=').next().unwrap_or_default().to_owned())
}

/// Creates certificates for both ends, each trusted by its fingerprint.
pub(crate) fn certificates(directory: &Path) -> Outcome<()> {
    for end in [0, 1] {
        let file = |kind: &str| directory.join(format!("{end}.{kind}")).to_string_lossy().into_owned();
        run(
            "openssl",
            [
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=site",
                "-keyout",
                &file("key"),
                "-out",
                &file("crt"),
            ],
        )?;
    }
    Ok(())
}
