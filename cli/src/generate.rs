//! `postern generate`: new keys.

use base64ct::{Base64, Encoding};
use clap::Subcommand;
use crypto::{PrivateKey, Random, random};

#[derive(Subcommand)]
pub(crate) enum What {
    /// Keys and certificates
    #[command(subcommand)]
    Pki(Pki),
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
    /// A key for both sides to share beforehand
    PresharedKey,
}

pub(crate) fn run(what: What) {
    let mut random = random::System::default();
    let What::Pki(Pki::Wireguard(kind)) = what;
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
