//! Postern with other people's WireGuard, IPsec and ESP, and with other people's crypto.

mod accelerator;
mod arm;
mod bare;
mod emulated;
mod kernel;
mod machine;
#[path = "../netns/manual.rs"]
#[allow(dead_code)]
mod manual;
mod openvpn;
mod openvpn_access;
mod openvpn_client;
#[path = "../netns/openvpn_client_ends.rs"]
#[allow(dead_code)]
mod openvpn_client_ends;
#[path = "../netns/openvpn_ends.rs"]
#[allow(dead_code)]
mod openvpn_ends;
mod openvpn_management;
mod openvpn_scripts;
mod openvpn_server;
#[path = "../netns/openvpn_sites.rs"]
#[allow(dead_code)]
mod openvpn_sites;
mod openvpn_sockets;
mod order;
mod plain_kernel;
mod secgw_scripts;
mod strongswan;
#[path = "../netns/support.rs"]
#[allow(dead_code)]
mod support;
#[path = "../netns/tester.rs"]
#[allow(dead_code)]
mod tester;
mod virtio_crypto;
mod wireguard_go;
mod xfrm;
