//! Postern against Postern in network namespaces: real interfaces, real sockets, real kernels' stacks.

mod backup;
mod busy;
mod closed;
mod commit;
mod congestion;
mod daemon;
mod engines;
mod esp;
mod frames;
mod https;
mod import;
mod ipsec;
mod lcores;
mod machine;
mod manual;
mod marked;
mod measurements;
mod names;
mod nat;
mod openvpn;
mod openvpn_client;
#[allow(dead_code)]
mod openvpn_client_ends;
mod openvpn_ends;
mod openvpn_process;
mod openvpn_shaper;
mod openvpn_site_programs;
#[allow(dead_code)]
mod openvpn_sites;
mod openvpn_tcp;
mod openvpn_tree;
mod openvpn_tree_client;
mod operational;
mod operator;
mod reload;
mod remote;
mod resilience;
mod restarts;
mod rights;
mod secgw;
mod shell;
mod support;
mod transactions;
mod tunnel;
mod uapi;
mod unreachable;
