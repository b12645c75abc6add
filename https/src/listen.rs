//! Connections: accept ── who may, and how many ──> TLS in time ──> requests.

use crate::source::Source;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use gateway::api::connections::{Connections, Deadline};
use gateway::api::server::converse;
use gateway::https::wire::Listener;
use hyper::Request;
use hyper::body::Incoming;
use ipnet::IpNet;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

/// How long a handshake may take, a request, and the taking of an answer; and how long a connection may be idle.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first byte of a TLS connection: a handshake record.
const HANDSHAKE: u8 = 0x16;
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\
    Content-Length: 91\r\n\r\n\
    {\"success\": false, \"data\": null, \"error\": \"this port speaks HTTPS: write https:// instead\"}";

/// What answers the requests of a front.
pub(crate) trait Answering: Send + Sync + 'static {
    /// Its word below `service`.
    const NAME: &'static str;
    /// Bytes that the kernel keeps of what a client has not taken, where the kernel's own choice is too many.
    const SEND_BUFFER: Option<usize> = None;

    /// Answers a request, which must be read before the deadline; it is suspended meanwhile.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        source: Source,
        deadline: Deadline,
        patience: Duration,
    ) -> impl Future<Output = Response> + Send;

    /// The answer to a client that may no longer connect.
    fn not_allowed(why: &str) -> Response;

    /// The service was switched off: answers that would go on for ever end.
    fn end(&self) {}
}

/// The listening tasks, the TLS settings of new connections, and the open connections.
pub(crate) struct Front {
    listening: Mutex<Vec<AbortHandle>>,
    /// The prefixes that may connect to each listening address; all if there is none.
    clients: Mutex<BTreeMap<SocketAddr, Vec<IpNet>>>,
    /// None for connections that are not secured.
    tls: Mutex<Option<Arc<ServerConfig>>>,
    connections: Mutex<Connections<Source>>,
}

impl Front {
    /// One with at most so many connections at once, and of a source at once: with more, its longest idle one is closed.
    pub(crate) fn new(connections: usize, of_source: usize) -> Self {
        Self {
            listening: Mutex::default(),
            clients: Mutex::default(),
            tls: Mutex::default(),
            connections: Mutex::new(Connections::new(connections, of_source)),
        }
    }

    /// Accepts no more connections and requests. Those that are being answered go on.
    pub(crate) fn close(&self) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let listening = std::mem::take(&mut *self.listening.lock().unwrap_or_else(PoisonError::into_inner));
        listening.iter().for_each(AbortHandle::abort);
    }

    /// Whether a client may use a listening address.
    fn allows(&self, listener: SocketAddr, client: IpAddr) -> bool {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.get(&listener).is_some_and(|prefixes| is_allowed(prefixes, client))
    }

    /// Secures connections like this from now on, or not at all.
    pub(crate) fn secure(&self, config: Option<Arc<ServerConfig>>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone().map(TlsAcceptor::from)
    }
}

/// Accepts connections on these sockets, and on no others.
pub(crate) fn open<A: Answering>(
    front: &Arc<Front>,
    wanted: &[Listener],
    sockets: Vec<OwnedFd>,
    config: Option<Arc<ServerConfig>>,
    app: &Arc<A>,
) -> io::Result<()> {
    let (mut listeners, mut allowed) = (Vec::new(), BTreeMap::new());
    for (listener, socket) in wanted.iter().zip(sockets) {
        let clients: Vec<IpNet> = listener.clients.iter().filter_map(|text| text.parse().ok()).collect();
        // A prefix that cannot be read must not open the service for all.
        if clients.len() != listener.clients.len() {
            return Err(io::Error::other("a prefix of allow-client cannot be read"));
        }
        listeners.push((TcpListener::from_std(socket.into())?, listener.address));
        allowed.insert(listener.address, clients);
    }
    front.close();
    *front.clients.lock().unwrap_or_else(PoisonError::into_inner) = allowed;
    front.secure(config);
    let tasks = listeners.into_iter().map(|(listener, at)| {
        let (front, app) = (Arc::clone(front), Arc::clone(app));
        tokio::spawn(accept(listener, at, front, app)).abort_handle()
    });
    *front.listening.lock().unwrap_or_else(PoisonError::into_inner) = tasks.collect();
    Ok(())
}

async fn accept<A: Answering>(listener: TcpListener, at: SocketAddr, front: Arc<Front>, app: Arc<A>) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) => {
                tracing::warn!("{}: {error}", A::NAME);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !front.allows(at, address) {
            tracing::debug!("{0}: {address} is none of: service {0} allow-client", A::NAME);
            continue;
        }
        let source = Source::of(address);
        let mut connections = front.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if !connections.make_room(&source) {
            let count = connections.len();
            tracing::debug!("{}: {count} requests are being answered: {source} is refused", A::NAME);
            continue;
        }
        let deadline = Deadline::after(PATIENCE);
        let client = (at, address);
        let served = serve(stream, client, deadline.clone(), Arc::clone(&front), Arc::clone(&app));
        connections.add(source, tokio::spawn(served).abort_handle(), deadline);
    }
}

fn is_allowed(clients: &[IpNet], address: IpAddr) -> bool {
    clients.is_empty() || clients.iter().any(|prefix| prefix.contains(&address))
}

/// Serves a connection of a client of a listening address, until the client is late.
async fn serve<A: Answering>(
    stream: TcpStream,
    (at, address): (SocketAddr, IpAddr),
    deadline: Deadline,
    front: Arc<Front>,
    app: Arc<A>,
) {
    if let Some(bytes) = A::SEND_BUFFER {
        // What cannot be bounded is bounded by the deadline alone.
        let _ = set_socket_send_buffer_size(&stream, bytes);
    }
    let source = Source::of(address);
    let restarted = deadline.clone();
    let acceptor = front.acceptor();
    let answer = move |request| {
        let (front, app, deadline) = (Arc::clone(&front), Arc::clone(&app), restarted.clone());
        async move {
            // The configuration may have changed since the connection was accepted.
            if front.allows(at, address) {
                app.answer(request, source, deadline, PATIENCE).await
            } else {
                not_allowed::<A>()
            }
        }
    };
    let Some(acceptor) = acceptor else { return converse(stream, PATIENCE, deadline, answer).await };
    let secured = async move {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            let mut stream = stream;
            stream.write_all(PLAIN).await?;
            stream.shutdown().await?;
            // What is closed unread resets the connection, and the client loses the answer.
            let mut rest = [0; 1024];
            for _ in 0..64 {
                if stream.read(&mut rest).await? == 0 {
                    break;
                }
            }
            return Err(io::Error::other("no TLS"));
        }
        acceptor.accept(stream).await
    };
    let stream = tokio::select! {
        secured = secured => secured,
        () = deadline.passed() => Err(io::ErrorKind::TimedOut.into()),
    };
    match stream {
        Ok(stream) => converse(stream, PATIENCE, deadline, answer).await,
        Err(error) => tracing::debug!("{}: {source}: {error}", A::NAME),
    }
}

fn not_allowed<A: Answering>() -> Response {
    let why = format!("this client may no longer connect: see service {} allow-client", A::NAME);
    let mut response = A::not_allowed(&why);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_plain_http_has_its_length() {
        let text = String::from_utf8(PLAIN.to_vec()).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }

    #[test]
    fn only_clients_that_are_named_may_connect() {
        let clients: Vec<IpNet> =
            ["192.0.2.0/24", "fd00::/8"].map(|text| text.parse().expect("a prefix")).into();
        let is = |text: &str| is_allowed(&clients, text.parse().expect("an address"));
        assert!(is("192.0.2.7") && is("fd01::1") && !is("192.0.3.1") && !is("2001:db8::1"));
        assert!(is_allowed(&[], "192.0.3.1".parse().expect("an address")));
    }
}
