//! The daemon's end of the socket to the supervisor of DHCP clients. Nothing here waits for it.

use super::api::Shown;
use super::lease::Lease;
use super::model::{Client, Event, Orders, Report};
use crate::dns::{NameServers, Request};
use crate::helper::Connection;
use crate::host::{HostHandle, LeaseError};
use std::io::{self, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;

/// Bytes of a report.
const LONGEST: u64 = 16 << 10;
/// How long a commit waits for clients that end; the supervisor kills them before.
const PATIENCE: Duration = Duration::from_secs(3);
const UNANSWERED: &str = "no server answers";

/// The clients, as the daemon sees them.
#[derive(Default)]
pub struct Clients {
    inner: Arc<Mutex<Inner>>,
    /// What they have got.
    shown: Shown,
    /// The number of the last orders that are carried out.
    done: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    connection: Connection,
    ordered: Vec<Client>,
    /// How many orders were sent.
    number: u64,
    name_servers: Option<NameServers>,
}

impl Clients {
    /// Has the process at the other end of a connection supervise the clients, and `name_servers` take what they get.
    pub fn new(connection: Connection, name_servers: Option<NameServers>) -> Self {
        let inner = Inner { connection, name_servers, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)), ..Self::default() }
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
            if !clients.iter().any(|it| it.interface == gone.interface) {
                set_name_servers(inner.name_servers.as_ref(), &gone.interface, None);
            }
        }
        inner.ordered = clients;
        self.shown.expect(inner.ordered.iter().map(|it| it.interface.clone()));
        if matches!(inner.connection, Connection::Off) {
            let nothing = "settings of the machine are switched off; start the daemon without --no-machine";
            return self.shown.fail(nothing);
        }
        if let Err(error) = self.read(&inner, host).and_then(|()| inner.send(Vec::new())) {
            // One that did not hear that it is to end must not go on.
            inner.give_up();
            self.shown.fail(&format!("the DHCP clients cannot be reached: {error}; restart the daemon"));
            tracing::error!("the DHCP clients cannot be reached: {error}\n  fix: restart the daemon");
        }
    }

    /// Ends the clients whose interfaces are not in `kept`, and waits until they have given their addresses back: a release is
    /// sent from the address.
    pub(crate) async fn end_others(&self, kept: &[Client], host: &HostHandle) {
        let (is_less, rest, number) = {
            let inner = self.lock();
            let is_kept = |it: &&Client| kept.iter().any(|kept| kept.interface == it.interface);
            let rest: Vec<Client> = inner.ordered.iter().filter(is_kept).cloned().collect();
            (rest.len() < inner.ordered.len(), rest, inner.number + 1)
        };
        if !is_less {
            return;
        }
        self.order(rest, host);
        let mut done = self.done.subscribe();
        let is_done = done.wait_for(|done| *done >= number);
        if !matches!(self.lock().connection, Connection::Off)
            && tokio::time::timeout(PATIENCE, is_done).await.is_err()
        {
            tracing::warn!(
                "a DHCP client has not ended in time: its server keeps the address until it expires"
            );
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

    /// Has reports read from the first orders on.
    fn read(&self, inner: &Inner, host: &HostHandle) -> io::Result<()> {
        let Connection::Inherited(stream) = &inner.connection else { return Ok(()) };
        if inner.number > 0 {
            return Ok(());
        }
        let reader = UnixStream::from_std(stream.try_clone()?)?;
        let reading = Reading {
            host: host.clone(),
            shown: self.shown.clone(),
            inner: Arc::clone(&self.inner),
            done: self.done.clone(),
            name_servers: inner.name_servers.clone(),
        };
        tokio::spawn(reading.go_on(reader));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Sends the orders. A few hundred bytes always fit, unless nobody has read for very long.
    fn send(&mut self, refused: Vec<String>) -> io::Result<()> {
        let Connection::Inherited(stream) = &self.connection else { return Ok(()) };
        self.number += 1;
        let orders = Orders { clients: self.ordered.clone(), refused, number: self.number };
        let mut line = serde_json::to_vec(&orders)?;
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
    inner: Arc<Mutex<Inner>>,
    done: watch::Sender<u64>,
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
                Ok(Report::Started) => self.send(Vec::new()),
                Ok(Report::Done(number)) => _ = self.done.send_replace(number),
                Ok(Report::Client(interface, event)) => self.take(&interface, event),
                Err(error) => tracing::debug!("a report of a DHCP client cannot be read: {error}"),
            }
        }
    }

    /// Sends the orders again.
    fn send(&self, refused: Vec<String>) {
        if let Err(error) = lock(&self.inner).send(refused) {
            tracing::error!("the DHCP clients cannot be reached: {error}\n  fix: restart the daemon");
        }
    }

    fn take(&self, interface: &str, event: Event) {
        // The line may have gone meanwhile.
        if !self.shown.has(interface) {
            return;
        }
        match event {
            Event::Bound(lease) if lease.is_usable() => self.bind(interface, lease),
            Event::Bound(_) => {}
            // Its time is known, and counts: servers may be away for a while, and answers may be of another machine.
            Event::Unusable(why) if self.shown.holds(interface) => self.say(interface, &why),
            Event::Unanswered if self.shown.holds(interface) => self.say(interface, UNANSWERED),
            Event::Unanswered => self.lose(interface, UNANSWERED),
            Event::Unusable(why) | Event::Lost(why) => self.lose(interface, &why),
            Event::Failed(why) => self.say(interface, &why),
        }
    }

    /// Something is wrong, and what the interface has got stays.
    fn say(&self, interface: &str, why: &str) {
        if self.shown.problem(interface, why) {
            tracing::error!("interface {interface}: {why}");
        }
    }

    fn lose(&self, interface: &str, why: &str) {
        if self.shown.lose(interface, why) {
            tracing::warn!("interface {interface} has no address by DHCP: {why}");
        }
        if let Err(error) = self.host.lease(interface, None) {
            tracing::warn!("interface {interface}: {error}");
        }
        set_name_servers(self.name_servers.as_ref(), interface, None);
    }

    fn bind(&self, interface: &str, lease: Lease) {
        let outcome = self.host.lease(interface, Some(&lease));
        if let Err(LeaseError::Refused(error)) = outcome {
            self.lose(interface, &error.to_string());
            return self.send(vec![interface.to_owned()]);
        }
        if self.shown.bind(interface, lease.clone()) {
            let router = lease.router.map_or_else(|| "none".to_owned(), |router| router.to_string());
            tracing::info!("interface {interface} has {} by DHCP, router {router}", lease.address);
        }
        if let Err(error) = &outcome {
            self.say(interface, &error.to_string());
        }
        // Without the route, the address is in force.
        if matches!(outcome, Err(LeaseError::Address(_))) {
            return;
        }
        let request = Request {
            interface: interface.to_owned(),
            servers: lease.name_servers.iter().map(|server| ((*server).into(), None)).collect(),
            search: lease.domain.into_iter().collect(),
            ..Request::default()
        };
        set_name_servers(self.name_servers.as_ref(), interface, Some(request));
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
