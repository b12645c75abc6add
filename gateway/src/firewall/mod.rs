//! The zone firewall, as the daemon serves it: the zones of `firewall` are the kernel's, which [`Host`](crate::host::Host) keeps.

mod api;
mod closed;
pub mod model;
mod service;

pub use service::FirewallService;
