//! `postern generate`: new keys, and references made from the tables of the program.

use crate::answer::{self, Answer};
use crate::{Outcome, manual, pki, shell};
use base64ct::{Base64, Encoding};
use clap::{Args, Subcommand};
use crypto::{PrivateKey, Random, random};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum What {
    /// Keys and certificates
    #[command(subcommand)]
    Pki(Pki),
    /// Keys for WireGuard, in the words of VyOS 1.3
    #[command(subcommand)]
    Wireguard(OldWireGuard),
    /// Files for OpenVPN
    #[command(subcommand)]
    Openvpn(pki::client_config::What),
    /// The configuration reference, in Markdown
    Configuration,
    /// The OpenAPI document of the API
    #[cfg(feature = "https")]
    Openapi,
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
    #[command(flatten)]
    Certificates(pki::What),
}

#[derive(Subcommand)]
pub(crate) enum WireGuard {
    /// A private key and its public key
    KeyPair(Form),
    /// A pre-shared key
    PresharedKey(Form),
}

#[derive(Subcommand)]
pub(crate) enum OldWireGuard {
    /// A private key and its public key, and the line that sets it: keys have no names here
    DefaultKeypair(Form),
}

// Not a doc comment: clap would print that as the help of each command.
#[derive(Args, Clone, Copy)]
pub(crate) struct Form {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(what: What) -> Outcome {
    match what {
        What::Pki(Pki::Wireguard(WireGuard::KeyPair(form))) => {
            return answer::print(&key_pair(false), form.json);
        }
        What::Pki(Pki::Wireguard(WireGuard::PresharedKey(form))) => {
            return answer::print(&preshared_key(), form.json);
        }
        What::Pki(Pki::Certificates(what)) => return pki::run(what),
        What::Openvpn(what) => return pki::client_config::run(what),
        What::Wireguard(OldWireGuard::DefaultKeypair(form)) => {
            return answer::print(&key_pair(true), form.json);
        }
        What::Configuration => print!("{}", manual::configuration::text()),
        #[cfg(feature = "https")]
        What::Openapi => println!("{:#}", gateway::api::openapi::document()),
        What::Programs { directory } => return shell::make_programs(&directory),
        What::Manual(arguments) => return manual::run(&arguments),
    }
    Ok(())
}

/// What the words after `generate` make, if it is a key.
#[cfg(feature = "https")]
pub(crate) fn find(words: &[&str]) -> Option<Answer> {
    match words {
        ["pki", "wireguard", "key-pair"] => Some(key_pair(false)),
        ["pki", "wireguard", "preshared-key"] => Some(preshared_key()),
        ["wireguard", "default-keypair"] => Some(key_pair(true)),
        _ => None,
    }
}

/// A key pair; VyOS 1.3 would keep the default one under a name, so the line that sets it follows.
fn key_pair(is_default: bool) -> Answer {
    let key = PrivateKey::generate(&mut random::System::default());
    let private = Base64::encode_string(key.secret().expose());
    let public = key.public().to_string();
    let value = json!({ "private_key": private, "public_key": public });
    let mut text = format!("Private key: {private}\nPublic key: {public}\n");
    if is_default {
        let _ = writeln!(text, "Set it: set interfaces wireguard wg0 private-key {private}");
    }
    Answer::new(value, move |_| text.clone())
}

fn preshared_key() -> Answer {
    let key = Base64::encode_string(&random::System::default().bytes::<32>());
    let text = format!("Pre-shared key: {key}\n");
    Answer::new(json!({ "preshared_key": key }), move |_| text.clone())
}
