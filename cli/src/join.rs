//! `postern join TOKEN`: this router becomes a branch of head office.
//!
//! ```text
//! token ──> own key, committed ──> ask: head office, by a process without rights ──> peer, committed ──> handshake
//! ```
//! The private key stays here. It is committed before head office is asked, so that the same key is sent again if the answer is
//! lost. Each commit is saved.

mod ask;
mod check;

pub(crate) use ask::{Arguments as Asked, serve};

use crate::answer::{self, Answer};
use crate::enroll::{Gateway, warn};
use crate::{Failure, Outcome};
use ask::Answered;
use base64ct::{Base64, Encoding};
use check::{Checked, Here, check};
use clap::Args;
use config::schema::is_domain;
use config::settings::WireGuard;
use crypto::random::System;
use crypto::{PrivateKey, PublicKey};
use gateway::api::model::Advice;
use gateway::facts::model::Facts;
use gateway::host::netlink::Netlink;
use gateway::host::netlink::inventory::Interface;
use https::enrollment::{BadToken, Granted, Request, Token, VERSION};
use ipnet::{IpNet, Ipv4Net};
use serde::Serialize;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The name of head office among the peers of a branch.
const PEER: &str = "head-office";
/// Seconds between keepalives: NAT mappings of UDP live for 30 s or more.
const KEEPALIVE: u16 = 25;
/// The MTU that holds where none is set.
const MTU: u32 = 1420;
/// How long the handshake may take, and how often the daemon is asked for it.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_FOR_NAMES: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
/// Whether the kernel forwards IPv4.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// Bytes of a token on standard input.
const LONGEST: u64 = 4096;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The token of postern enroll create, or - to read it from standard input
    #[arg(num_args = 1.., required = true)]
    token: Vec<String>,
    /// The WireGuard interface for the tunnel
    #[arg(long, default_value = "wg0")]
    interface: String,
    /// A network that head office may have although this router is in it, or although it is everything
    #[arg(long, value_name = "PREFIX")]
    allow: Vec<IpNet>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Ask the daemon at this socket; by default at the one in POSTERN_API
    #[arg(long, value_name = "SOCKET")]
    api: Option<PathBuf>,
}

/// What this router is from now on.
#[derive(Serialize)]
struct Joined {
    branch: String,
    interface: String,
    /// In the tunnel.
    address: String,
    /// What the tunnel carries.
    networks: Vec<String>,
    /// Where head office is called, by name or at an address, and then.
    host_name: Option<String>,
    endpoint: Option<String>,
    backup_addresses: Vec<String>,
    /// Whether head office has answered by WireGuard.
    is_up: bool,
    /// What this machine lacks to carry packets of devices behind it.
    warnings: Vec<Advice>,
}

pub(crate) fn run(Arguments { token, interface, allow, json, api }: Arguments) -> Outcome {
    let token = read(&token)?;
    let mut branch = Gateway::read(api)?;
    let (key, is_new) = own_key(&mut branch, &interface)?;
    let asked = Request {
        version: VERSION,
        branch: token.branch.clone(),
        secret: Zeroizing::new(Base64::encode_string(token.secret.expose())).as_str().into(),
        public_key: key.to_string(),
    };
    let Answered { granted, server, unknown_name } = match ask::ask(&token, asked) {
        Ok(answer) => answer,
        Err(error) => {
            if is_new && error.is_final {
                // Nothing of a router that was refused stays here.
                let delete = Zeroizing::new(format!("delete interfaces wireguard {interface}"));
                branch.commit(&[delete], "head office refused the token")?;
            }
            return Err(error.text.into());
        }
    };
    // The one that has answered comes last.
    let head_office: Vec<IpAddr> = token.addresses.iter().copied().chain([server.ip()]).collect();
    let here = Here {
        addresses: &own_addresses(&interface)?,
        tunnels: &branch.other_tunnels(&interface),
        host_name: token.host_name.as_deref(),
        head_office: &head_office,
        allowed: &allow,
    };
    let checked = check(&granted, &here)?;
    let carried = checked.networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    eprintln!("Head office takes {carried} through the tunnel.");
    let edits = edits(&interface, &granted, &checked, server).ok_or(
        "the answer of head office cannot be used\n  fix: install the same version of Postern on both",
    )?;
    let warned = branch.commit(&edits, &format!("joined as branch {}", token.branch))?;
    eprintln!("Joined as branch {}: {} in the tunnel.", token.branch, granted.address);
    let outcome = wait(&branch, &interface);
    forward(&mut branch, &granted.behind);
    let peer = &branch.settings.wireguard[&interface].peers[PEER];
    let mut warnings = branch.warnings(warned)?;
    warnings.extend(unknown_name);
    warnings.extend(has_a_name(&token, &granted, &interface));
    let joined = Joined {
        branch: token.branch.clone(),
        address: granted.address,
        networks: granted.networks,
        host_name: peer.host.as_ref().map(|host| host.name.clone()),
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        backup_addresses: peer.backups.iter().map(SocketAddr::to_string).collect(),
        interface,
        is_up: outcome.is_ok(),
        warnings,
    };
    print(joined, json)?;
    outcome
}

/// What to do if head office has got a name since the token was made: the tunnel stays at its address.
fn has_a_name(token: &Token, granted: &Granted, interface: &str) -> Option<Advice> {
    let name = granted.host_name.as_deref().filter(|name| token.host_name.is_none() && is_domain(name))?;
    let peer = format!("interfaces wireguard {interface} peer {PEER}");
    Some(Advice {
        what: format!(
            "head office has the name {name}, which this token has not: the tunnel does not follow it"
        ),
        fix: format!("if that name is right: delete {peer} address; set {peer} host-name {name}"),
    })
}

fn print(joined: Joined, json: bool) -> Outcome {
    let warnings = if json { Vec::new() } else { joined.warnings.clone() };
    let text = |joined: &Joined| {
        let carried = joined.networks.join(", ");
        if joined.is_up {
            format!("The tunnel to head office is up: it carries {carried}.\n")
        } else {
            String::new()
        }
    };
    answer::print(&Answer::new(joined, text), json)?;
    warn(&warnings);
    Ok(())
}

/// The token, which may be wrapped into several words.
fn read(words: &[String]) -> Result<Token, Failure> {
    let mut text = Zeroizing::new(words.concat());
    if *text == "-" {
        text.clear();
        io::stdin().take(LONGEST).read_to_string(&mut text)?;
    }
    Token::decode(&text).map_err(|error| {
        let fix = match error {
            BadToken::Newer => "install the same version of Postern as at head office",
            BadToken::Foreign | BadToken::Damaged => {
                "copy the whole line that postern enroll create has printed"
            }
        };
        format!("{error}\n  fix: {fix}").into()
    })
}

/// Our public key, which is made and committed unless the interface has one; and whether it was made.
fn own_key(branch: &mut Gateway, interface: &str) -> Result<(PublicKey, bool), Failure> {
    if let Some(known) = branch.settings.wireguard.get(interface) {
        check_unused(known, interface)?;
        return Ok((PrivateKey::new(known.private_key.clone()).public(), false));
    }
    let key = PrivateKey::generate(&mut System::default());
    let private = Zeroizing::new(Base64::encode_string(key.secret().expose()));
    let set = Zeroizing::new(format!("set interfaces wireguard {interface} private-key {}", *private));
    branch.commit(&[set], "a key to join head office")?;
    Ok((key.public(), true))
}

fn check_unused(known: &WireGuard, interface: &str) -> Outcome {
    if known.peers.contains_key(PEER) {
        let fix = format!("to join again, first: postern configure, delete interfaces wireguard {interface}");
        return Err(format!("{interface} has joined already: it has the peer {PEER}\n  fix: {fix}").into());
    }
    if !known.peers.is_empty() || !known.addresses.is_empty() {
        let fix = "name another: postern join TOKEN --interface wg1";
        return Err(format!("{interface} is used for other peers\n  fix: {fix}").into());
    }
    Ok(())
}

/// Has the kernel forward for the devices behind this router, unless it does, or the configuration says that it shall not. What is
/// missing then is among the warnings.
fn forward(branch: &mut Gateway, behind: &[String]) {
    let has_devices = behind.iter().any(|network| network.parse::<Ipv4Net>().is_ok());
    let is_off = std::fs::read_to_string(FORWARDING).is_ok_and(|text| text.trim() == "0");
    if has_devices && is_off && branch.settings.machine.forwards_v4.is_none() {
        let set = Zeroizing::new("set system ip forwarding".to_owned());
        match branch.commit(&[set], "devices behind this router") {
            Ok(_) => eprintln!("The kernel forwards for {} from now on.", behind.join(", ")),
            Err(error) => eprintln!("The kernel does not forward: {error}"),
        }
    }
}

/// The addresses of this machine, but for those of the tunnel and the loopback, with their interfaces.
fn own_addresses(tunnel: &str) -> Result<Vec<(String, IpNet)>, Failure> {
    let found = Netlink::open()?.interfaces()?;
    let others = found.into_iter().filter(|it| it.name != tunnel && !it.flags.contains(&"LOOPBACK"));
    let of_one = |it: Interface| {
        let addresses = it.addresses.into_iter().filter_map(|own| IpNet::new(own.address, own.prefix).ok());
        addresses.map(|own| (it.name.clone(), own)).collect::<Vec<_>>()
    };
    Ok(others.flat_map(of_one).collect())
}

/// Our side of the tunnel. None if the answer has a part that is not what it should be.
fn edits(
    interface: &str,
    granted: &Granted,
    checked: &Checked,
    server: SocketAddr,
) -> Option<Vec<Zeroizing<String>>> {
    let path = format!("interfaces wireguard {interface}");
    let Checked { address, networks, host, endpoints } = checked;
    let key: [u8; 32] = Base64::decode_vec(&granted.public_key).ok()?.try_into().ok()?;
    // The address that has answered is reachable from here. The others follow in the order of head office.
    let answered = || endpoints.iter().find(|it| it.ip() == server.ip()).or(endpoints.first()).copied();
    let (words, port, first) = match host {
        Some(host) => (format!("host-name {}", host.name), host.port, None),
        None => answered().map(|it| (format!("address {}", it.ip()), it.port(), Some(it)))?,
    };
    // Where a name cannot be looked up, and before it can, the address that has answered is called.
    let here = host.as_ref().map(|_| SocketAddr::new(server.ip(), port)).filter(|it| !endpoints.contains(it));
    let backups = endpoints.iter().chain(&here).filter(|it| Some(**it) != first);
    let mut edits = vec![format!("set {path} address {address}")];
    if granted.mtu != MTU {
        edits.push(format!("set {path} mtu {}", granted.mtu));
    }
    edits.push(format!("set {path} peer {PEER} public-key {}", PublicKey(key)));
    edits.push(format!("set {path} peer {PEER} {words}"));
    edits.push(format!("set {path} peer {PEER} port {port}"));
    for backup in backups {
        // One port serves all of them, unless head office says otherwise.
        let is_same = backup.port() == port;
        let text = if is_same { backup.ip().to_string() } else { backup.to_string() };
        edits.push(format!("set {path} peer {PEER} backup-address {text}"));
    }
    edits.push(format!("set {path} peer {PEER} persistent-keepalive {KEEPALIVE}"));
    for network in networks {
        edits.push(format!("set {path} peer {PEER} allowed-ips {network}"));
    }
    Some(edits.into_iter().map(Zeroizing::new).collect())
}

/// Waits for the first handshake.
fn wait(branch: &Gateway, interface: &str) -> Outcome {
    eprintln!("Waiting for the handshake ...");
    let begun = Instant::now();
    let peer = &branch.settings.wireguard[interface].peers[PEER];
    // A name may have addresses of which the first do not answer: each is called for 15 s.
    let patience = if peer.host.is_some() { PATIENCE_FOR_NAMES } else { PATIENCE };
    while begun.elapsed() < patience {
        let facts: Facts = branch.ask("/v1/facts")?;
        let mut tunnels = facts.tunnels.iter();
        let is_up =
            tunnels.any(|it| it.interface == interface && it.peer == PEER && it.last_handshake.is_some());
        if is_up {
            return Ok(());
        }
        sleep(PAUSE);
    }
    let port = peer.endpoint.map(|it| it.port()).or(peer.host.as_ref().map(|it| it.port)).unwrap_or_default();
    Err(format!(
        "this router has joined, but head office does not answer by UDP port {port}\n  \
         fix: let UDP port {port} through at head office; the tunnel comes up by itself then: postern explain wireguard {interface}"
    )
    .into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use config::settings::Host;

    pub(super) fn granted() -> Granted {
        Granted {
            version: VERSION,
            address: "10.255.0.2/32".to_owned(),
            behind: vec!["10.2.0.0/24".to_owned()],
            public_key: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=".to_owned(),
            endpoints: vec!["198.51.100.1:51820".to_owned(), "[2001:db8::1]:51820".to_owned()],
            host_name: None,
            port: 51820,
            networks: vec!["10.1.0.0/24".to_owned(), "10.255.0.0/24".to_owned()],
            mtu: 1400,
        }
    }

    fn checked() -> Checked {
        let read = |text: &str| text.parse().expect("literal");
        Checked {
            address: read("10.255.0.2/32"),
            networks: ["10.1.0.0/24", "10.255.0.0/24"].map(read).to_vec(),
            host: None,
            endpoints: ["198.51.100.1:51820", "[2001:db8::1]:51820"]
                .map(|text| text.parse().expect("literal"))
                .to_vec(),
        }
    }

    #[test]
    fn the_tunnel_goes_to_the_address_that_has_answered() {
        let lines = |server: &str| {
            let edits = edits("wg0", &granted(), &checked(), server.parse().expect("right")).expect("right");
            edits.iter().map(|it| it.to_string()).collect::<Vec<_>>().join("\n")
        };
        let text = lines("[2001:db8::1]:9588");
        assert!(text.contains("peer head-office address 2001:db8::1\n"), "{text}");
        assert!(text.contains("wg0 mtu 1400\n") && text.contains("allowed-ips 10.1.0.0/24"), "{text}");
        assert!(text.contains("peer head-office backup-address 198.51.100.1\n"), "{text}");
        let other = lines("192.0.2.9:9588");
        assert!(other.contains("peer head-office address 198.51.100.1\n"), "{other}");
        assert!(other.contains("peer head-office backup-address 2001:db8::1\n"), "{other}");
    }

    #[test]
    fn the_tunnel_goes_to_the_name_and_the_addresses_stand_in_for_it() {
        let host = Some(Host { name: "head.example.org".to_owned(), port: 51820 });
        let named = Checked { host, ..checked() };
        let lines = |checked: &Checked| {
            let server = "192.0.2.9:9588".parse().expect("right");
            edits("wg0", &granted(), checked, server)
                .expect("right")
                .iter()
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
        };
        let peer = "set interfaces wireguard wg0 peer head-office";
        let all = lines(&named);
        for line in [
            "host-name head.example.org",
            "port 51820",
            "backup-address 198.51.100.1",
            "backup-address 2001:db8::1",
        ] {
            assert!(all.contains(&format!("{peer} {line}")), "{all:?}");
        }
        assert!(!all.iter().any(|line| line.starts_with(&format!("{peer} address "))), "{all:?}");
        // The address that has answered stands in too.
        let alone = lines(&Checked { endpoints: Vec::new(), ..named });
        assert!(alone.contains(&format!("{peer} backup-address 192.0.2.9")), "{alone:?}");
    }

    #[test]
    fn a_key_that_is_none_changes_nothing() {
        let server = "198.51.100.1:9588".parse().expect("right");
        for key in ["AAAA", "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nset system open-at-exit"] {
            let wrong = Granted { public_key: key.to_owned(), ..granted() };
            assert!(edits("wg0", &wrong, &checked(), server).is_none(), "{key}");
        }
        let none = Checked { endpoints: Vec::new(), ..checked() };
        assert!(edits("wg0", &granted(), &none, server).is_none());
    }
}
