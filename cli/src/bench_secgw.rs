//! `postern bench secgw`.

use bench::secgw;
use clap::{Args, ValueEnum};
use crypto::Cipher;
use crypto::choice::Choice;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Program to compare with
    #[arg(long, value_enum, default_value = "none")]
    peer: Peer,
    /// Directory for ipsec-secgw, which is built there from Debian's source package unless it is there
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/cache/postern/ipsec-secgw")]
    peer_directory: PathBuf,
    /// Measure this program with the ports of DPDK that ipsec-secgw has, too
    #[arg(long)]
    dpdk: bool,
    /// Packets that our port receives at once
    #[arg(long, default_value_t = 64)]
    burst: usize,
    /// Seconds of processor time for each measurement
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Core of the gateways
    #[arg(long, default_value_t = 1)]
    core: usize,
    /// Only measurements whose name contains this, such as "64 bytes" or rules
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Packets of which our gateway keeps fragments; no packet that is carried is one
    #[arg(long, value_name = "PACKETS", default_value_t = 0)]
    reassemble: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// DPDK's example program, with `crypto_aesni_gcm`, from `net_pcap` to `net_null`
    IpsecSecgw,
    /// Nothing
    None,
}

pub(crate) fn measure(arguments: Arguments, program: PathBuf) -> bench::Outcome<secgw::Report> {
    let Arguments { peer, peer_directory, dpdk, burst, seconds, rounds, core, only, reassemble } = arguments;
    let peer = (peer == Peer::IpsecSecgw).then(|| secgw::build(&peer_directory)).transpose()?;
    let choice = Arc::new(Choice::here(None).prepared_for(&[Cipher::Aes128Gcm.into()]));
    let (burst, seconds) = (burst.clamp(1, 256), seconds.clamp(0.01, 3600.0));
    secgw::run(&secgw::Options {
        choice,
        burst,
        seconds,
        rounds,
        core,
        peer,
        dpdk: dpdk.then_some(program),
        only,
        reassemble,
    })
}
