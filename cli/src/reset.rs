//! `postern reset`: connections begin anew.

use crate::vpn::Found;
use crate::{Outcome, client, vpn};
use clap::{Args, Subcommand};
use gateway::api::model::Reset;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Ask the daemon at this socket only
    #[arg(long, global = true, value_name = "SOCKET")]
    api: Option<PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// Virtual private networks
    Vpn {
        #[command(subcommand)]
        what: Vpn,
    },
}

#[derive(Subcommand)]
enum Vpn {
    /// IPsec
    Ipsec {
        #[command(subcommand)]
        which: Ipsec,
    },
    /// The older spelling of `ipsec site-to-site peer`
    #[command(hide = true)]
    IpsecPeer(Peer),
}

#[derive(Subcommand)]
enum Ipsec {
    /// Connections between gateways
    SiteToSite {
        #[command(subcommand)]
        which: Which,
    },
}

#[derive(Subcommand)]
enum Which {
    /// To this peer
    Peer(Peer),
    /// To all peers
    All,
}

#[derive(Args)]
struct Peer {
    /// Its name, or all
    name: String,
    /// Only one tunnel, by its number
    #[command(subcommand)]
    tunnel: Option<Tunnel>,
}

#[derive(Subcommand)]
enum Tunnel {
    /// Only this tunnel
    Tunnel {
        /// Its number
        number: u32,
    },
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    let found = vpn::peers(arguments.api.as_deref())?;
    let What::Vpn { what } = arguments.what;
    let peer = match what {
        Vpn::IpsecPeer(peer) if peer.name == "all" => return all(&found),
        Vpn::Ipsec { which: Ipsec::SiteToSite { which: Which::All } } => return all(&found),
        Vpn::IpsecPeer(peer) | Vpn::Ipsec { which: Ipsec::SiteToSite { which: Which::Peer(peer) } } => peer,
    };
    let tunnel = peer.tunnel.map(|Tunnel::Tunnel { number }| number);
    vpn::named(found, &peer.name)?.iter().try_for_each(|found| reset(found, tunnel))
}

fn all(found: &[Found]) -> Outcome {
    found.iter().try_for_each(|found| reset(found, None))
}

fn reset(found: &Found, tunnel: Option<u32>) -> Outcome {
    let peer = &found.peer;
    if let Some(number) = tunnel
        && !peer.tunnels.iter().any(|tunnel| tunnel.number == number)
    {
        let known: Vec<String> = peer.tunnels.iter().map(|tunnel| tunnel.number.to_string()).collect();
        return Err(format!(
            "peer {} has no tunnel {number}\n  fix: its tunnels are {}",
            peer.name,
            known.join(", ")
        )
        .into());
    }
    let order = Reset { peer: peer.name.clone(), tunnel };
    let known: bool = client::tell(&found.socket, "/v1/vpn/ipsec/reset", &order)?;
    if !known {
        return Err(format!("peer {} has just gone\n  fix: postern show vpn ipsec sa", peer.name).into());
    }
    match tunnel {
        Some(number) => println!("{}: tunnel {number} begins anew", peer.name),
        None => println!("{}: begins anew", peer.name),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: super::Arguments,
    }

    #[test]
    fn both_spellings_of_vyos_are_read() {
        let read =
            |words: &str| Cli::try_parse_from(words.split(' ')).is_ok_and(|cli| cli.arguments.api.is_none());
        assert!(read("reset vpn ipsec site-to-site peer berlin") && read("reset vpn ipsec-peer berlin"));
        assert!(read("reset vpn ipsec site-to-site peer berlin tunnel 7"));
        assert!(read("reset vpn ipsec-peer berlin tunnel 7") && read("reset vpn ipsec site-to-site all"));
        assert!(!read("reset vpn ipsec site-to-site peer") && !read("reset vpn ipsec-peer berlin tunnel x"));
    }
}
