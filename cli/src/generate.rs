//! `postern generate`: new keys, and references made from the tables of the program.

use crate::{Outcome, manual, shell};
use base64ct::{Base64, Encoding};
use clap::Subcommand;
use crypto::{PrivateKey, Random, random};
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum What {
    /// Keys and certificates
    #[command(subcommand)]
    Pki(Pki),
    /// The configuration reference, in Markdown
    Configuration,
    /// A folder of programs for scripts: show, set, commit and so on, and script-template, to be sourced
    Programs {
        /// The folder to write to, which goes into PATH
        directory: PathBuf,
    },
    /// Man pages, shell completions, and the references of commands and of the configuration
    Manual(manual::Arguments),
}

#[derive(Subcommand)]
pub(crate) enum Pki {
    /// Keys for WireGuard
    #[command(subcommand)]
    Wireguard(WireGuard),
}

#[derive(Subcommand)]
pub(crate) enum WireGuard {
    /// A private key and its public key
    KeyPair,
    /// A pre-shared key
    PresharedKey,
}

pub(crate) fn run(what: What) -> Outcome {
    match what {
        What::Pki(Pki::Wireguard(kind)) => wireguard(kind),
        What::Configuration => print!("{}", manual::configuration::text()),
        What::Programs { directory } => return shell::make_programs(&directory),
        What::Manual(arguments) => return manual::run(&arguments),
    }
    Ok(())
}

fn wireguard(kind: WireGuard) {
    let mut random = random::System::default();
    match kind {
        WireGuard::KeyPair => {
            let key = PrivateKey::generate(&mut random);
            println!("Private key: {}", Base64::encode_string(key.secret().expose()));
            println!("Public key: {}", key.public());
        }
        WireGuard::PresharedKey => {
            println!("Pre-shared key: {}", Base64::encode_string(&random.bytes::<32>()));
        }
    }
}
