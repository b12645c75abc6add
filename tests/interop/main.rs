//! Postern with other people's WireGuard.

mod kernel;
#[path = "../netns/support.rs"]
#[allow(dead_code)]
mod support;
mod wireguard_go;
