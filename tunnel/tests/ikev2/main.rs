//! The protocol, played by two endpoints against each other.

mod certificates;
mod collisions;
mod exchanges;
mod floods;
mod hostile;
mod hubs;
mod impostors;
mod jobs;
mod mallory;
mod minimal;
mod names;
mod network;
mod paths;
mod raw_keys;
mod rekeying_jobs;
mod returns;
mod revocation;
mod sessions;
mod setup;
mod silence;
mod support;
mod transport;
mod unanswered;
