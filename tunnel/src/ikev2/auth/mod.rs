//! Authentication of both sides (RFC 7296 section 2.15): computations only, without state.

pub(super) mod init;
pub(super) mod proof;
pub(super) mod rival;
pub(super) mod rounds;
