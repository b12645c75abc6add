//! The server's end of the socket to the daemon: orders come, reports go.
//!
//! The daemon's latest orders count. When the daemon ends, so does the server.

use crate::app::{App, Serving};
use crate::keys::Keys;
use crate::listen::{self, Front};
use crate::local::Local;
use crate::place::Place;
use crate::tls;
use gateway::https::wire::{LONGEST, MOST_SOCKETS, Orders, Report, Service};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
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

/// The orders in force.
struct Served {
    number: u64,
    service: Service,
    fingerprint: String,
}

/// Serves until the daemon ends, or wants nothing to be served.
pub async fn serve(socket: StdStream, place: Place, local: Arc<dyn Local>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut daemon =
        Link { stream: UnixStream::from_std(socket)?, bytes: Zeroizing::default(), sockets: VecDeque::new() };
    daemon.report(&Report::default()).await?;
    let app = Arc::new(App::new(&place, local));
    let front = Arc::new(Front::default());
    let (mut is_off, mut served) = (false, None);
    loop {
        let line = match timeout(if is_off { GRACE } else { RENEWAL }, daemon.line()).await {
            Ok(line) => line?,
            Err(_) if is_off => return Ok(()),
            Err(_) => {
                if let Some(fingerprint) = served.as_mut().and_then(|served| renewed(served, &place, &front))
                {
                    let number = served.as_ref().map_or(0, |served| served.number);
                    daemon.report(&Report { number, fingerprint: Some(fingerprint), error: None }).await?;
                }
                continue;
            }
        };
        let Some(line) = line else { return Ok(()) };
        // What an earlier server has left of a line is no orders.
        let Ok(orders) = serde_json::from_slice::<Orders>(&line) else { continue };
        is_off = orders.service.is_none();
        let Some(service) = orders.service else {
            front.close();
            served = None;
            continue;
        };
        let sockets = daemon.take(service.listeners.len());
        let (fingerprint, error) = match obey(&service, sockets, &place, &app, &front) {
            Ok(fingerprint) => {
                served = Some(Served { number: orders.number, service, fingerprint: fingerprint.clone() });
                (Some(fingerprint), None)
            }
            Err(error) => (None, Some(error)),
        };
        daemon.report(&Report { number: orders.number, fingerprint, error }).await?;
    }
}

/// Puts orders in force; the fingerprint of the certificate.
fn obey(
    service: &Service,
    sockets: Vec<OwnedFd>,
    place: &Place,
    app: &Arc<App>,
    front: &Arc<Front>,
) -> Result<String, String> {
    let (config, fingerprint) = tls::config(service, place)?;
    app.set_serving(Serving { keys: Keys::new(service), is_strict: service.is_strict });
    listen::open(front, service, sockets, config, app).map_err(|error| error.to_string())?;
    Ok(fingerprint)
}

/// Uses a new certificate if the one that the server has signed itself expires: the fingerprint of the new one.
fn renewed(served: &mut Served, place: &Place, front: &Front) -> Option<String> {
    if served.service.certificate.is_some() {
        return None;
    }
    match tls::config(&served.service, place) {
        Ok((config, fingerprint)) if fingerprint != served.fingerprint => {
            front.secure(config);
            served.fingerprint.clone_from(&fingerprint);
            Some(fingerprint)
        }
        Ok(_) => None,
        Err(error) => {
            tracing::error!("service https: the certificate expires, and there is no new one: {error}");
            None
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
        let service = Service { lifetime_days: 365, tls13: true, ..Service::default() };
        let (config, fingerprint) = tls::config(&service, &place).expect("made");
        let front = Front::default();
        front.secure(config);
        let mut served = Served { number: 1, service, fingerprint: fingerprint.clone() };
        assert_eq!(renewed(&mut served, &place, &front), None);
        let made = folder.path().join("https/made.json");
        let text = std::fs::read_to_string(&made).expect("there");
        let (names, _) = text.split_once("\"expires\"").expect("a time");
        std::fs::write(&made, format!("{names}\"expires\":1}}")).expect("ours");
        let before = front.acceptor().expect("secured");
        let renewed = renewed(&mut served, &place, &front).expect("a new one");
        assert_ne!(renewed, fingerprint);
        let now = front.acceptor().expect("secured");
        assert!(!Arc::ptr_eq(before.config(), now.config()), "connections get it");
    }
}
