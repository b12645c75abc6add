//! The protocol, played by two endpoints against each other.

mod certificates;
mod collisions;
mod floods;
mod hostile;
mod impostors;
mod mallory;
mod minimal;
mod network;
mod sessions;
mod setup;
mod support;
mod transport;
