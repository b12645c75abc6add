//! The daemon's end of the socket to the supervisor of DHCP clients. Nothing here waits for it.

use super::api::Shown;
use super::model::{Client, Event, Orders, Report};
use crate::host::{HostHandle, LeaseError};
use crate::openvpn::dns::{NameServers, Request};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;

/// Bytes of a report.
const LONGEST: u64 = 16 << 10;

/// Where the supervisor is reached.
#[derive(Debug, Default)]
pub enum Connection {
    /// By this socket, of a process that was started with the daemon.
    Inherited(StdStream),
    /// There is none.
    #[default]
    Off,
}

/// The clients, as the daemon sees them.
#[derive(Default)]
pub struct Clients {
    inner: Mutex<Inner>,
    /// What they have got.
    shown: Shown,
}

#[derive(Default)]
struct Inner {
    connection: Connection,
    ordered: Vec<Client>,
    /// Whether reports are read.
    is_read: bool,
    name_servers: Option<NameServers>,
}

impl Clients {
    /// Has the process at the other end of a connection supervise the clients, and `name_servers` take what they get.
    pub fn new(connection: Connection, name_servers: Option<NameServers>) -> Self {
        let inner = Inner { connection, name_servers, ..Inner::default() };
        Self { inner: Mutex::new(inner), shown: Shown::default() }
    }

    /// What they have got.
    pub(crate) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// Has these clients run, and no others. What they get is the host's.
    pub(crate) fn order(&self, clients: Vec<Client>, host: &HostHandle) {
        let mut inner = self.lock();
        if inner.ordered == clients {
            return;
        }
        for gone in &inner.ordered {
            let is_same = |it: &Client| it.interface == gone.interface;
            if !clients.iter().any(is_same) {
                set_name_servers(inner.name_servers.as_ref(), &gone.interface, None);
            }
        }
        inner.ordered = clients;
        self.shown.expect(inner.ordered.iter().map(|it| it.interface.clone()));
        if let Err(error) = inner.send(host, &self.shown) {
            // One that did not hear that it is to end must not go on.
            inner.give_up();
            self.shown.fail(&format!("the DHCP clients cannot be reached: {error}; restart the daemon"));
            tracing::error!("the DHCP clients cannot be reached: {error}\n  fix: restart the daemon");
        }
    }

    /// Takes away leases that have ended although no client says so, as one that does not run does not.
    pub(crate) fn expire(&self, host: &HostHandle) {
        for interface in self.shown.expired() {
            tracing::warn!("interface {interface} has no address by DHCP: the lease has ended");
            if let Err(error) = host.lease(&interface, None) {
                tracing::warn!("interface {interface}: {error}");
            }
            set_name_servers(self.lock().name_servers.as_ref(), &interface, None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Sends the order. A few hundred bytes always fit, unless nobody has read for very long.
    fn send(&mut self, host: &HostHandle, shown: &Shown) -> io::Result<()> {
        let Connection::Inherited(stream) = &self.connection else {
            let nothing = "settings of the machine are switched off; start the daemon without --no-machine";
            shown.fail(nothing);
            return Ok(());
        };
        if !self.is_read {
            let reader = UnixStream::from_std(stream.try_clone()?)?;
            let reading =
                Reading { host: host.clone(), shown: shown.clone(), name_servers: self.name_servers.clone() };
            tokio::spawn(reading.go_on(reader));
            self.is_read = true;
        }
        let mut line = serde_json::to_vec(&Orders { clients: self.ordered.clone() })?;
        line.push(b'\n');
        let mut stream = stream;
        stream.write_all(&line)
    }

    fn give_up(&self) {
        if let Connection::Inherited(stream) = &self.connection {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Takes reports.
struct Reading {
    host: HostHandle,
    shown: Shown,
    name_servers: Option<NameServers>,
}

impl Reading {
    /// Until the supervisor has ended.
    async fn go_on(self, stream: UnixStream) {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut line).await;
            if !read.is_ok_and(|bytes| bytes > 0) {
                let why = "the processes of the DHCP clients have ended";
                tracing::error!("{why}\n  fix: restart the daemon");
                return self.shown.fail(&format!("{why}; restart the daemon"));
            }
            match serde_json::from_slice(&line) {
                Ok(report) => self.take(report),
                Err(error) => tracing::debug!("a report of a DHCP client cannot be read: {error}"),
            }
        }
    }

    fn take(&self, Report { interface, event }: Report) {
        // The line may have gone meanwhile.
        if !self.shown.has(&interface) {
            return;
        }
        let lease = match event {
            Event::Bound(lease) if lease.is_usable() => lease,
            Event::Bound(_) => return,
            Event::Lost(why) => {
                if self.shown.lose(&interface, why.clone()) {
                    let why = why.map_or_else(String::new, |why| format!(": {why}"));
                    tracing::warn!("interface {interface} has no address by DHCP{why}");
                }
                if let Err(error) = self.host.lease(&interface, None) {
                    tracing::warn!("interface {interface}: {error}");
                }
                return set_name_servers(self.name_servers.as_ref(), &interface, None);
            }
            Event::Failed(why) => {
                if self.shown.problem(&interface, &why) {
                    tracing::error!("interface {interface}: {why}");
                }
                return;
            }
        };
        if self.shown.bind(&interface, lease.clone()) {
            let router = lease.router.map_or_else(|| "none".to_owned(), |router| router.to_string());
            tracing::info!("interface {interface} has {} by DHCP, router {router}", lease.address);
        }
        if let Err(error) = self.host.lease(&interface, Some(&lease)) {
            let why = error.to_string();
            if self.shown.problem(&interface, &why) {
                tracing::error!("interface {interface}: {why}");
            }
            // Without the route, the address is in force.
            if matches!(error, LeaseError::Address(_)) {
                return set_name_servers(self.name_servers.as_ref(), &interface, None);
            }
        }
        let request = Request {
            interface: interface.clone(),
            servers: lease.name_servers.iter().map(|server| ((*server).into(), None)).collect(),
            search: lease.domain.into_iter().collect(),
            ..Request::default()
        };
        set_name_servers(self.name_servers.as_ref(), &interface, Some(request));
    }
}

/// Sets name servers of an interface, or puts back what was before.
fn set_name_servers(of: Option<&NameServers>, interface: &str, request: Option<Request>) {
    let request =
        request.unwrap_or_else(|| Request { interface: interface.to_owned(), ..Request::default() });
    if let Some(Err(error)) = of.map(|it| it.set(request)) {
        tracing::warn!("interface {interface}: name servers are not set: {error}");
    }
}
