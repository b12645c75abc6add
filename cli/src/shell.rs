//! `postern shell` and `postern configure`: a router's command line, at a terminal, in scripts and from files.
//!
//! ```text
//! terminal, file, -c, pipe ──> Console ──> Session (candidate, level) ──> the daemon's API
//!                                 └──────> operational commands, programs
//! ```

pub(crate) mod api;
mod arguments;
mod attached;
mod batch;
mod changing;
pub(crate) mod commit;
mod complete;
mod console;
pub(crate) mod files;
mod interactive;
mod line;
mod listing;
pub(crate) mod numbering;
mod outside;
mod pipe;
mod private;
mod programs;
mod refusal;
pub(crate) mod session;
pub(crate) mod showing;
mod signals;
mod stored;
pub(crate) mod user;
mod verbs;

pub(crate) use arguments::{Configure, Shell, configure, shell};
pub(crate) use programs::{command_line, make as make_programs};

#[cfg(test)]
mod tests;
