//! The router of a site, as the daemon serves it: links beside the tunnels, their addresses, and static routes. The
//! [`Host`](crate::host::Host) keeps them in the kernel.

mod service;

pub use service::RouterService;
