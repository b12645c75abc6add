//! The protocol, played by two endpoints against each other.

mod collisions;
mod network;
mod sessions;
mod setup;
mod support;
