//! `postern reset`: re-establishes connections; `postern restart` is that for all of them, since nothing else need be restarted.

use crate::client::Asking;
use crate::output::print;
use crate::vpn::Found;
use crate::{Failure, Outcome, client, vpn};
use clap::{Args, Subcommand};
use gateway::ipsec::model::Reset;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    asking: Asking,
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
    let found = vpn::peers(arguments.asking.api.as_deref())?;
    let What::Vpn { what } = arguments.what;
    let json = arguments.asking.json;
    let peer = match what {
        Vpn::IpsecPeer(peer) if peer.name == "all" => return all(&found, json),
        Vpn::Ipsec { which: Ipsec::SiteToSite { which: Which::All } } => return all(&found, json),
        Vpn::IpsecPeer(peer) | Vpn::Ipsec { which: Ipsec::SiteToSite { which: Which::Peer(peer) } } => peer,
    };
    let tunnel = peer.tunnel.map(|Tunnel::Tunnel { number }| number);
    each(&vpn::named(found, &peer.name)?, tunnel, json)
}

#[derive(Args)]
pub(crate) struct Restart {
    #[command(subcommand)]
    what: Restarted,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Subcommand)]
enum Restarted {
    /// All connections
    Vpn {
        /// The same
        #[arg(value_parser = ["ipsec"])]
        kind: Option<String>,
    },
    /// All connections
    Ipsec,
}

pub(crate) fn restart(arguments: &Restart) -> Outcome {
    let (Restarted::Vpn { .. } | Restarted::Ipsec) = arguments.what;
    all(&vpn::peers(arguments.asking.api.as_deref())?, arguments.asking.json)
}

/// All of these peers.
fn all(found: &[Found], json: bool) -> Outcome {
    each(found, None, json)
}

fn each(found: &[Found], tunnel: Option<u32>, json: bool) -> Outcome {
    let begun = found.iter().map(|found| reset(found, tunnel)).collect::<Result<Vec<Reset>, Failure>>()?;
    let text: String = begun.iter().map(said).collect();
    print(json, &begun, &text)
}

fn said(begun: &Reset) -> String {
    match begun.tunnel {
        Some(number) => format!("{}: re-establishing tunnel {number}\n", begun.peer),
        None => format!("{}: re-establishing all tunnels\n", begun.peer),
    }
}

fn reset(found: &Found, tunnel: Option<u32>) -> Result<Reset, Failure> {
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
    Ok(order)
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
        let read = |words: &str| {
            Cli::try_parse_from(words.split(' ')).is_ok_and(|cli| cli.arguments.asking.api.is_none())
        };
        assert!(read("reset vpn ipsec site-to-site peer berlin") && read("reset vpn ipsec-peer berlin"));
        assert!(read("reset vpn ipsec site-to-site peer berlin tunnel 7"));
        assert!(read("reset vpn ipsec-peer berlin tunnel 7") && read("reset vpn ipsec site-to-site all"));
        let read_restart = |words: &str| {
            #[derive(Parser)]
            struct Cli {
                #[command(flatten)]
                _arguments: super::Restart,
            }
            Cli::try_parse_from(words.split(' ')).is_ok()
        };
        assert!(["restart vpn", "restart ipsec", "restart vpn ipsec"].into_iter().all(read_restart));
        assert!(!read("reset vpn ipsec site-to-site peer") && !read("reset vpn ipsec-peer berlin tunnel x"));
    }
}
