//! Postern against Postern in network namespaces: real interfaces, real sockets, real kernels' stacks.

mod busy;
mod closed;
mod commit;
mod congestion;
mod daemon;
mod engines;
mod esp;
mod import;
mod ipsec;
mod machine;
mod manual;
mod marked;
mod measurements;
mod names;
mod nat;
mod operator;
mod reload;
mod resilience;
mod restarts;
mod rights;
mod shell;
mod support;
mod transactions;
mod tunnel;
mod uapi;
mod unreachable;
