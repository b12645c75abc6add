//! Why a session was refused or failed, and the line that mends it.

use super::control_thread::Failed;
use super::model;
use tunnel::openvpn::Cause;

/// A failure of the interface `name`, in the words of the API.
pub(super) fn failed(name: &str, failed: &Failed) -> model::Failed {
    model::Failed {
        address: failed.address.to_string(),
        common_name: failed.common_name.clone(),
        offered: failed.offered.clone(),
        reason: failed.cause.to_string(),
        fix: fix(name, failed),
        count: failed.count,
        latest: failed.latest.as_secs(),
    }
}

fn fix(name: &str, failed: &Failed) -> Vec<String> {
    let path = format!("interfaces openvpn {name}");
    let client = failed.common_name.as_deref().unwrap_or("NAME");
    let lines: &[&str] = match &failed.cause {
        Cause::NoCommonCipher(no) => {
            let words: Vec<&str> = no.theirs.split([':', ',', ' ']).filter_map(word).collect();
            return match words.first() {
                Some(word) => vec![format!("set {path} encryption data-ciphers {word}")],
                None => vec![format!("on the peer: data-ciphers {}", no.ours)],
            };
        }
        Cause::RefusedByUs(reason) if reason.contains("disabled") => {
            return vec![format!("delete {path} server client {client} disable")];
        }
        Cause::RefusedByUs(reason) if reason.contains("no settings") => {
            return vec![
                format!("set {path} server client {client}"),
                format!("or admit all clients: delete {path} server reject-unconfigured-clients"),
            ];
        }
        Cause::RefusedByUs(reason) if reason.contains("address") => {
            return vec![format!("set {path} server subnet to a larger one, or delete the client-ip-pool")];
        }
        Cause::RefusedByUs(_) => &["mend what the reason names on the client"],
        Cause::HandshakeTimeout => &[
            "compare tls auth-key or tls crypt-key of both ends, and their direction",
            "compare port and protocol of both ends, and the firewall between them",
        ],
        Cause::Key(_) => &[
            "compare the authorities of both ends: each must have the one that signed the other's certificate",
            "the log of the peer has its own reason: show log openvpn",
        ],
        Cause::Data(_) | Cause::BadPushReply => &["update OpenVPN on the peer"],
        Cause::Unsupported(_) => &["delete the option in the configuration of the server"],
        Cause::Refused(_) => {
            &["the log of the server has the reason; compare certificate, name and password"]
        }
        Cause::Gone(_) => &["see whether the peer is reachable: ping its address"],
        _ => &[],
    };
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// The word of the configuration for a cipher.
fn word(cipher: &str) -> Option<&'static str> {
    match cipher.trim() {
        "AES-128-GCM" => Some("aes128gcm"),
        "AES-192-GCM" => Some("aes192gcm"),
        "AES-256-GCM" => Some("aes256gcm"),
        "AES-128-CBC" => Some("aes128"),
        "AES-192-CBC" => Some("aes192"),
        "AES-256-CBC" => Some("aes256"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tunnel::openvpn::negotiate::NoCommonCipher;

    fn fixes(cause: Cause, common_name: Option<&str>) -> Vec<String> {
        let failed = Failed {
            address: std::net::SocketAddr::from(([192, 0, 2, 1], 5)).into(),
            common_name: common_name.map(str::to_owned),
            offered: None,
            cause,
            count: 1,
            latest: Duration::ZERO,
        };
        fix("vtun0", &failed)
    }

    #[test]
    fn the_line_that_mends_a_refusal_names_the_client_and_the_node() {
        let disabled = Cause::RefusedByUs("it is disabled".to_owned());
        assert_eq!(
            fixes(disabled, Some("anna")),
            ["delete interfaces openvpn vtun0 server client anna disable"]
        );
        let unknown = Cause::RefusedByUs("there are no settings for bert".to_owned());
        assert_eq!(fixes(unknown, Some("bert"))[0], "set interfaces openvpn vtun0 server client bert");
        let cipher =
            NoCommonCipher { ours: "AES-256-GCM".to_owned(), theirs: "AES-128-GCM:BF-CBC".to_owned() };
        assert_eq!(
            fixes(cipher.into(), None),
            ["set interfaces openvpn vtun0 encryption data-ciphers aes128gcm"]
        );
    }

    #[test]
    fn each_failure_of_a_handshake_has_a_fix() {
        for cause in
            [Cause::HandshakeTimeout, Cause::Refused(String::new()), Cause::Gone(60), Cause::BadPushReply]
        {
            assert!(!fixes(cause.clone(), None).is_empty(), "{cause}");
        }
    }
}
