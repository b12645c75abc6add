//! The daemon's end of the socket to the HTTPS server.
//!
//! A server that starts again says so, and gets the latest orders.

use super::wire::{Enrollment, LONGEST, MOST_SOCKETS, Metrics, Orders, Page, PartReport, Report, Service};
use crate::helper::Connection;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use zeroize::Zeroizing;

/// How long the server may take to carry out orders: it may have to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why orders are not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// There is no server.
    #[error(
        "no process serves the API over HTTPS, metrics, the status page and enrolment\n  fix: start the daemon without --no-https"
    )]
    Off,
    /// The socket cannot be used.
    #[error("the HTTPS server cannot be reached: {0}\n  fix: restart the daemon")]
    Unreachable(io::Error),
    /// The server and its supervisor have ended.
    #[error("the processes of the HTTPS server have ended\n  fix: restart the daemon")]
    Ended,
    /// It did not report in time.
    #[error("the HTTPS server does not answer\n  fix: see its messages in the log of the daemon")]
    Silent,
    /// It cannot carry them out.
    #[error("service {0}: {1}")]
    Refused(&'static str, String),
}

/// The server, as the daemon sees it.
#[derive(Default)]
pub struct Process {
    connection: Connection,
    link: Option<Link>,
    number: u64,
    api: Part<Service>,
    metrics: Part<Metrics>,
    page: Part<Page>,
    enrollment: Part<Enrollment>,
}

/// A part of what the server is to do, with its listening sockets.
struct Part<T> {
    wanted: Option<T>,
    sockets: Vec<OwnedFd>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { wanted: None, sockets: Vec::new() }
    }
}

impl<T> Part<T> {
    fn new(wanted: Option<T>, sockets: &[BorrowedFd<'_>]) -> Result<Self, OrderError> {
        let copies: io::Result<Vec<OwnedFd>> = sockets.iter().map(BorrowedFd::try_clone_to_owned).collect();
        Ok(Self { wanted, sockets: copies.map_err(OrderError::Unreachable)? })
    }
}

/// The socket, once it is used.
struct Link {
    latest: Arc<Mutex<Latest>>,
    reports: watch::Receiver<Report>,
}

/// The latest orders, for a server that starts again.
struct Latest {
    stream: Arc<UnixStream>,
    line: Zeroizing<Vec<u8>>,
    sockets: Vec<OwnedFd>,
}

impl Process {
    /// The server at the other end of a connection.
    pub fn new(connection: Connection) -> Self {
        Self { connection, ..Self::default() }
    }

    /// Has the server serve this API, with these sockets; or none. The fingerprint of its certificate.
    pub async fn order(
        &mut self,
        service: Option<Service>,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<Option<String>, OrderError> {
        self.api = Part::new(service, sockets)?;
        let report = self.send("https").await?.map(|report| report.api);
        outcome("https", self.api.wanted.as_ref().and(report))
    }

    /// Has the server serve these metrics, with these sockets; or none. The fingerprint of its certificate, if it has one.
    pub async fn order_metrics(
        &mut self,
        metrics: Option<Metrics>,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<Option<String>, OrderError> {
        self.metrics = Part::new(metrics, sockets)?;
        let report = self.send("metrics").await?.map(|report| report.metrics);
        outcome("metrics", self.metrics.wanted.as_ref().and(report))
    }

    /// Has the server serve this status page, with these sockets; or none. The fingerprint of its certificate, if it has one.
    pub async fn order_page(
        &mut self,
        page: Option<Page>,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<Option<String>, OrderError> {
        self.page = Part::new(page, sockets)?;
        let report = self.send("page").await?.map(|report| report.page);
        outcome("page", self.page.wanted.as_ref().and(report))
    }

    /// Has the server let branches join, with these sockets; or none. SHA-256 of the public key of its certificate.
    pub async fn order_enrollment(
        &mut self,
        enrollment: Option<Enrollment>,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<Option<String>, OrderError> {
        self.enrollment = Part::new(enrollment, sockets)?;
        let report = self.send("enrollment").await?.map(|report| report.enrollment);
        outcome("enrollment", self.enrollment.wanted.as_ref().and(report))
    }

    /// Sends all orders, those of `part` being new. The report, unless all is off: then there is none.
    async fn send(&mut self, part: &'static str) -> Result<Option<Report>, OrderError> {
        let number = self.number + 1;
        let orders = Orders {
            number,
            service: self.api.wanted.clone(),
            metrics: self.metrics.wanted.clone(),
            page: self.page.wanted.clone(),
            enrollment: self.enrollment.wanted.clone(),
        };
        let is_off = orders.is_off();
        if is_off && self.link.is_none() {
            return Ok(None);
        }
        self.number = number;
        let mut line = Zeroizing::new(Vec::with_capacity(LONGEST));
        serde_json::to_writer(&mut *line, &orders).map_err(|error| OrderError::Unreachable(error.into()))?;
        drop(orders);
        line.push(b'\n');
        if line.len() > LONGEST {
            let why = format!("keys and certificates are longer than {LONGEST} bytes");
            return Err(OrderError::Refused(part, why));
        }
        let sockets =
            [&self.api.sockets, &self.metrics.sockets, &self.page.sockets, &self.enrollment.sockets];
        let sockets = sockets.into_iter().flatten();
        let copies: io::Result<Vec<OwnedFd>> = sockets.map(OwnedFd::try_clone).collect();
        let copies = copies.map_err(OrderError::Unreachable)?;
        if copies.len() > MOST_SOCKETS {
            let why = format!(
                "more than {MOST_SOCKETS} addresses cannot be listened on\n  fix: set service {part} listen-address ::, or name fewer"
            );
            return Err(OrderError::Refused(part, why));
        }
        let link = self.link()?;
        let mut latest = link.latest.lock().await;
        latest.line = line;
        latest.sockets = copies;
        timeout(PATIENCE, latest.send())
            .await
            .map_err(|_| OrderError::Silent)?
            .map_err(OrderError::Unreachable)?;
        drop(latest);
        if is_off {
            return Ok(None);
        }
        let reported = link.reports.wait_for(|report| report.number == number);
        let report = timeout(PATIENCE, reported).await.map_err(|_| OrderError::Silent)?;
        let report = report.map_err(|_| OrderError::Unreachable(io::ErrorKind::UnexpectedEof.into()))?;
        Ok(Some(report.clone()))
    }

    /// Whether the server and its supervisor have ended: nothing can start them again.
    pub fn has_ended(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.reports.has_changed().is_err())
    }

    /// Closes the sockets of a server that has ended: clients of sockets that no process accepts from would wait.
    pub fn let_go(&mut self) {
        (self.api, self.metrics) = (Part::default(), Part::default());
        (self.page, self.enrollment) = (Part::default(), Part::default());
    }

    /// The fingerprint of the certificate of the API that the server has reported last: it renews its own.
    pub fn fingerprint(&self) -> Option<String> {
        self.link.as_ref().and_then(|link| link.reports.borrow().api.fingerprint.clone())
    }

    /// The same of metrics.
    pub fn metrics_fingerprint(&self) -> Option<String> {
        self.link.as_ref().and_then(|link| link.reports.borrow().metrics.fingerprint.clone())
    }

    /// The same of the status page.
    pub fn page_fingerprint(&self) -> Option<String> {
        self.link.as_ref().and_then(|link| link.reports.borrow().page.fingerprint.clone())
    }

    /// SHA-256 of the public key of the certificate with which branches join.
    pub fn enrollment_pin(&self) -> Option<String> {
        self.link.as_ref().and_then(|link| link.reports.borrow().enrollment.fingerprint.clone())
    }

    fn link(&mut self) -> Result<&mut Link, OrderError> {
        if self.link.is_none() {
            let Connection::Inherited(stream) = &self.connection else { return Err(OrderError::Off) };
            let stream =
                stream.try_clone().and_then(UnixStream::from_std).map_err(OrderError::Unreachable)?;
            self.link = Some(Link::new(stream));
        }
        Ok(self.link.as_mut().expect("made above"))
    }
}

/// What the server has reported of a part; nothing if that part is off.
fn outcome(part: &'static str, report: Option<PartReport>) -> Result<Option<String>, OrderError> {
    let Some(PartReport { fingerprint, error }) = report else { return Ok(None) };
    error.map_or(Ok(fingerprint), |error| Err(OrderError::Refused(part, error)))
}

impl Link {
    fn new(stream: UnixStream) -> Self {
        let (sender, reports) = watch::channel(Report::default());
        let stream = Arc::new(stream);
        let latest = Latest { stream: Arc::clone(&stream), line: Zeroizing::default(), sockets: Vec::new() };
        let latest = Arc::new(Mutex::new(latest));
        tokio::spawn(listen(stream, Arc::clone(&latest), sender));
        Self { latest, reports }
    }
}

/// Takes reports, until the server has gone for good.
async fn listen(stream: Arc<UnixStream>, latest: Arc<Mutex<Latest>>, reports: watch::Sender<Report>) {
    let mut lines = BufReader::new(Reading(stream)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(report) = serde_json::from_str::<Report>(&line) else {
            tracing::warn!("the HTTPS server reports something unknown");
            continue;
        };
        if report.number == 0
            && let Err(error) = latest.lock().await.send().await
        {
            tracing::error!("the HTTPS server cannot be reached: {error}");
        }
        reports.send_replace(report);
    }
    // No server will ask for them again.
    latest.lock().await.sockets.clear();
}

/// Reads from a socket that others write to.
struct Reading(Arc<UnixStream>);

impl tokio::io::AsyncRead for Reading {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        loop {
            std::task::ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return std::task::Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return std::task::Poll::Ready(Err(error)),
            }
        }
    }
}

impl Latest {
    /// Sends the line; the sockets go with its first bytes.
    async fn send(&self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.line.len() {
            let sockets = if sent == 0 { &self.sockets[..] } else { &[] };
            let left = &self.line[sent..];
            sent += self.stream.async_io(Interest::WRITABLE, || send(&self.stream, left, sockets)).await?;
        }
        Ok(())
    }
}

fn send(stream: &UnixStream, bytes: &[u8], sockets: &[OwnedFd]) -> io::Result<usize> {
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !sockets.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream as StdStream;

    #[tokio::test]
    async fn more_sockets_than_can_be_passed_are_refused_with_a_fix() {
        let (ours, _theirs) = StdStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("ours");
        let mut process = Process::new(Connection::Inherited(ours));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let sockets = vec![socket.as_fd(); MOST_SOCKETS + 1];
        let error = process.order(Some(Service::default()), &sockets).await.expect_err("too many");
        assert!(error.to_string().contains("fix: set service https listen-address"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_has_ended_is_noticed() {
        let (ours, theirs) = StdStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("ours");
        let mut process = Process::new(Connection::Inherited(ours));
        process.link().expect("connected");
        assert!(!process.has_ended(), "it has not started yet");
        drop(theirs);
        timeout(PATIENCE, async {
            while !process.has_ended() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("noticed");
    }
}
