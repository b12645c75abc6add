//! Serves the cross-platform configuration protocol on a Unix socket, for `wg` and `wg-quick`.

use super::interface::Interface;
use super::uapi;
use super::uapi::{Request, UapiError};
use crate::unix_socket::{Listener, SocketError};
use config::Text;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

/// Where `wg` looks for the socket of an interface.
pub fn path(interface: &str) -> PathBuf {
    format!("/var/run/wireguard/{interface}.sock").into()
}

/// A request of more bytes than this is refused: a million prefixes are below it, memory is above it.
const LONGEST: usize = 64 << 20;

/// Makes the socket. The name becomes a part of its path, so it is looked at first, as the kernel does it.
pub async fn bind(interface: &str) -> Result<Listener, SocketError> {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    if !(1..=15).contains(&interface.len()) || interface.contains(is_wrong) || matches!(interface, "." | "..")
    {
        return Err(SocketError::Name(interface.to_owned()));
    }
    Listener::bind(&path(interface)).await
}

/// What requests may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    Full,
    /// See: what a configuration file says is not changed by others.
    ReadOnly,
}

/// Shows an interface to `wg` for as long as it lives.
pub struct Window(Option<AbortHandle>);

impl Window {
    /// Makes the socket, and answers there.
    pub async fn open(interface: &Arc<Interface>) -> Result<Self, SocketError> {
        let listener = bind(interface.name()).await?;
        let served = serve(listener, Arc::downgrade(interface), Access::ReadOnly);
        Ok(Self(Some(tokio::spawn(served).abort_handle())))
    }

    /// One that could not be opened.
    pub fn closed() -> Self {
        Self(None)
    }

    /// Whether it answers still.
    pub fn is_open(&self) -> bool {
        self.0.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Serves connections until the socket is deleted. A connection that stays open keeps no interface that is to go.
pub async fn serve(listener: Listener, interface: Weak<Interface>, access: Access) {
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok(stream) => _ = tokio::task::spawn(converse(stream, interface.clone(), access)),
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
        () = listener.deleted() => {
            let name = interface.upgrade().map(|interface| interface.name().to_owned());
            tracing::info!("the socket of {} was deleted", name.unwrap_or_default());
        }
    }
}

/// Answers the requests of one connection, which may be several.
async fn converse(stream: UnixStream, interface: Weak<Interface>, access: Access) {
    let (reader, mut writer) = stream.into_split();
    let mut requests = Requests { reader, text: Text::default(), served: 0 };
    loop {
        let request = requests.next().await;
        let Some(interface) = interface.upgrade() else { return };
        let (answer, last) = match request {
            Ok(Some(request)) => (answer(request, &interface, access).await, false),
            Ok(None) => return,
            Err(error) => (refusal(&error, &interface), true),
        };
        drop(interface);
        if writer.write_all(answer.bytes()).await.is_err() || last {
            return;
        }
    }
}

/// The requests of a connection. They may hold keys, so no buffered reader keeps a copy.
struct Requests<R> {
    reader: R,
    text: Text,
    /// How much of the text was given out already.
    served: usize,
}

impl<R: AsyncRead + Unpin> Requests<R> {
    /// The next one, up to its empty line. A set that the stream ends is whole too, as wireguard-go takes it.
    async fn next(&mut self) -> Result<Option<&str>, UapiError> {
        self.text.forget(std::mem::take(&mut self.served));
        let (mut line, mut seen) = (0, 0);
        loop {
            while let Some(length) = self.text.bytes()[seen..].iter().position(|&byte| byte == b'\n') {
                seen += length + 1;
                let is_empty = matches!(self.text.bytes()[line..seen], [b'\n'] | [b'\r', b'\n']);
                if is_empty && line > 0 {
                    return self.give_out(seen);
                }
                line = seen;
            }
            seen = self.text.bytes().len();
            if seen > LONGEST {
                return Err(UapiError::too_long());
            }
            match self.reader.read_buf(self.text.room()).await {
                Ok(0) if self.text.bytes().starts_with(b"set=1\n") => return self.give_out(seen),
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }

    fn give_out(&mut self, length: usize) -> Result<Option<&str>, UapiError> {
        self.served = length;
        let request = std::str::from_utf8(&self.text.bytes()[..length]);
        request.map(Some).map_err(|error| {
            let before = &self.text.bytes()[..error.valid_up_to()];
            UapiError::protocol(before.split(|&byte| byte == b'\n').count())
        })
    }
}

async fn answer(request: &str, interface: &Interface, access: Access) -> Text {
    let outcome = match uapi::parse(request) {
        Ok(Request::Get) => {
            let mut text = uapi::print(&interface.snapshot().await);
            let _ = text.write_str(&uapi::status(Ok(())));
            return text;
        }
        Ok(Request::Set(_)) if access == Access::ReadOnly => Err(UapiError::read_only()),
        Ok(Request::Set(update)) => interface.update(update).await.map_err(UapiError::from),
        Err(error) => Err(error),
    };
    if let Err(error) = &outcome {
        return refusal(error, interface);
    }
    status(Ok(()))
}

fn refusal(error: &UapiError, interface: &Interface) -> Text {
    tracing::warn!("{}: uapi: {error}", interface.name());
    status(Err(error))
}

fn status(outcome: Result<(), &UapiError>) -> Text {
    let mut text = Text::default();
    let _ = text.write_str(&uapi::status(outcome));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests in some bytes, and how they end.
    async fn requests(bytes: &[u8]) -> (Vec<String>, Option<i32>) {
        let mut requests = Requests { reader: bytes, text: Text::default(), served: 0 };
        let mut found = Vec::new();
        loop {
            match requests.next().await {
                Ok(Some(request)) => found.push(request.to_owned()),
                Ok(None) => return (found, None),
                Err(error) => return (found, Some(error.errno)),
            }
        }
    }

    #[tokio::test]
    async fn a_set_may_end_with_its_stream() {
        let (found, _) = requests(b"get=1\n\nset=1\nfwmark=1\n\nset=1\nfwmark=2").await;
        assert_eq!(found, ["get=1\n\n", "set=1\nfwmark=1\n\n", "set=1\nfwmark=2"]);
        assert_eq!(requests(b"set=1\n").await.0, ["set=1\n"]);
        assert!(requests(b"get=1\n").await.0.is_empty() && requests(b"set=1").await.0.is_empty());
        assert_eq!(requests(b"get=1\r\n\r\nget=1\n\n").await.0.len(), 2);
    }

    #[tokio::test]
    async fn a_request_has_an_end() {
        let endless = [b"set=1\n".to_vec(), vec![b'x'; LONGEST + 1]].concat();
        assert_eq!(requests(&endless).await, (Vec::new(), Some(7)));
        assert_eq!(requests(b"set=1\nfwmark=\xff\n\n").await, (Vec::new(), Some(71)));
    }
}
