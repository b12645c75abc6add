//! strongSwan in a lab: charon with ESP in user space (kernel-libipsec), configured by swanctl.
//!
//! Each instance has its own directory and its own `/run`, so that several can run at the same time.

use crate::Outcome;
use crate::{Lab, Process, directory, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const CHARON: &str = "/usr/lib/ipsec/charon";
/// The plugins to load: all that the interoperation tests need, faster ones first. kernel-libipsec comes before
/// kernel-netlink, which then only manages routes. `aesni` exists on x86 only.
const PLUGINS: &str = "random nonce aesni openssl aes sha1 sha2 hmac kdf gcm ccm ctr xcbc cmac chapoly curve25519 gmp pem \
    pkcs1 pkcs8 x509 pubkey revocation constraints kernel-libipsec kernel-netlink socket-default vici updown counters";

/// Directories in which swanctl looks for certificates of hosts and CAs, CRLs, and private and public keys.
const CREDENTIALS: [&str; 5] = ["x509", "x509ca", "x509crl", "private", "pubkey"];

/// A running charon.
pub struct StrongSwan {
    /// The process.
    pub process: Process,
    /// Its namespace.
    pub namespace: String,
    directory: TempDir,
}

impl StrongSwan {
    /// The first missing package of strongSwan.
    pub fn missing() -> Option<&'static str> {
        let needed = [
            (CHARON, "strongswan-charon"),
            ("/usr/sbin/swanctl", "strongswan-swanctl"),
            ("/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so", "libcharon-extra-plugins"),
            ("/usr/lib/ipsec/plugins/libstrongswan-chapoly.so", "libstrongswan-extra-plugins"),
        ];
        needed.into_iter().find(|(file, _)| !Path::new(file).exists()).map(|(_, package)| package)
    }

    /// Starts charon in a namespace, with this swanctl.conf, and settings for the section `charon`.
    pub fn start(lab: &mut Lab, namespace: &str, swanctl: &str, charon: &str) -> Outcome<Self> {
        Self::start_with(lab, namespace, swanctl, PLUGINS, charon, "default = 1\n ike = 2\n cfg = 2")
    }

    /// As [`start`](Self::start), with other plugins and log levels.
    pub fn start_with(
        lab: &mut Lab,
        namespace: &str,
        swanctl: &str,
        plugins: &str,
        charon: &str,
        log: &str,
    ) -> Outcome<Self> {
        if let Some(package) = Self::missing() {
            return Err(format!("strongSwan is not installed\n  fix: apt-get install {package}").into());
        }
        let directory = directory(lab, namespace)?;
        for folder in CREDENTIALS {
            std::fs::create_dir(directory.path().join(folder))?;
        }
        let path = directory.path().display();
        let settings = format!(
            "charon {{\n load = {plugins}\n {charon}\n\
             filelog {{ log {{ path = {path}/log\n {log}\n flush_line = yes\n }} }}\n\
             plugins {{ vici {{ socket = unix://{path}/vici\n }} }}\n }}\n"
        );
        std::fs::write(directory.path().join("strongswan.conf"), settings)?;
        std::fs::write(directory.path().join("swanctl.conf"), swanctl)?;
        let process = Self::run(lab, namespace, directory.path())?;
        let started = Self { process, namespace: namespace.to_owned(), directory };
        started.load(lab)?;
        Ok(started)
    }

    fn run(lab: &mut Lab, namespace: &str, directory: &Path) -> Outcome<Process> {
        let mut command = lab.command(namespace, "unshare");
        command
            .args(["--mount", "sh", "-c", &format!("mount -t tmpfs none /run; exec {CHARON}")])
            .env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("errors"))?);
        let process = lab.start(&mut command)?;
        let socket = directory.join("vici");
        wait_until(Duration::from_secs(10), || socket.exists()).map_err(|error| {
            let said = std::fs::read_to_string(directory.join("errors")).unwrap_or_default();
            format!("charon does not start: {error}\n{said}")
        })?;
        Ok(process)
    }

    /// Kills charon, to simulate a crash.
    pub fn kill(&self, lab: &mut Lab) {
        self.end(lab, rustix::process::Signal::KILL);
    }

    /// Stops charon with a signal.
    pub fn end(&self, lab: &mut Lab, signal: rustix::process::Signal) {
        lab.kill(self.process, signal);
        let _ = std::fs::remove_file(self.directory.path().join("vici"));
    }

    /// Starts charon again after [`end`](Self::end).
    pub fn restart(&mut self, lab: &mut Lab) -> Outcome<()> {
        self.process = Self::run(lab, &self.namespace, self.directory.path())?;
        self.load(lab)
    }

    /// The path of a file in its directory, for keys and certificates.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs swanctl.
    pub fn swanctl(&self, lab: &Lab, arguments: &[&str]) -> Outcome<String> {
        let uri = format!("unix://{}", self.directory.path().join("vici").display());
        let mut command = lab.command(&self.namespace, "swanctl");
        command.args(arguments).args(["--uri", &uri]).env("SWANCTL_DIR", self.directory.path());
        crate::output(command.env("STRONGSWAN_CONF", self.directory.path().join("strongswan.conf")))
    }

    /// Replaces the configuration and loads it.
    pub fn reconfigure(&self, lab: &Lab, swanctl: &str) -> Outcome<()> {
        std::fs::write(self.file("swanctl.conf"), swanctl)?;
        self.load(lab)
    }

    /// Loads the configuration.
    pub fn load(&self, lab: &Lab) -> Outcome<()> {
        let file = self.directory.path().join("swanctl.conf");
        self.swanctl(lab, &["--load-all", "--noprompt", "--file", &file.to_string_lossy()]).map(drop)
    }

    /// Initiates a Child SA and waits until it is established.
    pub fn initiate(&self, lab: &Lab, child: &str) -> Outcome<String> {
        self.swanctl(lab, &["--initiate", "--timeout", "15", "--child", child])
    }

    /// Lists the IKE and Child SAs.
    pub fn sas(&self, lab: &Lab) -> Outcome<String> {
        self.swanctl(lab, &["--list-sas"])
    }

    /// The log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// The version of the installed charon.
pub fn version() -> String {
    let said = Command::new(CHARON).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).trim().to_owned()
}
