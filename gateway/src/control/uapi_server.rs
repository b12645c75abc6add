//! Serves the cross-platform configuration protocol on a Unix socket, for `wg` and `wg-quick`.

use super::interface::Interface;
use super::socket::{Listener, SocketError};
use super::uapi::{self, Request, UapiError};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Where `wg` looks for the socket of an interface.
pub fn path(interface: &str) -> PathBuf {
    format!("/var/run/wireguard/{interface}.sock").into()
}

/// A request of more lines than this is refused: 65,000 prefixes are far below it, memory is far above it.
const LINES: usize = 4_000_000;

/// Makes the socket.
pub async fn bind(interface: &str) -> Result<Listener, SocketError> {
    Listener::bind(&path(interface)).await
}

/// Serves connections until the socket is deleted.
pub async fn serve(listener: Listener, interface: Arc<Interface>) {
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok(stream) => _ = tokio::task::spawn(converse(stream, Arc::clone(&interface))),
                Err(error) => {
                    // Out of descriptors: others may give some back.
                    tracing::warn!("uapi: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = listener.deleted() => tracing::info!("the socket of {} was deleted", interface.name()),
    }
}

/// Answers the requests of one connection, which may be several.
async fn converse(stream: UnixStream, interface: Arc<Interface>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut operation = String::new();
    while reader.read_line(&mut operation).await.is_ok_and(|length| length > 0) {
        let Some(lines) = read_lines(&mut reader).await else { return };
        let response = answer(operation.trim_end_matches('\n'), &lines, &interface).await;
        if writer.write_all(response.as_bytes()).await.is_err() {
            return;
        }
        operation.clear();
    }
}

/// The lines up to an empty one; `None` if the connection ends before it.
async fn read_lines(reader: &mut BufReader<tokio::net::unix::OwnedReadHalf>) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    let mut incoming = reader.lines();
    while lines.len() < LINES {
        match incoming.next_line().await.ok()?? {
            line if line.is_empty() => return Some(lines),
            line => lines.push(line),
        }
    }
    None
}

async fn answer(operation: &str, lines: &[String], interface: &Interface) -> String {
    let outcome = match uapi::parse(operation, lines) {
        Ok(Request::Get) => return uapi::response(&uapi::print(&interface.snapshot().await), Ok(())),
        Ok(Request::Set(update)) => interface.update(update).await.map_err(UapiError::from),
        Err(error) => Err(error),
    };
    if let Err(error) = &outcome {
        tracing::warn!("{}: uapi: {error}", interface.name());
    }
    uapi::response("", outcome.as_ref().err().map_or(Ok(()), Err))
}
