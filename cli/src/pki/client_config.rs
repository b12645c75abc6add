//! `postern generate openvpn client-config`: a file with which OpenVPN connects with a server of the configuration.

use super::authority::der;
use super::{Source, configuration, issue, print, static_key};
use crate::{Failure, Outcome};
use clap::{Args, Subcommand};
use config::schema::nearest;
use config::{Settings, Tree};
use der::Decode;
use std::fmt::Write;
use x509_cert::Certificate;
use x509_cert::ext::pkix::ExtendedKeyUsage;
use zeroize::Zeroizing;

/// The port of OpenVPN.
const PORT: &str = "1194";
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";

#[derive(Subcommand)]
pub(crate) enum What {
    /// A file with which a client connects, with its private key
    ClientConfig(Arguments),
}

#[derive(Args)]
pub(crate) struct Arguments {
    /// `interface NAME ca NAME certificate NAME`, as in VyOS: the server, the authority of its certificate, and the certificate of
    /// the client
    #[arg(value_name = "WORDS", num_args = 6, required = true)]
    words: Vec<String>,
    /// Address or name at which clients find the server (default: local-host of the interface)
    #[arg(long)]
    remote: Option<String>,
    #[command(flatten)]
    source: Source,
}

pub(crate) fn run(What::ClientConfig(arguments): What) -> Outcome {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    let ["interface", interface, "ca", ca, "certificate", certificate] = words[..] else {
        return Err("the words are not known\n  fix: interface NAME ca NAME certificate NAME".into());
    };
    let tree = configuration(&arguments.source)?;
    let text = client_config(&tree, interface, ca, certificate, arguments.remote.as_deref())?;
    print(&text)
}

/// The file.
fn client_config(
    tree: &Tree,
    interface: &str,
    ca: &str,
    certificate: &str,
    remote: Option<&str>,
) -> Result<Zeroizing<String>, Failure> {
    if let Err(errors) = Settings::new(tree) {
        return Err(format!("the configuration is not valid: {}", errors[0].reason).into());
    }
    let server = branch(tree, &["interfaces", "openvpn"], interface)?;
    if server.value("mode") != Some("server") {
        return Err(
            format!("interfaces openvpn {interface} is no server\n  fix: name one with mode server").into()
        );
    }
    let remote = remote.or(server.value("local-host")).ok_or(
        "the address of the server is not known\n  fix: add --remote ADDRESS, where clients find the server",
    )?;
    let authority = branch(tree, &["pki", "ca"], ca)?;
    let own = branch(tree, &["pki", "certificate"], certificate)?;
    if own.has("revoke") {
        return Err(format!("pki certificate {certificate} is revoked\n  fix: name another").into());
    }
    let missing = |what: &str| format!("{what} is not set in the configuration\n  fix: set it, and commit");
    let authority =
        der(authority, "certificate").ok_or_else(|| missing(&format!("pki ca {ca} certificate")))?;
    let place = format!("pki certificate {certificate}");
    let chain = der(own, "certificate").ok_or_else(|| missing(&format!("{place} certificate")))?;
    let key = own.at(&["private"]).and_then(|private| der(private, "key"));
    let key = key.ok_or_else(|| missing(&format!("{place} private key")))?;
    let mut text = Zeroizing::new(String::with_capacity(16 * 1024));
    directives(&mut text, tree, server, remote)?;
    for (tag, block) in [("ca", &authority), ("cert", &chain)] {
        write!(text, "<{tag}>\n{}</{tag}>\n", issue::pem("CERTIFICATE", block))?;
    }
    write!(text, "<key>\n{}</key>\n", *issue::secret_pem(&key))?;
    keys(&mut text, tree, server)?;
    Ok(text)
}

fn directives(text: &mut String, tree: &Tree, server: &Tree, remote: &str) -> Outcome {
    let protocol = if server.value("protocol") == Some("tcp-passive") { "tcp-client" } else { "udp" };
    let port = server.value("local-port").unwrap_or(PORT);
    write!(
        text,
        "client\ndev tun\nproto {protocol}\nremote {remote} {port}\nnobind\nresolv-retry infinite\n"
    )?;
    text.push_str("persist-key\npersist-tun\n");
    if is_for_servers(tree, server) {
        text.push_str("remote-cert-tls server\n");
    }
    let ciphers = server.at(&["encryption"]).map(|it| it.values("data-ciphers")).unwrap_or_default();
    if !ciphers.is_empty() {
        let names: Vec<&str> = ciphers.into_iter().map(config::settings::openvpn::cipher).collect();
        writeln!(text, "data-ciphers {}", names.join(":"))?;
    }
    if let Some(hash) = server.value("hash") {
        writeln!(text, "auth {}", hash.to_uppercase())?;
    }
    text.push_str("verb 3\n");
    Ok(())
}

/// Whether the certificate of the server says that it is one.
fn is_for_servers(tree: &Tree, server: &Tree) -> bool {
    let name = server.at(&["tls"]).and_then(|tls| tls.value("certificate"));
    let branch = name.and_then(|name| tree.at(&["pki", "certificate", name]));
    let Some(bytes) = branch.and_then(|branch| der(branch, "certificate")) else { return false };
    let Ok(certificate) = Certificate::from_der(&bytes) else { return false };
    let usage = certificate.tbs_certificate().get_extension::<ExtendedKeyUsage>();
    matches!(usage, Ok(Some((_, usage))) if usage.0.iter().any(|it| it.to_string() == SERVER_AUTH))
}

/// The key of control packets.
fn keys(text: &mut String, tree: &Tree, server: &Tree) -> Outcome {
    for (word, tag) in [("crypt-key", "tls-crypt"), ("auth-key", "tls-auth")] {
        let name = server.at(&["tls"]).and_then(|tls| tls.value(word));
        let branch = name.and_then(|name| tree.at(&["pki", "openvpn", "shared-secret", name]));
        if let Some(digits) = branch.and_then(|branch| branch.value("key")) {
            write!(text, "<{tag}>\n{}</{tag}>\n", *static_key(digits))?;
            if word == "auth-key" {
                text.push_str("key-direction 1\n");
            }
        }
    }
    Ok(())
}

fn branch<'a>(tree: &'a Tree, path: &[&str], name: &str) -> Result<&'a Tree, Failure> {
    let all = tree.at(path);
    if let Some(found) = all.and_then(|all| all.at(&[name])) {
        return Ok(found);
    }
    let known: Vec<&str> = all.into_iter().flat_map(Tree::children).map(|(name, _)| name).collect();
    let fix = match (nearest(name, &known), &known[..]) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, []) => format!("set {} {name} ..., and commit", path.join(" ")),
        (None, known) => format!("one of {}", known.join(", ")),
    };
    Err(format!("there is no {} {name}\n  fix: {fix}", path.join(" ")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(more: &str) -> Tree {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/openvpn-server.conf");
        let text = std::fs::read_to_string(file).expect("an example") + more;
        config::parse(&text).expect("right")
    }

    fn made(more: &str, words: [&str; 3], remote: Option<&str>) -> Result<String, String> {
        let text = client_config(&example(more), words[0], words[1], words[2], remote);
        text.map(|text| text.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_has_the_settings_of_the_server_and_all_keys() {
        let text = made("", ["vtun0", "users", "server"], Some("vpn.example.org")).expect("made");
        for line in [
            "remote vpn.example.org 1194",
            "proto udp",
            "data-ciphers AES-256-GCM:AES-128-GCM",
            "remote-cert-tls server",
            "<tls-crypt>",
            "-----BEGIN OpenVPN Static key V1-----",
            "<key>",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}:\n{text}");
        }
        assert!(!text.contains("key-direction"), "{text}");
    }

    #[test]
    fn what_is_missing_is_told_with_a_fix() {
        let wrong = |more: &str, words, remote| made(more, words, remote).expect_err("wrong");
        let told = wrong("", ["vtun0", "users", "server"], None);
        assert!(told.contains("fix: add --remote"), "{told}");
        assert!(wrong("", ["vtun1", "users", "server"], Some("a")).contains("did you mean vtun0?"));
        let revoked = wrong(
            "set pki certificate anna certificate AAAA\nset pki certificate anna revoke\n",
            ["vtun0", "users", "anna"],
            Some("a"),
        );
        assert!(revoked.contains("pki certificate anna is revoked"), "{revoked}");
    }
}
