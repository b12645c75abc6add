//! The protocol, played by two endpoints against each other.

mod network;
mod setup;
mod support;
