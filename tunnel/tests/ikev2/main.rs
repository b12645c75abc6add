//! The protocol, played by two endpoints against each other.

mod certificates;
mod collisions;
mod hostile;
mod mallory;
mod network;
mod sessions;
mod setup;
mod support;
