//! What a right request changes at head office, and what the branch is told. Nothing here is reached without the secret.

use super::message::{Granted, Refused, VERSION};
use axum::http::StatusCode;
use base64ct::{Base64, Encoding};
use config::Settings;
use config::settings::enrollment::Token;
use config::settings::{Enrollment, WireGuard};
use crypto::{PrivateKey, PublicKey};
use std::net::SocketAddr;
use subtle::ConstantTimeEq;

/// Seconds by which a clock may be set back when it is corrected.
const CLOCK_SET_BACK: u64 = 300;

/// Why a request with the right secret is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The configuration has changed meanwhile.
    Unknown,
    Expired,
    Revoked,
    /// With another key, or by hand.
    Used,
    /// Its peer is disabled on this interface: there would be no tunnel.
    Disabled(String),
    /// The token was made later than now: nobody can say whether it has expired.
    ClockBehind,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// These edits, and then the answer.
    Commit(Vec<String>, Granted),
    /// The answer to an earlier request with this key may have been lost.
    Again(Granted),
}

impl Refusal {
    pub(super) fn answer(&self, branch: &str) -> (StatusCode, Refused) {
        let error = match self {
            Self::Unknown => format!("there is no token of branch {branch} any more"),
            Self::Expired => format!("the token of branch {branch} has expired"),
            Self::Revoked => format!("the token of branch {branch} was revoked"),
            Self::Used => format!("the token of branch {branch} was used by another router"),
            Self::Disabled(_) => format!("branch {branch} is disabled at head office"),
            Self::ClockBehind => {
                "the clock of head office is wrong: it is before the time at which the token was made"
                    .to_owned()
            }
        };
        let fix = match self {
            Self::Used => format!(
                "at head office, if that was not you: postern enroll retire {branch}; then postern enroll create {branch}"
            ),
            Self::Disabled(interface) => format!(
                "at head office: postern configure, delete interfaces wireguard {interface} peer {branch} disable"
            ),
            Self::ClockBehind => {
                "at head office: set the clock; then type the same command again here".to_owned()
            }
            _ => format!("at head office: postern enroll create {branch}"),
        };
        let may_ask_again = matches!(self, Self::Disabled(_) | Self::ClockBehind);
        (
            if may_ask_again { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::GONE },
            Refused { error, fix },
        )
    }
}

/// Decides about a request with the hash of a right secret, at a time in seconds since 1970.
pub(super) fn decide(
    settings: &Settings,
    branch: &str,
    (hash, key): (&[u8; 32], &PublicKey),
    now: u64,
) -> Result<Decision, Refusal> {
    let enrollment = settings.enrollment.as_ref().ok_or(Refusal::Unknown)?;
    let known = enrollment.branches.get(branch).ok_or(Refusal::Unknown)?;
    // Another token may have been made since the secret was compared.
    let is_its = |token: &&Token| bool::from(token.hash.ct_eq(hash));
    let token = known.token.as_ref().filter(is_its).ok_or(Refusal::Unknown)?;
    let interface = settings.wireguard.get(&enrollment.interface).ok_or(Refusal::Unknown)?;
    if token.is_revoked {
        return Err(Refusal::Revoked);
    }
    if token.created.is_some_and(|created| now + CLOCK_SET_BACK < created) {
        return Err(Refusal::ClockBehind);
    }
    if token.expires <= now {
        return Err(Refusal::Expired);
    }
    let granted = granted(enrollment, interface, branch).ok_or(Refusal::Unknown)?;
    match enrollment.peers.get(branch) {
        Some(peer) if peer.public_key != Some(*key) => Err(Refusal::Used),
        Some(peer) if peer.is_disabled => Err(Refusal::Disabled(enrollment.interface.clone())),
        Some(_) => Ok(Decision::Again(granted)),
        None if known.joined.is_some() => Err(Refusal::Used),
        None => {
            let peer = format!("set interfaces wireguard {} peer {branch}", enrollment.interface);
            let mut edits = vec![format!("{peer} public-key {key}")];
            edits.extend(known.allowed_ips().map(|prefix| format!("{peer} allowed-ips {prefix}")));
            let path = format!("service enrollment branch {branch}");
            // What was decided from is written again, so that this commit conflicts with one that changes it meanwhile.
            edits.push(format!("delete {path} address"));
            edits.push(format!("set {path} address {}", known.address));
            if !known.networks.is_empty() {
                edits.push(format!("delete {path} network"));
            }
            edits.extend(known.networks.iter().map(|network| format!("set {path} network {network}")));
            edits.push(format!("delete {path} token"));
            edits.push(format!("set {path} token hash {}", Base64::encode_string(&token.hash)));
            edits.extend(token.created.map(|created| format!("set {path} token created {created}")));
            edits.push(format!("set {path} token expires {}", token.expires));
            edits.push(format!("set {path} joined {now}"));
            Ok(Decision::Commit(edits, granted))
        }
    }
}

fn granted(enrollment: &Enrollment, interface: &WireGuard, branch: &str) -> Option<Granted> {
    let known = enrollment.branches.get(branch)?;
    let port = interface.port?;
    let inside = interface.addresses.iter().map(ipnet::IpNet::trunc);
    let mut networks: Vec<String> =
        inside.chain(enrollment.networks.iter().copied()).map(|prefix| prefix.to_string()).collect();
    networks.sort_unstable();
    networks.dedup();
    let endpoints = enrollment.addresses.iter().map(|address| SocketAddr::new(*address, port).to_string());
    Some(Granted {
        version: VERSION,
        address: ipnet::IpNet::from(known.address).to_string(),
        behind: known.networks.iter().map(ToString::to_string).collect(),
        public_key: PrivateKey::new(interface.private_key.clone()).public().to_string(),
        endpoints: endpoints.collect(),
        host_name: enrollment.host_name.clone(),
        port,
        networks,
        mtu: interface.mtu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use config::merge::{Side, merge};

    const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
    const THEIRS: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

    fn settings(more: &str) -> Settings {
        Settings::new(&config::parse(&text(more)).expect("right")).expect("right").0
    }

    fn text(more: &str) -> String {
        format!(
            "set interfaces wireguard wg0 address 10.255.0.1/24\n\
             set interfaces wireguard wg0 port 51820\n\
             set interfaces wireguard wg0 private-key {KEY}\n\
             set service enrollment address 198.51.100.1\n\
             set service enrollment interface wg0\n\
             set service enrollment network 10.1.0.0/24\n\
             set service enrollment branch berlin address 10.255.0.2\n\
             set service enrollment branch berlin network 10.2.0.0/24\n\
             set service enrollment branch berlin token hash {KEY}\n\
             set service enrollment branch berlin token expires 1000\n{more}"
        )
    }

    fn key(text: &str) -> PublicKey {
        let bytes = Base64::decode_vec(text).expect("right");
        PublicKey(bytes.try_into().expect("32 bytes"))
    }

    /// The places at which a commit that joins berlin conflicts with other edits of the same configuration.
    fn conflicts(theirs: &[&str]) -> Vec<String> {
        let base = config::parse(&text("")).expect("right");
        let Ok(Decision::Commit(edits, _)) = asked("", 999) else { panic!("it is right") };
        let edits: Vec<&str> = edits.iter().map(String::as_str).collect();
        let [ours, theirs] = [&edits[..], theirs].map(|lines| {
            let mut tree = base.clone();
            let deleted = config::edits::carry_out(lines.iter().copied(), &mut tree).expect("right");
            (tree, deleted)
        });
        let [ours, theirs] = [&ours, &theirs].map(|(tree, deleted)| Side { tree, deleted });
        let conflicts = merge(&base, ours, theirs).err().unwrap_or_default();
        conflicts.iter().map(|conflict| conflict.path.to_string()).collect()
    }

    fn asked(more: &str, now: u64) -> Result<Decision, Refusal> {
        decide(&settings(more), "berlin", (&key(KEY).0, &key(THEIRS)), now)
    }

    #[test]
    fn a_branch_becomes_a_peer_with_its_networks_and_learns_its_side() {
        let Ok(Decision::Commit(edits, granted)) = asked("", 999) else { panic!("it is right") };
        assert_eq!(
            edits,
            [
                &*format!("set interfaces wireguard wg0 peer berlin public-key {THEIRS}"),
                "set interfaces wireguard wg0 peer berlin allowed-ips 10.255.0.2/32",
                "set interfaces wireguard wg0 peer berlin allowed-ips 10.2.0.0/24",
                "delete service enrollment branch berlin address",
                "set service enrollment branch berlin address 10.255.0.2",
                "delete service enrollment branch berlin network",
                "set service enrollment branch berlin network 10.2.0.0/24",
                "delete service enrollment branch berlin token",
                &format!("set service enrollment branch berlin token hash {KEY}"),
                "set service enrollment branch berlin token expires 1000",
                "set service enrollment branch berlin joined 999"
            ]
        );
        assert_eq!((&*granted.address, &*granted.endpoints[0]), ("10.255.0.2/32", "198.51.100.1:51820"));
        assert_eq!((granted.host_name.as_deref(), granted.port), (None, 51820));
        assert_eq!(granted.networks, ["10.1.0.0/24", "10.255.0.0/24"]);
        assert_eq!(granted.public_key, PrivateKey::new(crypto::Secret::new(key(KEY).0)).public().to_string());
        let committed = settings(&format!("{}\n", edits.join("\n")));
        let again = decide(&committed, "berlin", (&key(KEY).0, &key(THEIRS)), 999);
        assert_eq!(again, Ok(Decision::Again(granted)), "the answer may be lost");
        assert_eq!(decide(&committed, "berlin", (&key(KEY).0, &key(KEY)), 999), Err(Refusal::Used));
    }

    #[test]
    fn what_a_branch_got_does_not_change_while_it_joins() {
        let path = "service enrollment branch berlin";
        let set = |words: &str| format!("set {path} {words}");
        assert!(!conflicts(&[&format!("delete {path} network"), &set("network 10.3.0.0/24")]).is_empty());
        assert!(!conflicts(&[&set("address 10.255.0.3")]).is_empty());
        assert!(!conflicts(&[&set("token revoked")]).is_empty());
        assert!(!conflicts(&[&format!("delete {path}"), &set("address 10.255.0.4")]).is_empty());
        assert!(conflicts(&["set service enrollment branch lyon address 10.255.0.3"]).is_empty());
    }

    #[test]
    fn a_branch_whose_peer_is_disabled_is_told_so_and_keeps_its_key() {
        let own = "set interfaces wireguard wg0 peer berlin";
        let disabled = format!(
            "{own} public-key {THEIRS}\n{own} allowed-ips 10.255.0.2/32\n{own} allowed-ips 10.2.0.0/24\n{own} disable\n"
        );
        let refusal = Refusal::Disabled("wg0".to_owned());
        assert!(
            refusal.answer("berlin").1.fix.ends_with("delete interfaces wireguard wg0 peer berlin disable")
        );
        assert_eq!(asked(&disabled, 1), Err(refusal));
        let other = decide(&settings(&disabled), "berlin", (&key(KEY).0, &key(KEY)), 1);
        assert_eq!(other, Err(Refusal::Used), "it is no free place");
    }

    #[test]
    fn what_is_over_is_refused_and_says_what_to_type() {
        assert_eq!(asked("", 1000), Err(Refusal::Expired));
        let created = "set service enrollment branch berlin token created 900";
        assert_eq!(asked(created, 599), Err(Refusal::ClockBehind), "it may have expired");
        assert!(asked(created, 600).is_ok(), "clocks are corrected");
        assert_eq!(Refusal::ClockBehind.answer("berlin").0, 503);
        assert_eq!(asked("set service enrollment branch berlin token revoked", 1), Err(Refusal::Revoked));
        assert_eq!(asked("set service enrollment branch berlin joined 1", 2), Err(Refusal::Used));
        assert_eq!(asked("delete service enrollment branch berlin token", 1), Err(Refusal::Unknown));
        let other = decide(&settings(""), "berlin", (&[0; 32], &key(THEIRS)), 1);
        assert_eq!(other, Err(Refusal::Unknown), "another token was made meanwhile");
        let (status, Refused { error, fix }) = Refusal::Used.answer("berlin");
        assert!(status == 410 && error.contains("another router") && fix.contains("enroll retire berlin"));
    }
}
