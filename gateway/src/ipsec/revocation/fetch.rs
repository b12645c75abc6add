//! One HTTP request: from the name of a server to its response.
//!
//! ```text
//! name ──> allowed addresses ──> the first that accepts a connection, outside of our tunnels ──> response, of bounded size
//! ```

use super::outside::OutsideConnector;
use crypto::pki::Query;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The time limit of a whole response.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest response header.
const MOST_HEAD: usize = 16 << 10;
/// The delay before the next address is tried concurrently (RFC 8305 section 8).
const HEAD_START: Duration = Duration::from_millis(250);
/// The number of addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;

/// The content at a URL, or the reason of the failure: a text that continues after the URL.
pub(super) async fn fetch(query: &Query, connector: &OutsideConnector) -> Result<Vec<u8>, String> {
    let late = |_| Err(format!("does not answer within {} seconds", PATIENCE.as_secs()));
    timeout(PATIENCE, exchange(query, connector)).await.unwrap_or_else(late)
}

async fn exchange(query: &Query, connector: &OutsideConnector) -> Result<Vec<u8>, String> {
    let uri: Uri = query.url().parse().map_err(|error| format!("is no address: {error}"))?;
    let authority = uri.authority().filter(|it| !it.as_str().contains('@')).ok_or("is no address of HTTP")?;
    let stream = connect(authority.host(), authority.port_u16().unwrap_or(80), connector).await?;
    let said = |error: hyper::Error| format!("does not speak HTTP: {error}");
    let mut builder = http1::Builder::new();
    let (mut sender, connection) =
        builder.max_buf_size(MOST_HEAD).handshake(TokioIo::new(stream)).await.map_err(said)?;
    let request = request(query, &uri, authority.as_str())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(said)?;
        if response.status() != StatusCode::OK {
            return Err(format!("answers {}", response.status()));
        }
        let body = Limited::new(response.into_body(), query.limit()).collect().await;
        body.map(|body| body.to_bytes().to_vec())
            .map_err(|error| format!("has no whole answer of at most {} bytes: {error}", query.limit()))
    };
    // The connection runs concurrently, and ends with the response or the time limit.
    let mut working = JoinSet::new();
    working.spawn(connection);
    answer.await
}

fn request(query: &Query, uri: &Uri, authority: &str) -> Result<Request<Full<Bytes>>, String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder().uri(path).header(HOST, authority).header(CONNECTION, "close");
    let request = match query.body() {
        None => request.method("GET").body(Full::default()),
        Some(body) => request
            .method("POST")
            .header(CONTENT_TYPE, "application/ocsp-request")
            .body(Full::from(body.to_vec())),
    };
    request.map_err(|error| format!("is no address of HTTP: {error}"))
}

/// Connects to the first address of a host that answers.
async fn connect(host: &str, port: u16, connector: &OutsideConnector) -> Result<TcpStream, String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| format!("has no address now: {error}"))?;
    let addresses: Vec<SocketAddr> =
        found.filter(|address| may_ask(address.ip())).take(MOST_ADDRESSES).collect();
    connect_any(addresses, connector).await
}

/// Connects to the first of these addresses that answers. Each is tried concurrently with those before it, which may be
/// unreachable without an error.
async fn connect_any(addresses: Vec<SocketAddr>, connector: &OutsideConnector) -> Result<TcpStream, String> {
    let mut why = "leads only to addresses of this machine or its link, which are not asked".to_owned();
    let (mut others, mut attempts) = (addresses.into_iter(), JoinSet::new());
    loop {
        if let Some(address) = others.next() {
            let connector = connector.clone();
            attempts.spawn(async move {
                let connected = connector.connect(address).await;
                connected.map_err(|error| format!("is not reached: {address}: {error}"))
            });
        }
        tokio::select! {
            attempt = attempts.join_next() => match attempt {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => why = error,
                Some(Err(error)) => why = format!("is not reached: {error}"),
                None => return Err(why),
            },
            () = sleep(HEAD_START), if others.len() > 0 => {}
        }
    }
}

/// Whether a request may go to an address: not to this machine, its link (where clouds have their secrets), or a group.
fn may_ask(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(it) => {
            !(it.is_loopback()
                || it.is_link_local()
                || it.is_multicast()
                || it.is_broadcast()
                || it.octets()[0] == 0)
        }
        IpAddr::V6(it) => {
            !(it.is_loopback() || it.is_unspecified() || it.is_multicast() || it.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;

    /// A listener whose backlog is full: it does not answer a SYN.
    fn deaf() -> (OwnedFd, Vec<std::net::TcpStream>, SocketAddr) {
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        listen(&listener, 0).expect("it listens");
        let address = SocketAddr::try_from(getsockname(&listener).expect("it has one")).expect("of IPv4");
        let mut waiting = Vec::new();
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, HEAD_START) {
            waiting.push(stream);
            assert!(waiting.len() < 100, "it takes a few connections");
        }
        (listener, waiting, address)
    }

    #[tokio::test]
    async fn an_address_that_leads_nowhere_does_not_keep_others_from_being_tried() {
        let (_listener, _waiting, deaf) = deaf();
        let good = TcpListener::bind("127.0.0.1:0").expect("a port");
        let good_address = good.local_addr().expect("it has one");
        let refusing = {
            let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
            gone.local_addr().expect("it has one")
        };
        let connector = OutsideConnector::unmarked();
        let stream = timeout(PATIENCE, connect_any(vec![deaf, deaf, refusing, good_address], &connector));
        let stream = stream.await.expect("it does not wait for the others").expect("one of them answers");
        assert_eq!(stream.peer_addr().expect("it is connected"), good_address);
        let error = connect_any(vec![refusing], &connector).await.expect_err("the port is closed");
        assert!(error.contains("is not reached"), "{error}");
        let error = connect_any(vec![], &connector).await.expect_err("there is none");
        assert!(error.contains("not asked"), "{error}");
    }

    #[test]
    fn what_only_this_machine_or_link_reaches_is_not_asked() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!may_ask(address.parse().expect("literal")), "{address}");
        }
        for address in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(may_ask(address.parse().expect("literal")), "{address}");
        }
    }
}
