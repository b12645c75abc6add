//! Translation of addresses, as the daemon serves it: the rules of `nat` are the kernel's, which [`Host`](crate::host::Host) keeps.

mod api;
pub mod model;
mod service;

pub use service::NatService;
