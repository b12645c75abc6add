//! The processes that are started with the daemon, before it gives up its rights.

use std::os::unix::net::UnixStream;

/// Where such a process is reached.
#[derive(Debug, Default)]
pub enum Connection {
    /// By this socket, whose other end is its standard input.
    Inherited(UnixStream),
    /// There is none.
    #[default]
    Off,
}
