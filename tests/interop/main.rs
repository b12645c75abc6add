//! Postern with other people's WireGuard, IPsec and ESP, and with other people's crypto.

mod accelerator;
mod bare;
mod emulated;
mod kernel;
mod machine;
#[path = "../netns/manual.rs"]
#[allow(dead_code)]
mod manual;
mod openvpn;
#[path = "../netns/openvpn_ends.rs"]
mod openvpn_ends;
mod plain_kernel;
mod strongswan;
#[path = "../netns/support.rs"]
#[allow(dead_code)]
mod support;
mod virtio_crypto;
mod wireguard_go;
mod xfrm;
