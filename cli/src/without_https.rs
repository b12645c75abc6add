//! In place of the HTTPS server, in a program that is built without it: what it would serve is refused.

use crate::Failure;
use crate::service_user::User;
use gateway::helper::Connection;
use std::path::Path;

/// The paths of a daemon, which no server is told.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "the server itself is given them")]
pub(crate) struct Daemon<'a> {
    pub(crate) api: &'a Path,
    pub(crate) state: &'a Path,
    pub(crate) config: &'a Path,
}

/// Starts nothing.
#[expect(clippy::unnecessary_wraps, reason = "the server itself may not start")]
pub(crate) fn start(_: Daemon<'_>, _: Option<&User>) -> Result<Connection, Failure> {
    Ok(Connection::Off)
}
