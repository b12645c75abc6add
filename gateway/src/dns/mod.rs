//! Name servers that an OpenVPN client or a DHCP client has got: set by a process of root that the program starts before it gives up its
//! rights.
//!
//! ```text
//! push reply, lease ──> Request ──> socket ──> helper: systemd-resolved, resolvconf, or /etc/resolv.conf
//!                        log <── Answer <── socket ──┘   put back when the socket closes, however the program ends
//! ```

pub mod helper;
mod resolv_conf;
#[cfg(test)]
mod tests;

use crate::rights::Rights;
use config::openvpn::settings::Dns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long the end of the program waits until the former name servers are back.
const PATIENCE: Duration = Duration::from_secs(5);
/// Name servers and domains that are taken: the C library uses three servers, and six domains were its limit for long.
const MAX: usize = 16;
/// RFC 1035 2.3.4: the longest name.
const LONGEST_NAME: usize = 253;

/// What an interface is to have; nothing takes it back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The interface.
    pub interface: String,
    /// Name servers: address, and port if it is not 53.
    pub servers: Vec<(IpAddr, Option<u16>)>,
    /// The name of the servers in TLS; with one, they are asked over TLS.
    pub server_name: Option<String>,
    /// Whether the servers are asked over TLS.
    pub over_tls: bool,
    /// Whether answers must be signed: `yes`, `no` or `allow-downgrade`.
    pub dnssec: Option<String>,
    /// Domains that are added to names without a dot.
    pub search: Vec<String>,
    /// Domains that these servers alone resolve; all if there is none.
    pub domains: Vec<String>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was done in this way.
    Done(String),
    /// It was not, for this reason.
    Failed(String),
}

/// Whether a text is a domain name, and no more than that: files and command lines have it.
pub(crate) fn is_domain(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_NAME).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_part)
}

impl Request {
    /// What settings ask for; names that are no domains are left out, and returned.
    pub fn of(interface: &str, dns: &Dns) -> (Self, Vec<String>) {
        let mut request = Self { interface: interface.to_owned(), ..Self::default() };
        // As in OpenVPN: the first server of `dns server` that can be used, and `dhcp-option` only without one.
        match dns.servers.iter().find(|it| !it.addresses.is_empty() && it.transport.as_deref() != Some("DoH"))
        {
            Some(server) => {
                request.servers.clone_from(&server.addresses);
                request.over_tls = server.transport.as_deref() == Some("DoT");
                request.server_name.clone_from(&server.server_name);
                request.dnssec = server.dnssec.as_deref().map(|mode| match mode {
                    "optional" => "allow-downgrade".to_owned(),
                    other => other.to_owned(),
                });
                request.domains.clone_from(&server.domains);
            }
            // A script of `up` does that.
            None if dns.is_left => return (request, Vec::new()),
            None => request.servers = dns.dhcp.iter().map(|address| (*address, None)).collect(),
        }
        request.search.clone_from(&dns.search);
        let named = request.search.iter().chain(&request.domains).chain(&request.server_name);
        let wrong = named.filter(|name| !is_domain(name)).cloned().collect();
        request.search.retain(|name| is_domain(name));
        request.domains.retain(|name| is_domain(name));
        request.server_name = request.server_name.filter(|name| is_domain(name));
        request.servers.truncate(MAX);
        request.search.truncate(MAX);
        request.domains.truncate(MAX);
        (request, wrong)
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }

    /// Whether the process of root may carry out this request. The daemon parses packets of unauthenticated sources, and an attacker may
    /// control it.
    fn is_acceptable(&self) -> bool {
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        let interface = &self.interface;
        let names = self.search.iter().chain(&self.domains).chain(&self.server_name);
        (1..=15).contains(&interface.len())
            && !interface.starts_with(['-', '.'])
            && interface.bytes().all(is_name)
            && names.into_iter().all(|name| is_domain(name))
            && self.dnssec.as_deref().is_none_or(|mode| ["yes", "no", "allow-downgrade"].contains(&mode))
            && [self.servers.len(), self.search.len(), self.domains.len()].iter().all(|count| *count <= MAX)
    }

    /// A server as systemd-resolved reads it.
    fn server(&self, (address, port): (IpAddr, Option<u16>)) -> String {
        let address = match port {
            Some(port) => SocketAddr::new(address, port).to_string(),
            None => address.to_string(),
        };
        self.server_name.iter().fold(address, |address, name| format!("{address}#{name}"))
    }
}

/// The daemon's end: one for all interfaces of a process.
#[derive(Clone)]
pub struct NameServers(Arc<Mutex<Inner>>);

struct Inner {
    socket: UnixStream,
    /// How many requests were sent.
    sent: u64,
    /// How many were answered.
    answered: watch::Receiver<u64>,
    /// By interface; none for one that has no name servers.
    last: BTreeMap<String, Request>,
}

impl NameServers {
    /// Takes the socket of a helper. Its answers are logged by a thread of their own.
    pub fn start(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        let answers = BufReader::new(socket.try_clone()?);
        let (answer, answered) = watch::channel(0);
        thread::Builder::new().name("name servers".to_owned()).spawn(move || {
            Rights::None.keep();
            for line in answers.lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(Answer::Done(how)) => tracing::info!("name servers: {how}"),
                    Ok(Answer::Failed(error)) => tracing::warn!("name servers are not set: {error}"),
                    Err(_) => {}
                }
                answer.send_modify(|count| *count += 1);
            }
        })?;
        Ok(Self(Arc::new(Mutex::new(Inner { socket, sent: 0, answered, last: BTreeMap::new() }))))
    }

    /// Sets what differs from the last request.
    pub fn set(&self, request: Request) -> io::Result<()> {
        let mut inner = self.lock();
        let last = inner.last.get(&request.interface);
        if last == Some(&request) || request.is_empty() && last.is_none() {
            return Ok(());
        }
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        inner.socket.write_all(&line)?;
        inner.sent += 1;
        if request.is_empty() {
            inner.last.remove(&request.interface);
        } else {
            inner.last.insert(request.interface.clone(), request);
        }
        Ok(())
    }

    /// Has the former name servers put back, and waits for that.
    pub async fn put_back(&self, interface: &str) {
        if !self.lock().last.contains_key(interface) {
            return;
        }
        let nothing = Request { interface: interface.to_owned(), ..Request::default() };
        if self.set(nothing).is_err() {
            return;
        }
        let (sent, mut answered) = {
            let inner = self.lock();
            (inner.sent, inner.answered.clone())
        };
        // A helper that hangs does not keep the process.
        let _ = timeout(PATIENCE, answered.wait_for(|count| *count >= sent)).await;
    }

    /// A thread that panicked leaves a whole request.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
