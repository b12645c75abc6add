//! DPDK, by a small library of C that is loaded at run time: the program itself is built and starts without DPDK.
//!
//! ```text
//! libpostern_dpdk.so ── find ──> Library ── start, with the words of EAL ──> Eal ─┬─ open_port ──> queues of frames
//!                                                                                 └─ open_device ─> keys of a crypto device
//! ```
//! `shim/` has the library. Its build is the cargo feature `dpdk` of the program. EAL, DPDK's environment abstraction layer, starts once
//! in a process, in a thread of its own that lives on: it opens and closes ports, which may need rights that other threads have given up.

pub mod crypto;
mod eal;
mod library;
pub mod port;
mod words;

pub use eal::{DeviceError, Eal, StartError, enter_thread};
pub use library::{Library, LoadError};
pub use words::completed;
