//! The cross-platform configuration protocol of WireGuard (wireguard.com/xplatform), by which `wg` speaks to us.
//!
//! Lines `key=value`, ended by an empty one. A request is read whole before anything of it is done, so a wrong line
//! changes nothing.

use super::update::{AllowedIpUpdate, PeerUpdate, Snapshot, Update, UpdateError};
use base16ct::HexDisplay;
use config::Text;
use crypto::{PublicKey, Secret};
use ipnet::IpNet;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use std::fmt::Write;
use std::net::SocketAddr;
use std::str::FromStr;
use zeroize::Zeroizing;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Show everything.
    Get,
    /// Change something.
    Set(Update),
}

/// Why a request was refused, in the number that goes back and in words for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UapiError {
    /// `errno(3)`, positive.
    pub errno: i32,
    /// What is wrong.
    pub message: String,
}

impl UapiError {
    fn invalid(key: &str, value: &str) -> Self {
        // Values may be secrets: only those of harmless keys are repeated, and nothing that is as long as a key.
        let secret = matches!(key, "private_key" | "preshared_key") || value.len() >= 2 * 32;
        let shown = if secret { "(hidden)" } else { value };
        Self { errno: Errno::INVAL.raw_os_error(), message: format!("invalid {key}: {shown}") }
    }

    /// More bytes than a request may have.
    pub(super) fn too_long() -> Self {
        Self { errno: Errno::TOOBIG.raw_os_error(), message: "a request without end".to_owned() }
    }

    /// A set where only the configuration file changes anything.
    pub(super) fn read_only() -> Self {
        let message = "the interface is what the configuration file says, and wg only sees it\n  fix: change the \
                       configuration file, which postern status names, then: postern reload";
        Self { errno: Errno::PERM.raw_os_error(), message: message.to_owned() }
    }

    /// The line itself is not repeated: it may be a secret in a wrong place.
    pub(super) fn protocol(number: usize) -> Self {
        let message = match number {
            1 => "line 1 is neither get=1 nor set=1".to_owned(),
            number => format!("line {number} is not of the form key=value"),
        };
        Self { errno: Errno::PROTO.raw_os_error(), message }
    }
}

impl From<UpdateError> for UapiError {
    fn from(error: UpdateError) -> Self {
        let errno = match &error {
            UpdateError::PortInUse { .. } => Errno::ADDRINUSE,
            UpdateError::Socket { error, .. } | UpdateError::Fwmark { error, .. } => *error,
        };
        Self { errno: errno.raw_os_error(), message: error.to_string() }
    }
}

/// The end of an answer.
///
/// The number is negative for an error, as `wg` expects it after a set.
pub fn status(outcome: Result<(), &UapiError>) -> String {
    format!("errno={}\n\n", outcome.map_or_else(|error| -error.errno, |()| 0))
}

/// Reads a request: its first line and those up to an empty one.
pub fn parse(request: &str) -> Result<Request, UapiError> {
    let mut lines = request.lines();
    let operation = lines.next().unwrap_or_default();
    let mut lines = lines.take_while(|line| !line.is_empty());
    match operation {
        "get=1" if lines.next().is_none() => Ok(Request::Get),
        "get=1" => Err(UapiError::invalid("get", "(more lines)")),
        "set=1" => parse_set(lines).map(Request::Set),
        _ => Err(UapiError::protocol(1)),
    }
}

fn parse_set<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Update, UapiError> {
    let mut update = Update::default();
    for (number, line) in lines.enumerate() {
        let (key, value) = line.split_once('=').ok_or_else(|| UapiError::protocol(number + 2))?;
        if key == "public_key" {
            update.peers.push(PeerUpdate::new(PublicKey(*key_of(key, value)?)));
            continue;
        }
        match update.peers.last_mut() {
            None => device_line(&mut update, key, value)?,
            Some(peer) => peer_line(peer, key, value)?,
        }
    }
    Ok(update)
}

fn device_line(update: &mut Update, key: &str, value: &str) -> Result<(), UapiError> {
    match key {
        "private_key" => update.private_key = Some(Secret::new(*key_of(key, value)?)),
        "listen_port" => update.listen_port = Some(number(key, value)?),
        "fwmark" => update.fwmark = Some(number(key, value)?),
        "replace_peers" => update.replace_peers = flag(key, value)?,
        _ => return Err(UapiError::invalid("device key", key)),
    }
    Ok(())
}

fn peer_line(peer: &mut PeerUpdate, key: &str, value: &str) -> Result<(), UapiError> {
    match key {
        "remove" => peer.remove = flag(key, value)?,
        "update_only" => peer.update_only = flag(key, value)?,
        "preshared_key" => peer.preshared = Some(Secret::new(*key_of(key, value)?)),
        "endpoint" => {
            peer.endpoint = Some(endpoint_of(value).ok_or_else(|| UapiError::invalid(key, value))?);
        }
        "persistent_keepalive_interval" => peer.persistent_keepalive = Some(number(key, value)?),
        "replace_allowed_ips" => {
            peer.replace_allowed_ips = flag(key, value)?;
            // Those given before it are replaced too.
            peer.allowed_ips.clear();
        }
        "allowed_ip" => {
            let (remove, prefix) = match value.strip_prefix('-') {
                Some(prefix) => (true, prefix),
                None => (false, value),
            };
            let prefix = IpNet::from_str(prefix).map_err(|_| UapiError::invalid(key, value))?;
            peer.allowed_ips.push(AllowedIpUpdate { remove, prefix });
        }
        "protocol_version" if value == "1" => {}
        "protocol_version" => return Err(UapiError::invalid(key, value)),
        _ => return Err(UapiError::invalid("peer key", key)),
    }
    Ok(())
}

/// An address and port; the scope of a link-local address may be a number or an interface's name.
fn endpoint_of(value: &str) -> Option<SocketAddr> {
    if let Ok(endpoint) = value.parse() {
        return Some(endpoint);
    }
    let (address, rest) = value.split_once('%')?;
    let (interface, port) = rest.split_once(']')?;
    let socket = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None).ok()?;
    let index = rustix::net::netdevice::name_to_index(&socket, interface).ok()?;
    format!("{address}%{index}]{port}").parse().ok()
}

fn key_of(key: &str, value: &str) -> Result<Zeroizing<[u8; 32]>, UapiError> {
    let mut bytes = Zeroizing::new([0; 32]);
    match base16ct::mixed::decode(value, &mut *bytes) {
        Ok(decoded) if decoded.len() == 32 => Ok(bytes),
        _ => Err(UapiError::invalid(key, value)),
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, UapiError> {
    // A sign is no digit to other implementations.
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| digits).ok_or_else(|| UapiError::invalid(key, value))
}

fn flag(key: &str, value: &str) -> Result<bool, UapiError> {
    if value == "true" { Ok(true) } else { Err(UapiError::invalid(key, value)) }
}

/// The body of the answer to a get.
pub fn print(snapshot: &Snapshot) -> Text {
    let mut text = Text::default();
    if let Some(key) = &snapshot.private_key {
        let _ = writeln!(text, "private_key={:x}", HexDisplay(key.expose()));
    }
    if snapshot.listen_port != 0 {
        let _ = writeln!(text, "listen_port={}", snapshot.listen_port);
    }
    if snapshot.fwmark != 0 {
        let _ = writeln!(text, "fwmark={}", snapshot.fwmark);
    }
    for peer in &snapshot.peers {
        let _ = writeln!(text, "public_key={:x}", HexDisplay(&peer.public.0));
        let _ = writeln!(text, "preshared_key={:x}", HexDisplay(peer.preshared.expose()));
        let _ = writeln!(text, "protocol_version=1");
        if let Some(endpoint) = peer.endpoint {
            let _ = writeln!(text, "endpoint={endpoint}");
        }
        let handshake = peer.last_handshake.unwrap_or_default();
        let _ = writeln!(text, "last_handshake_time_sec={}", handshake.as_secs());
        let _ = writeln!(text, "last_handshake_time_nsec={}", handshake.subsec_nanos());
        let _ = writeln!(text, "tx_bytes={}", peer.sent_bytes);
        let _ = writeln!(text, "rx_bytes={}", peer.received_bytes);
        let _ = writeln!(text, "persistent_keepalive_interval={}", peer.persistent_keepalive);
        for prefix in &peer.allowed_ips {
            let _ = writeln!(text, "allowed_ip={prefix}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "b85996fecc9c7f1fc6d2572a76eda11d59bcd20be8e543b15ce4bd85a8e75a33";

    fn set(lines: &[&str]) -> Result<Update, UapiError> {
        match parse(&format!("set=1\n{}\n\n", lines.join("\n")))? {
            Request::Set(update) => Ok(update),
            Request::Get => unreachable!("a set was parsed"),
        }
    }

    #[test]
    fn a_set_reads_device_and_peers_in_order() {
        let update = set(&[
            &format!("private_key={KEY}"),
            "listen_port=12912",
            "fwmark=51820",
            "replace_peers=true",
            &format!("public_key={KEY}"),
            "preshared_key=0000000000000000000000000000000000000000000000000000000000000000",
            "endpoint=[abcd:23::33%2]:51820",
            "persistent_keepalive_interval=25",
            "replace_allowed_ips=true",
            "allowed_ip=192.168.4.4/32",
            "allowed_ip=-10.0.0.0/8",
            "protocol_version=1",
            &format!("public_key={}", KEY.to_uppercase()),
            "remove=true",
        ])
        .expect("well-formed");
        assert_eq!(
            (update.listen_port, update.fwmark, update.replace_peers),
            (Some(12912), Some(51820), true)
        );
        let peer = &update.peers[0];
        assert_eq!(peer.endpoint, Some("[abcd:23::33%2]:51820".parse().expect("literal")));
        assert_eq!(peer.allowed_ips.iter().map(|change| change.remove).collect::<Vec<_>>(), [false, true]);
        assert!(update.peers[1].remove && update.peers[1].public == peer.public);
    }

    #[test]
    fn wrong_lines_are_refused_with_the_numbers_that_others_give() {
        let peer = format!("public_key={KEY}");
        for (lines, errno) in [
            (vec!["listen_port"], 71),
            (vec!["listen_port=65536"], 22),
            (vec!["listen_port=-1"], 22),
            (vec!["listen_port=+1"], 22),
            (vec!["private_key=00"], 22),
            (vec!["replace_peers=false"], 22),
            (vec!["nonsense=1"], 22),
            (vec!["endpoint=1.2.3.4:5"], 22),
            (vec!["public_key=zz"], 22),
            (vec![&peer[..], "endpoint=1.2.3.4"], 22),
            (vec![&peer[..], "endpoint=example.org:1"], 22),
            (vec![&peer[..], "allowed_ip=10.0.0.0/33"], 22),
            (vec![&peer[..], "allowed_ip=10.0.0.0"], 22),
            (vec![&peer[..], "protocol_version=2"], 22),
            (vec![&peer[..], "listen_port=1"], 22),
        ] {
            assert_eq!(set(&lines).expect_err("wrong").errno, errno, "{lines:?}");
        }
        assert_eq!(parse("get=1\nx=1\n\n").expect_err("wrong").errno, 22);
        assert_eq!(parse("put=1\n\n").expect_err("wrong").errno, 71);
    }

    #[test]
    fn a_scope_may_be_an_interface_name() {
        assert_eq!(endpoint_of("[fe80::1%lo]:7"), Some("[fe80::1%1]:7".parse().expect("literal")));
        assert_eq!(endpoint_of("[fe80::1%nonsense]:7"), None);
        assert_eq!(endpoint_of("%]"), None);
    }

    #[test]
    fn errors_do_not_repeat_secrets() {
        let peer = format!("public_key={KEY}");
        for line in [
            "private_key=1234secret".to_owned(),
            format!("private_key={KEY}00"),
            format!("private_key {KEY}"),
            KEY.to_owned(),
            format!("privatekey:{KEY}"),
            format!("listen_port={KEY}"),
            format!("endpoint={KEY}"),
            format!("{KEY}=private_key"),
        ] {
            for lines in [vec![line.as_str()], vec![&peer, &line]] {
                let said = set(&lines).expect_err("wrong").to_string();
                assert!(!said.contains("secret") && !said.contains(&KEY[..20]), "{line}: {said}");
            }
            for request in [format!("get=1\n{line}\n\n"), format!("{line}\n\n")] {
                let said = parse(&request).expect_err("wrong").to_string();
                assert!(!said.contains("secret") && !said.contains(&KEY[..20]), "{line}: {said}");
            }
        }
        assert_eq!(
            set(&[&peer, "nonsense"]).expect_err("wrong").to_string(),
            "line 3 is not of the form key=value"
        );
    }

    #[test]
    fn answers_carry_negative_numbers() {
        assert_eq!(status(Ok(())), "errno=0\n\n");
        let error = set(&["x=1"]).expect_err("wrong");
        assert_eq!(status(Err(&error)), "errno=-22\n\n");
    }
}
