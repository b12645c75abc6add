//! `postern enroll`: branches that join head office with a token, and their life after that.
//!
//! ```text
//! create ──> waiting ── postern join, at the branch ──> joined ──> rename, move, retire
//!               └────── revoke, or time ──────────────> revoked, expired ── create ──> waiting
//! ```
//! All of it is configuration: each command is one commit, and is saved.

mod change;
mod create;
mod list;
mod qr;
mod running;

pub(crate) use running::{Gateway, warn};

use crate::Outcome;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Ask the daemon at this socket; by default at the one in POSTERN_API
    #[arg(long, global = true, value_name = "SOCKET")]
    api: Option<PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// Print a token with which a branch joins, once
    Create(Create),
    /// List the branches: their networks, and whether they have joined
    List,
    /// Accept the token of a branch no more; it has not joined yet
    Revoke {
        /// Name of the branch
        branch: String,
    },
    /// Give a branch another name
    Rename {
        /// Its name
        branch: String,
        /// Its new name
        to: String,
    },
    /// Give a branch other networks
    Move {
        /// Name of the branch
        branch: String,
        /// The networks behind it from now on
        #[arg(long, value_name = "PREFIX", value_delimiter = ',', required = true)]
        networks: Vec<IpNet>,
    },
    /// End the tunnel of a branch, and forget the branch
    Retire {
        /// Name of the branch
        branch: String,
    },
}

#[derive(Args)]
struct Create {
    /// Name of the branch: letters, digits, and -_.
    branch: String,
    /// The networks behind it, with commas between them
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    networks: Vec<IpNet>,
    /// Its address inside the tunnel (default: the first free one)
    #[arg(long)]
    address: Option<IpAddr>,
    /// How long the token is valid: a number with m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    expires: Duration,
    /// Print no QR code
    #[arg(long)]
    no_qr: bool,
}

/// The longest time for which a token is valid.
const LONGEST: u64 = 30 * 86_400;

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("m", 60), ("h", 3600), ("d", 86_400)];
    let read = units
        .iter()
        .find_map(|(unit, seconds)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*seconds));
    let read = read.filter(|seconds| (60..=LONGEST).contains(seconds));
    read.map(Duration::from_secs).ok_or_else(|| "write a time from 1m to 30d, such as 24h".to_owned())
}

pub(crate) fn run(Arguments { what, json, api }: Arguments) -> Outcome {
    let mut head = Gateway::read(api)?;
    match what {
        What::Create(wanted) => create::create(&mut head, &wanted, json),
        What::List => list::list(&head, json),
        What::Revoke { branch } => change::revoke(&mut head, &branch, json),
        What::Rename { branch, to } => change::rename(&mut head, &branch, &to, json),
        What::Move { branch, networks } => change::relocate(&mut head, &branch, &networks, json),
        What::Retire { branch } => change::retire(&mut head, &branch, json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_tokens_are_bounded() {
        let seconds = |text| duration(text).ok().map(|it| it.as_secs());
        assert_eq!(
            (seconds("1m"), seconds("24h"), seconds("30d")),
            (Some(60), Some(86_400), Some(2_592_000))
        );
        for wrong in ["", "h", "0m", "31d", "24", "1w", "-1h", "99999999999999999999d", "213503982334602d"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
