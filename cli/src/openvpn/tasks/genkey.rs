//! `genkey TYPE [FILE]`: keys for `tls-auth`, `tls-crypt`, `tls-crypt-v2` and `auth-gen-token-secret`.

use super::{Given, argument, write_key};
use crate::Outcome;
use base64ct::{Base64, Encoding};
use config::text::Text;
use gateway::openvpn::key_files;
use std::path::Path;

pub(super) fn run(given: &Given<'_>) -> Outcome {
    let words = given.iter().find(|(name, _)| *name == "genkey").map_or(&[][..], |(_, words)| words);
    let kind = words.first().map_or("secret", String::as_str);
    // `--genkey --secret FILE` is the form of OpenVPN before 2.5.
    let file = words.get(1).map(String::as_str).or(argument(given, "secret"));
    match kind {
        "secret" | "tls-auth" | "tls-crypt" => write_key(file, &key_files::shared()),
        "tls-crypt-v2-server" => write_key(file, &key_files::server()),
        "tls-crypt-v2-client" => client(given, file, words.get(2).map(String::as_str)),
        "auth-token" => write_key(file, &key_files::tokens()),
        _ => Err(format!(
            "genkey: there is no key of the type {kind}\n  fix: write secret, tls-auth, tls-crypt, tls-crypt-v2-server, \
             tls-crypt-v2-client or auth-token"
        )
        .into()),
    }
}

fn client(given: &Given<'_>, file: Option<&str>, metadata: Option<&str>) -> Outcome {
    let missing = "genkey: a client's key needs the server's\n  fix: write --tls-crypt-v2 SERVERKEY too";
    let server = argument(given, "tls-crypt-v2").ok_or(missing)?;
    let text = Text::read(Path::new(server)).map_err(|error| format!("{server}: {error}"))?;
    let wrong = "genkey: the metadata is not base64\n  fix: write it as base64 prints it";
    let metadata = metadata.map(Base64::decode_vec).transpose().map_err(|_| wrong)?;
    let key = key_files::client(text.as_str()?.as_bytes(), metadata);
    write_key(file, &key.map_err(|error| format!("genkey: {error}"))?)
}
