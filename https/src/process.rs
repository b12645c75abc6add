//! The server's end of the socket to the daemon: orders come, reports go.
//!
//! The daemon's latest orders count. When the daemon ends, so does the server.

use crate::app::{App, Serving};
use crate::enrollment::{self, Enrolling};
use crate::keys::Keys;
use crate::listen::{self, Answering, Front};
use crate::local::Local;
use crate::metrics::{self, Metrics};
use crate::page::{self, StatusPage};
use crate::place::Place;
use crate::tls;
use gateway::https::wire::{self, LONGEST, Listener, MOST_SOCKETS, Orders, PartReport, Report};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustls::ServerConfig;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::{Zeroize, Zeroizing};

/// How long requests may take to be answered after the service was switched off: such a request may be one of them.
const GRACE: Duration = Duration::from_secs(5);

/// How often the server looks whether the certificate that it signs itself expires.
const RENEWAL: Duration = Duration::from_secs(3600);

/// Connections of the API at once, and of a source.
const CONNECTIONS: (usize, usize) = (256, 32);
/// The same of metrics, which few programs read.
const METRICS_CONNECTIONS: (usize, usize) = (32, 8);

/// The same of the status page: a browser opens up to six.
const PAGE_CONNECTIONS: (usize, usize) = (64, 16);

/// The same of branches that join: each asks once.
const ENROLLMENT_CONNECTIONS: (usize, usize) = (32, 4);

/// Days for which a certificate of metrics or the status page is valid that the server signs itself.
const LIFETIME_DAYS: u32 = 365;

/// A part of what is served: the API, metrics, or the status page.
struct Part<W, A> {
    app: Arc<A>,
    front: Arc<Front>,
    served: Option<Served<W>>,
}

/// The orders in force.
struct Served<W> {
    wanted: W,
    /// Of the certificate.
    fingerprint: Option<String>,
}

/// What a part is ordered to do.
trait Wanted: PartialEq + Sized {
    type App: Answering;

    fn listeners(&self) -> &[Listener];
    /// How connections are secured, and SHA-256 of the certificate; nothing if they are not.
    fn secured(&self, place: &Place) -> Result<Secured, String>;
    /// Whether the server signs its certificate itself.
    fn is_self_signed(&self) -> bool;
    fn serve(&self, app: &Self::App);
}

type Secured = (Option<Arc<ServerConfig>>, Option<String>);

impl Wanted for wire::Service {
    type App = App;

    fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    fn secured(&self, place: &Place) -> Result<Secured, String> {
        let (config, fingerprint) = tls::config(&tls::Wanted::of(self), &place.state.join("https"))?;
        Ok((Some(config), Some(fingerprint)))
    }

    fn is_self_signed(&self) -> bool {
        self.certificate.is_none()
    }

    fn serve(&self, app: &App) {
        app.set_serving(Serving { keys: Keys::new(&self.salt, &self.keys), is_strict: self.is_strict });
    }
}

impl Wanted for wire::Metrics {
    type App = Metrics;

    fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    fn secured(&self, place: &Place) -> Result<Secured, String> {
        secured(self.tls.as_ref(), &self.listeners, &[], &place.state.join("https/metrics"))
    }

    fn is_self_signed(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.certificate.is_none())
    }

    fn serve(&self, app: &Metrics) {
        app.set_serving(metrics::Serving::new(self));
    }
}

impl Wanted for wire::Page {
    type App = StatusPage;

    fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    fn secured(&self, place: &Place) -> Result<Secured, String> {
        if let Some(why) = page::REFUSED {
            return Err(why.to_owned());
        }
        secured(self.tls.as_ref(), &self.listeners, &self.names, &place.state.join("https/page"))
    }

    fn is_self_signed(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.certificate.is_none())
    }

    fn serve(&self, app: &StatusPage) {
        app.set_serving(page::Serving::new(self));
    }
}

impl Wanted for wire::Enrollment {
    type App = Enrolling;

    fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    fn secured(&self, place: &Place) -> Result<Secured, String> {
        let (config, pin) = enrollment::config(&place.state.join("https/enrollment"))?;
        Ok((Some(config), Some(pin)))
    }

    fn is_self_signed(&self) -> bool {
        // Tokens pin its key.
        false
    }

    fn serve(&self, app: &Enrolling) {
        app.set_serving(&self.tokens);
    }
}

/// How connections of metrics and the status page are secured, if they are.
fn secured(
    tls: Option<&wire::MetricsTls>,
    listeners: &[Listener],
    names: &[String],
    folder: &Path,
) -> Result<Secured, String> {
    let Some(tls) = tls else { return Ok((None, None)) };
    let wanted = tls::Wanted {
        certificate: tls.certificate.as_ref(),
        lifetime_days: LIFETIME_DAYS,
        names,
        listeners,
        tls12: true,
        tls13: true,
    };
    let (config, fingerprint) = tls::config(&wanted, folder)?;
    Ok((Some(config), Some(fingerprint)))
}

impl<W: Wanted> Part<W, W::App> {
    fn new(app: W::App, (connections, of_source): (usize, usize)) -> Self {
        Self { app: Arc::new(app), front: Arc::new(Front::new(connections, of_source)), served: None }
    }

    /// Puts orders in force. Those that are already are left alone: a change of the other part is none of this one.
    fn obey(&mut self, wanted: Option<W>, sockets: Vec<OwnedFd>, place: &Place) -> PartReport {
        let Some(wanted) = wanted else {
            self.front.close();
            if self.served.take().is_some() {
                self.app.end();
            }
            return PartReport::default();
        };
        if !self.served.as_ref().is_some_and(|served| served.wanted == wanted) {
            match self.open(&wanted, sockets, place) {
                Ok(fingerprint) => self.served = Some(Served { wanted, fingerprint }),
                Err(error) => return PartReport { fingerprint: None, error: Some(error) },
            }
        }
        self.report()
    }

    fn open(&self, wanted: &W, sockets: Vec<OwnedFd>, place: &Place) -> Result<Option<String>, String> {
        let (config, fingerprint) = wanted.secured(place)?;
        wanted.serve(&self.app);
        listen::open(&self.front, wanted.listeners(), sockets, config, &self.app)
            .map_err(|error| error.to_string())?;
        Ok(fingerprint)
    }

    /// Uses a new certificate if the one that the server has signed itself expires; whether it does.
    fn renew(&mut self, place: &Place) -> bool {
        let Some(served) = self.served.as_mut().filter(|served| served.wanted.is_self_signed()) else {
            return false;
        };
        match served.wanted.secured(place) {
            Ok((config, fingerprint)) if fingerprint != served.fingerprint => {
                self.front.secure(config);
                served.fingerprint = fingerprint;
                true
            }
            Ok(_) => false,
            Err(error) => {
                let name = W::App::NAME;
                tracing::error!("service {name}: the certificate expires, and there is no new one: {error}");
                false
            }
        }
    }

    fn report(&self) -> PartReport {
        PartReport { fingerprint: self.served.as_ref().and_then(|it| it.fingerprint.clone()), error: None }
    }
}

/// Serves until the daemon ends, or wants nothing to be served.
pub async fn serve(socket: StdStream, place: Place, local: Arc<dyn Local>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut daemon =
        Link { stream: UnixStream::from_std(socket)?, bytes: Zeroizing::default(), sockets: VecDeque::new() };
    daemon.report(&Report::default()).await?;
    let enrolling = Enrolling::new(&place, Arc::clone(&local));
    let mut enrollment: Part<wire::Enrollment, Enrolling> = Part::new(enrolling, ENROLLMENT_CONNECTIONS);
    let mut api: Part<wire::Service, App> = Part::new(App::new(&place, local), CONNECTIONS);
    let mut metrics: Part<wire::Metrics, Metrics> = Part::new(Metrics::new(&place), METRICS_CONNECTIONS);
    let mut page: Part<wire::Page, StatusPage> = Part::new(StatusPage::new(&place), PAGE_CONNECTIONS);
    let (mut is_off, mut number) = (false, 0);
    loop {
        let line = match timeout(if is_off { GRACE } else { RENEWAL }, daemon.line()).await {
            Ok(line) => line?,
            Err(_) if is_off => return Ok(()),
            Err(_) => {
                let renewed = [api.renew(&place), metrics.renew(&place), page.renew(&place)];
                if renewed.contains(&true) {
                    let (api, metrics, page) = (api.report(), metrics.report(), page.report());
                    let report = Report { number, api, metrics, page, enrollment: enrollment.report() };
                    daemon.report(&report).await?;
                }
                continue;
            }
        };
        let Some(line) = line else { return Ok(()) };
        // What an earlier server has left of a line is no orders.
        let Ok(orders) = serde_json::from_slice::<Orders>(&line) else { continue };
        number = orders.number;
        is_off = orders.is_off();
        // In the order in which they were sent.
        let count = |listeners: Option<usize>| listeners.unwrap_or_default();
        let of_api = daemon.take(count(orders.service.as_ref().map(|it| it.listeners.len())));
        let of_metrics = daemon.take(count(orders.metrics.as_ref().map(|it| it.listeners.len())));
        let of_page = daemon.take(count(orders.page.as_ref().map(|it| it.listeners.len())));
        let of_enrollment = daemon.take(count(orders.enrollment.as_ref().map(|it| it.listeners.len())));
        let report = Report {
            number,
            api: api.obey(orders.service, of_api, &place),
            metrics: metrics.obey(orders.metrics, of_metrics, &place),
            page: page.obey(orders.page, of_page, &place),
            enrollment: enrollment.obey(orders.enrollment, of_enrollment, &place),
        };
        if !is_off {
            daemon.report(&report).await?;
        }
    }
}

/// The socket, with what was received and not yet used.
struct Link {
    stream: UnixStream,
    bytes: Zeroizing<Vec<u8>>,
    sockets: VecDeque<OwnedFd>,
}

impl Link {
    async fn report(&mut self, report: &Report) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        self.stream.write_all(&line).await
    }

    /// The next line; none if the daemon has ended.
    async fn line(&mut self) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line = Zeroizing::new(self.bytes[..end].to_vec());
                let left = Zeroizing::new(self.bytes[end + 1..].to_vec());
                self.bytes = left;
                return Ok(Some(line));
            }
            if self.bytes.len() > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut room = Zeroizing::new(vec![0; 16 << 10]);
            let stream = &self.stream;
            let (count, sockets) = stream.async_io(Interest::READABLE, || receive(stream, &mut room)).await?;
            if count == 0 {
                return Ok(None);
            }
            let mut bytes = Zeroizing::new(Vec::with_capacity(self.bytes.len() + count));
            bytes.extend_from_slice(&self.bytes);
            bytes.extend_from_slice(&room[..count]);
            self.bytes.zeroize();
            self.bytes = bytes;
            self.sockets.extend(sockets);
        }
    }

    /// The sockets that belong to a line.
    fn take(&mut self, count: usize) -> Vec<OwnedFd> {
        self.sockets.drain(..count.min(self.sockets.len())).collect()
    }
}

fn receive(stream: &UnixStream, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(room)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_expires_is_renewed_while_the_server_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place { api: "/nonexistent.sock".into(), state: folder.path().to_owned() };
        std::fs::create_dir(folder.path().join("https")).expect("ours");
        let tls = Some(wire::MetricsTls::default());
        let wanted = wire::Metrics { tls, ..wire::Metrics::default() };
        let mut part: Part<wire::Metrics, Metrics> = Part::new(Metrics::new(&place), METRICS_CONNECTIONS);
        let made = part.obey(Some(wanted.clone()), Vec::new(), &place);
        assert!(made.fingerprint.is_some() && made.error.is_none(), "{made:?}");
        assert!(!part.renew(&place));
        assert_eq!(part.obey(Some(wanted), Vec::new(), &place), made, "the same orders change nothing");
        let file = folder.path().join("https/metrics/made.json");
        let text = std::fs::read_to_string(&file).expect("there");
        let (names, _) = text.split_once("\"expires\"").expect("a time");
        std::fs::write(&file, format!("{names}\"expires\":1}}")).expect("ours");
        let before = part.front.acceptor().expect("secured");
        assert!(part.renew(&place));
        assert_ne!(part.report(), made);
        let now = part.front.acceptor().expect("secured");
        assert!(!Arc::ptr_eq(before.config(), now.config()), "connections get it");
    }
}
