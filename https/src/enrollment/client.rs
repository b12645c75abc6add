//! The branch's side: one request to one address of head office.

use super::message::{Granted, Refused, Request as Asked};
use super::serve::PLACE;
use super::tls;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the answer may take: head office commits meanwhile.
const ANSWER: Duration = Duration::from_secs(60);
/// Bytes of an answer: networks may be many.
const LONGEST: usize = 64 << 10;
/// Bytes of its head: hyper takes no smaller limit.
const LONGEST_HEAD: usize = 8192;

/// Why a branch has not joined.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// No connection.
    #[error("it cannot be reached: {0}")]
    Unreachable(io::Error),
    /// The server there has another key than the token pins.
    #[error("the server there is not the head office that made the token: its key is another one")]
    WrongPin,
    /// The answer is missing or cannot be read.
    #[error("its answer is missing: {0}")]
    Unanswered(String),
    /// It cannot answer now.
    #[error("{}", .0.error)]
    Later(Refused),
    /// Head office refuses.
    #[error("{}", .0.error)]
    Refused(Refused),
}

/// Asks head office at an address, which must have the key of the pin.
pub async fn enroll(server: SocketAddr, pin: [u8; 32], asked: &Asked) -> Result<Granted, EnrollError> {
    let unanswered = |error: &dyn std::fmt::Display| EnrollError::Unanswered(error.to_string());
    let (config, name) = tls::client(pin).map_err(|error| unanswered(&error))?;
    let late = |_| EnrollError::Unreachable(io::ErrorKind::TimedOut.into());
    let connected = timeout(CONNECT, TcpStream::connect(server)).await.map_err(late)?;
    let stream = connected.map_err(EnrollError::Unreachable)?;
    let secured = timeout(CONNECT, TlsConnector::from(config).connect(name, stream)).await.map_err(late)?;
    let stream = secured.map_err(|error| {
        if is_wrong_pin(&error) { EnrollError::WrongPin } else { EnrollError::Unreachable(error) }
    })?;
    let body = serde_json::to_vec(asked).map_err(|error| unanswered(&error))?;
    let request = Request::post(PLACE)
        .header(HOST, server.to_string())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| unanswered(&error))?;
    let mut builder = hyper::client::conn::http1::Builder::new();
    let shaken = builder.max_buf_size(LONGEST_HEAD).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| unanswered(&error))?;
    let exchange = async move {
        let answer = sender.send_request(request).await.map_err(|error| unanswered(&error))?;
        read(answer).await
    };
    let both = async {
        let (answer, _) = tokio::join!(exchange, connection);
        answer
    };
    timeout(ANSWER, both).await.map_err(|_| EnrollError::Unanswered("it takes too long".to_owned()))?
}

fn is_wrong_pin(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

async fn read<B>(answer: Response<B>) -> Result<Granted, EnrollError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| EnrollError::Unanswered(error.to_string()))?.to_bytes();
    let unreadable = |_| EnrollError::Unanswered(format!("it answers {status}, and nothing that is known"));
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(unreadable);
    }
    let refused: Refused = serde_json::from_slice(&body).map_err(unreadable)?;
    let is_later = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    Err(if is_later { EnrollError::Later(refused) } else { EnrollError::Refused(refused) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    /// A server that answers one request with this, and then ends; its address and pin.
    async fn server(status: &'static str, body: String) -> (SocketAddr, [u8; 32]) {
        let folder = tempfile::tempdir().expect("a folder");
        let (config, pin) = tls::config(&folder.path().join("made")).expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
            let mut read = Vec::new();
            while !read.ends_with(b"}") {
                let mut bytes = [0; 1024];
                match stream.read(&mut bytes).await {
                    Ok(count @ 1..) => read.extend(&bytes[..count]),
                    _ => return,
                }
            }
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all((head + &body).as_bytes()).await;
            let _ = stream.shutdown().await;
        });
        let pin = base16ct::lower::decode_vec(pin).expect("hexadecimal");
        (address, pin.try_into().expect("32 bytes"))
    }

    fn asked() -> Asked {
        let (branch, public_key) = ("berlin".to_owned(), "AAAA".to_owned());
        Asked { version: 1, branch, secret: "OpenSesame".into(), public_key }
    }

    #[tokio::test]
    async fn head_office_is_known_by_its_key_and_its_answer_is_read() {
        let granted = Granted { version: 1, mtu: 1420, ..Granted::default() };
        let (address, pin) = server("200 OK", serde_json::to_string(&granted).expect("JSON")).await;
        assert_eq!(enroll(address, pin, &asked()).await.expect("it answers"), granted);
        let refused = Refused { error: "it has expired".to_owned(), fix: "another".to_owned() };
        let body = || serde_json::to_string(&refused).expect("JSON");
        let (address, pin) = server("410 Gone", body()).await;
        let outcome = enroll(address, pin, &asked()).await;
        assert!(matches!(outcome, Err(EnrollError::Refused(said)) if said == refused));
        let (address, pin) = server("503 Service Unavailable", body()).await;
        assert!(matches!(enroll(address, pin, &asked()).await, Err(EnrollError::Later(_))));
        let (address, pin) = server("200 OK", "nothing}".to_owned()).await;
        assert!(matches!(enroll(address, pin, &asked()).await, Err(EnrollError::Unanswered(_))));
    }

    #[tokio::test]
    async fn a_server_with_another_key_gets_no_secret() {
        let (address, pin) = server("200 OK", "{}".to_owned()).await;
        let wrong = pin.map(|byte| byte ^ 1);
        assert!(matches!(enroll(address, wrong, &asked()).await, Err(EnrollError::WrongPin)));
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
        assert!(matches!(enroll(closed, pin, &asked()).await, Err(EnrollError::Unreachable(_))));
    }
}
