//! Two OpenVPN servers, a client that transfers data to the first, and the addresses of all others.

use super::Clients;
use crate::Outcome;
use crypto::hash;
use crypto::random::System;
use lab::traffic;
use lab::{Lab, Process, wait_until};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tunnel::openvpn::wrap::StaticKey;

/// The server with the transfer.
pub(super) const MEASURED: usize = 0;
/// The other one.
pub(super) const OTHER: usize = 1;
/// Namespaces of both, and their outer addresses.
const SERVERS: [(&str, &str); 2] = [("a", "192.168.78.1"), ("d", "192.168.79.1")];
/// The server's inner address.
const INSIDE: &str = "10.9.0.1";
/// How long all clients may take to connect.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client needs of its server.
pub(super) struct Credentials {
    /// The fingerprint of the server's certificate.
    pub(super) server: [u8; 32],
    /// The clients' certificate, which all share.
    pub(super) certificate: CertificateDer<'static>,
    /// Its private key, in PKCS #8.
    pub(super) private: Vec<u8>,
    /// The key of tls-crypt.
    pub(super) wrap: StaticKey,
}

impl Credentials {
    /// The private key, for one configuration of TLS.
    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.private.clone()).expect("PKCS #8")
    }
}

/// The running programs.
pub(super) struct Scene {
    lab: Lab,
    servers: [Process; 2],
    clients: usize,
    credentials: Credentials,
    _files: TempDir,
}

fn fingerprint(der: &[u8]) -> ([u8; 32], String) {
    let bytes = hash::sha256(&[der]);
    let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    (bytes, text.join(":"))
}

impl Scene {
    pub(super) fn new(program: &Path, clients: usize) -> Outcome<Self> {
        let mut lab = lab()?;
        let files = TempDir::new()?;
        let [server, client] = [(); 2].map(|()| generate_simple_self_signed(vec!["storm".to_owned()]));
        let (server, client): (CertifiedKey<_>, CertifiedKey<_>) = (server?, client?);
        let wrap = StaticKey::random(&mut System::default());
        let (of_server, server_text) = fingerprint(server.cert.der());
        let (_, client_text) = fingerprint(client.cert.der());
        let text = |own: &CertifiedKey<rcgen::KeyPair>, peer: &str, name: &str, more: &str| {
            format!(
                "dev {name}\ndev-type tun\nproto udp\ndata-ciphers AES-256-GCM\n<cert>\n{}</cert>\n<key>\n{}</key>\n\
                 <peer-fingerprint>\n{peer}\n</peer-fingerprint>\n<tls-crypt>\n{}</tls-crypt>\n{more}\n",
                own.cert.pem(),
                own.signing_key.serialize_pem(),
                wrap.to_file().as_str()
            )
        };
        let most = clients + 10;
        let more = format!(
            "port 1194\nserver 10.9.0.0 255.255.0.0\ntopology subnet\ndh none\nduplicate-cn\nmax-clients {most}\nkeepalive 30 120"
        );
        let mut servers = Vec::new();
        for (namespace, _) in SERVERS {
            let name = lab.interface(&format!("s{namespace}"));
            let text = text(&server, &client_text, &name, &more);
            servers.push(start(&mut lab, program, namespace, &files, &text)?);
        }
        let name = lab.interface("c");
        let text = text(&client, &server_text, &name, "client\nnobind\nremote 192.168.77.1 1194");
        start(&mut lab, program, "b", &files, &text)?;
        traffic::serve(&mut lab, "a")?;
        wait_until(Duration::from_secs(20), || lab.run("b", "ping", &["-c", "1", "-W", "1", INSIDE]).is_ok())
            .map_err(|error| format!("the client does not connect: {error}"))?;
        let credentials = Credentials {
            server: of_server,
            certificate: client.cert.der().clone(),
            private: client.signing_key.serialize_der(),
            wrap,
        };
        let servers = servers.try_into().map_err(|_| "two servers")?;
        Ok(Self { lab, servers, clients, credentials, _files: files })
    }

    /// Seconds of processor time of the measured server so far.
    pub(super) fn cpu(&self) -> Outcome<f64> {
        Ok(self.servers[MEASURED].cpu_of_threads()?.values().sum())
    }

    /// Bytes of its resident memory.
    pub(super) fn memory(&self) -> Outcome<u64> {
        self.servers[MEASURED].memory()
    }

    /// All clients connect at once; returns the seconds that took.
    pub(super) fn storm(&self, server: usize) -> Outcome<(f64, Clients)> {
        let address = format!("{}:1194", SERVERS[server].1).parse()?;
        let storm = || -> Outcome<(f64, Clients)> {
            let mut clients = Clients::new(self.clients, address, &self.credentials)?;
            let seconds = clients.connect(PATIENCE)?.as_secs_f64();
            Ok((seconds, clients))
        };
        self.lab.enter("c", storm)?
    }

    /// The clients exit.
    pub(super) fn end(&self, mut clients: Clients) -> Outcome<()> {
        self.lab.enter("c", move || clients.stop())
    }

    /// Gbit/s of a transfer.
    pub(super) fn transfer(&self, seconds: u32) -> Outcome<f64> {
        Ok(traffic::tcp(&self.lab, "b", INSIDE, 1, false, seconds)?.gigabits())
    }

    /// Gbit/s of a transfer in which all clients connect to a server at once, and how long that took.
    pub(super) fn transfer_in_storm(&self, server: usize, seconds: u32) -> Outcome<(f64, f64)> {
        std::thread::scope(|scope| {
            let transfer = scope.spawn(move || self.transfer(seconds));
            let start = Instant::now();
            std::thread::sleep(Duration::from_millis(500));
            let (storm, clients) = self.storm(server)?;
            if start.elapsed() > Duration::from_secs(seconds.into()) {
                return Err(
                    format!("the storm took {storm:.1} s, longer than the transfer: add --seconds").into()
                );
            }
            let speed = transfer.join().map_err(|_| "the transfer panicked")??;
            self.end(clients)?;
            Ok((speed, storm))
        })
    }
}

fn lab() -> Outcome<Lab> {
    let lab = Lab::new(&["a", "b", "c", "d"])?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))?;
    lab.connect(("a", "crowd", "192.168.78.1/24"), ("c", "crowda", "192.168.78.2/24"))?;
    lab.connect(("d", "crowd", "192.168.79.1/24"), ("c", "crowdd", "192.168.79.2/24"))?;
    lab.ip("c", "route add local 10.64.0.0/10 dev lo")?;
    for (namespace, gateway) in [("a", "192.168.78.2"), ("d", "192.168.79.2")] {
        lab.ip(namespace, &format!("route add 10.64.0.0/10 via {gateway}"))?;
    }
    Ok(lab)
}

fn start(lab: &mut Lab, program: &Path, namespace: &str, files: &TempDir, text: &str) -> Outcome<Process> {
    let file = files.path().join(format!("{namespace}.conf"));
    std::fs::write(&file, text)?;
    let log = std::fs::File::create(file.with_extension("log"))?;
    let mut command = lab.command(namespace, program);
    command.args(["openvpn", "--config"]).arg(&file).env("LOG_LEVEL", "warn");
    command.stdout(log.try_clone()?).stderr(log);
    lab.start(&mut command)
}
