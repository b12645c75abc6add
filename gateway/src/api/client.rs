//! Requests to the API of a daemon, at its Unix socket.

use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::Path;
use tokio::net::UnixStream;

/// Bytes for which room is made before they have come.
const MOST_AT_ONCE: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket cannot be reached.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The daemon does not speak HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The connection was closed before the answer.
    #[error("the daemon hung up")]
    HungUp,
}

/// Sends a request to the daemon at a socket, and reads the whole answer.
pub async fn exchange(path: &Path, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ClientError> {
    let stream = TokioIo::new(UnixStream::connect(path).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let conversation = async {
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, whole(body).await?))
    };
    tokio::select! {
        answer = conversation => answer,
        broken = connection => Err(broken.err().map_or(ClientError::HungUp, ClientError::Http)),
    }
}

/// Sends a request to the daemon at a socket, and returns the answer with a body that comes as it is made. The connection ends with the body.
pub async fn stream(path: &Path, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
    let stream = TokioIo::new(UnixStream::connect(path).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

/// The bytes of a body. Its announced length is made room for at once: that of ten thousand peers is not copied when it is there.
async fn whole(mut body: Incoming) -> hyper::Result<Bytes> {
    let announced = body.size_hint().lower().min(MOST_AT_ONCE);
    let mut bytes = Vec::with_capacity(announced as usize);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.into())
}
