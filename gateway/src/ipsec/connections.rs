//! Turns the configuration of a peer into the settings of its IKE connection.

use super::identity::identity;
use super::peer_error::PeerError;
use super::proof::{Proof, authentication, our_own};
use super::revocation;
use crate::clock::Clock;
use crate::host::netlink::Netlink;
use crate::host::networks::MARK;
use crate::resolver;
use config::settings::ipsec::{
    Action, Authentication, Esp, EspProposal, Ike, IkeProposal, Peer, Pfs, Remote, Second, Traffic, Tunnel,
};
use crypto::exchange;
use crypto::pki::Evidence;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::esp::{Limits, Options, TrafficSelector};
use tunnel::ikev2 as ike;
use tunnel::ikev2::proposal::{EspOffer, IkeOffer, Sequence};

/// An IKE SA of an `ike-group` without a lifetime lasts this long.
pub const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// When the keys of a limited number of bytes or packets are replaced, in tenths.
const SOFT_TENTHS: u64 = 9;

/// The local settings of the SAs of a tunnel, which are not negotiated.
#[derive(Clone, Debug)]
pub struct Child {
    /// The number of the tunnel.
    pub tunnel: u32,
    /// The configured priority among tunnels for the same packets: the lowest is taken.
    pub priority: Option<u8>,
    /// The largest packet inside, if one is set.
    pub mtu: Option<u16>,
    /// When its SAs end, and their replay window.
    pub options: Options,
    /// Of a gateway between ports, the number of its peer, which policies name; 0 for none.
    pub ike_peer: u16,
}

/// Names in the configuration, so that the commands in a fix can be typed unchanged.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The peer.
    pub peer: String,
    /// Its `ike-group`.
    pub ike_group: Group,
    /// The `esp-group` of each tunnel, by the name of the tunnel.
    pub esp_groups: Vec<(String, Group)>,
    /// The authentication method of both sides.
    pub proof: Proof,
    /// The identity of the peer in the second round, and its method.
    pub second: Option<(String, Proof)>,
    /// Our own identity.
    pub local_id: String,
}

/// A group of proposals.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The number for another proposal.
    pub free: u16,
    /// The only group for new keys of an `esp-group`, if it names one.
    pub pfs: Option<u16>,
}

/// The planned connection of a peer of the configuration.
pub struct Plan {
    /// Names in the configuration.
    pub names: Names,
    /// The settings for IKE.
    pub connection: Arc<ike::Connection>,
    /// The settings for the data path, in the order of the connection's children.
    pub children: Vec<Child>,
    /// Whether the existing connection of the same name may stay.
    pub keeps: bool,
}

/// Checks whether a peer can be served, without a resolver and without routes. Returns a warning about settings that work
/// but are hardly intended.
pub fn check(name: &str, peer: &Peer) -> Result<Option<String>, PeerError> {
    let authentication = authentication(name, peer, None)?;
    check_time(name, peer, &authentication)?;
    if let Authentication::X509(x509) = &peer.authentication {
        revocation::check(name, x509)?;
    }
    peer.remote_id.as_ref().map(|id| identity(name, id)).transpose()?;
    further(name, peer)?;
    if peer.remote_addresses.is_empty() || peer.local_id.is_some() {
        local_identity(name, peer, &authentication, None)?;
    }
    Ok(our_own(name, peer, &authentication))
}

/// Checks whether our certificate is valid now. IKE reports an invalid one at each attempt to connect: an hour later the
/// clock may be right, or the certificate expired.
fn check_time(name: &str, peer: &Peer, authentication: &ike::Authentication) -> Result<(), PeerError> {
    let (ike::Authentication::Certificate(credentials), Authentication::X509(x509)) =
        (authentication, &peer.authentication)
    else {
        return Ok(());
    };
    let wall = Clock.now().wall;
    let valid = credentials.certificates.first().map_or(Ok(()), |own| own.check_time(wall));
    let (peer, certificate) = (name.to_owned(), x509.name.clone());
    valid.map_err(|error| PeerError::OwnCertificate { peer, certificate, error })
}

/// Plans the connection to a peer at an address; `None` if it calls us from anywhere. `evidence`: what is known about
/// revocation besides the configuration.
pub fn plan(
    name: &str,
    peer: &Peer,
    remote: Option<IpAddr>,
    evidence: Option<&Arc<Evidence>>,
) -> Result<Plan, PeerError> {
    let authentication = authentication(name, peer, evidence)?;
    let local_identity = local_identity(name, peer, &authentication, remote)?;
    let remote_identity = peer.remote_id.as_ref().map(|id| identity(name, id)).transpose()?;
    if let Some(warning) = our_own(name, peer, &authentication) {
        tracing::warn!("{warning}");
    }
    let children = peer.tunnels.iter().map(|(&tunnel, it)| (tunnel, &**it));
    let connection = ike::Connection {
        name: name.to_owned(),
        local: peer.local_address,
        remote,
        local_identity,
        remote_identity,
        authentication,
        further: further(name, peer)?,
        ike: peer.ike.proposals.iter().map(ike_offer).collect(),
        children: children.clone().map(|(number, tunnel)| child(name, number, tunnel, peer)).collect(),
        lifetime: peer.ike.lifetime_seconds.map_or(LONG, |seconds| Duration::from_secs(seconds.into())),
        dead_peer_detection: peer
            .ike
            .dead_peer_detection
            .map(|it| {
                [it.interval_seconds, it.timeout_seconds].map(|seconds| Duration::from_secs(seconds.into()))
            })
            .map(|[interval, timeout]| ike::DeadPeerDetection { interval, timeout }),
        start: peer.start,
        reauthenticate: peer.reauthenticate,
        when_lost: when_lost(peer),
        force_encapsulation: peer.prefers_udp,
    };
    let plan = |(tunnel, it): (u32, &Tunnel)| Child {
        tunnel,
        priority: it.priority,
        mtu: it.mtu,
        options: options(peer, &it.esp),
        ike_peer: 0,
    };
    let children = children.map(plan).collect();
    let names = Names { local_id: connection.local_identity.to_string(), ..names(name, peer) };
    Ok(Plan { names, connection: Arc::new(connection), children, keeps: false })
}

/// The rounds of authentication after the first.
fn further(name: &str, peer: &Peer) -> Result<Vec<ike::FurtherRound>, PeerError> {
    let round = |second: &Second| {
        Ok(ike::FurtherRound {
            local_identity: identity(name, &second.local_id)?,
            remote_identity: Some(identity(name, &second.remote_id)?),
            authentication: ike::Authentication::SharedKey(second.secret.clone()),
        })
    };
    peer.second.iter().map(round).collect()
}

fn names(name: &str, peer: &Peer) -> Names {
    let group = |name: &str, numbers: &mut dyn Iterator<Item = u16>| Group {
        name: name.to_owned(),
        free: numbers.max().unwrap_or(0).saturating_add(1),
        pfs: None,
    };
    let esp_group = |(number, tunnel): (u32, &Tunnel)| {
        let mut numbers = tunnel.esp.proposals.iter().map(|proposal| proposal.number);
        let pfs = match tunnel.esp.pfs {
            Pfs::Group(group) => Some(group.id()),
            Pfs::Off | Pfs::AsIke => None,
        };
        (child_name(name, number), Group { pfs, ..group(&tunnel.esp_group, &mut numbers) })
    };
    Names {
        peer: name.to_owned(),
        ike_group: group(&peer.ike_group, &mut peer.ike.proposals.iter().map(|proposal| proposal.number)),
        esp_groups: peer.tunnels.iter().map(|(&number, tunnel)| esp_group((number, tunnel))).collect(),
        proof: Proof::of(name, peer),
        second: peer.second.as_ref().and_then(|second| {
            Some((identity(name, &second.remote_id).ok()?.to_string(), Proof::of_second(second)))
        }),
        local_id: String::new(),
    }
}

/// The name of a tunnel in reports.
pub(super) fn child_name(peer: &str, number: u32) -> String {
    format!("{peer}-tunnel-{number}")
}

fn when_lost(peer: &Peer) -> ike::WhenLost {
    let actions =
        [Some(peer.ike.close_action), peer.ike.dead_peer_detection.map(|detection| detection.action)];
    if actions.contains(&Some(Action::Restart)) { ike::WhenLost::Restart } else { ike::WhenLost::Clear }
}

/// All its addresses; none if it calls us from anywhere. Domain names are resolved, which may take a while.
pub fn addresses(peer: &str, settings: &Peer) -> Result<Vec<IpAddr>, PeerError> {
    let (mut known, mut failed) = (Vec::new(), None);
    for remote in &settings.remote_addresses {
        let name = match remote {
            Remote::Address(address) => {
                known.push(*address);
                continue;
            }
            Remote::Name(name) => name,
        };
        match resolver::addresses(name) {
            Ok(found) => known.extend(found),
            Err(error) => {
                failed = Some(PeerError::Name { peer: peer.to_owned(), name: name.clone(), error });
            }
        }
    }
    known.retain(|remote| settings.local_address.is_none_or(|local| local.is_ipv4() == remote.is_ipv4()));
    match failed {
        Some(error) if known.is_empty() => Err(error),
        _ => Ok(known),
    }
}

/// Which of its addresses a peer is sought at: where it was, if that is still one of them, or if it does not answer there, at
/// the next one.
pub fn choose(addresses: &[IpAddr], at: Option<IpAddr>, moves: bool) -> Option<IpAddr> {
    let known = at.and_then(|at| addresses.iter().position(|address| *address == at));
    let place = known.map_or(0, |place| if moves { (place + 1) % addresses.len() } else { place });
    addresses.get(place).copied()
}

/// Whether two settings of a peer have the same identities and authentication: then the existing connection may stay, and
/// other changes apply from the next keys on.
pub fn is_same(before: &Peer, after: &Peer) -> bool {
    let sides = |peer: &Peer| (peer.local_address, peer.remote_addresses.clone());
    let ids = |peer: &Peer| (peer.local_id.clone(), peer.remote_id.clone());
    sides(before) == sides(after)
        && ids(before) == ids(after)
        && (&before.authentication, &before.second) == (&after.authentication, &after.second)
        && before.prefers_udp == after.prefers_udp
}

/// Our identity: the configured one, or the subject of our certificate, or the address that the peer sees.
fn local_identity(
    peer: &str,
    settings: &Peer,
    authentication: &ike::Authentication,
    remote: Option<IpAddr>,
) -> Result<ike::Identity, PeerError> {
    if let Some(id) = &settings.local_id {
        return identity(peer, id);
    }
    if let ike::Authentication::Certificate(credentials) = authentication
        && let Some(own) = credentials.certificates.first()
    {
        return Ok(ike::Identity::Name(own.subject().clone()));
    }
    let address = settings.local_address.or_else(|| remote.and_then(address_towards));
    address.map(Into::into).ok_or_else(|| PeerError::NoIdentity(peer.to_owned()))
}

/// The source address that the kernel would use for this destination, outside of any tunnel.
pub(super) fn address_towards(remote: IpAddr) -> Option<IpAddr> {
    Netlink::open().ok()?.outside(remote, MARK).ok()?.source
}

fn ike_offer(proposal: &IkeProposal) -> IkeOffer {
    IkeOffer {
        encryption: vec![proposal.encryption],
        integrity: proposal.integrity.clone(),
        prf: proposal.prfs.clone(),
        groups: proposal.groups.clone(),
    }
}

fn esp_offer(proposal: &EspProposal, groups: &[exchange::Group], extended_sequence: bool) -> EspOffer {
    // RFC 4303 section 2.2.1: at these speeds 32 bits last minutes.
    let extended = extended_sequence.then_some(Sequence::Extended);
    EspOffer {
        encryption: vec![proposal.encryption],
        integrity: proposal.integrity.clone(),
        groups: groups.to_vec(),
        sequence: extended.into_iter().chain([Sequence::Short]).collect(),
    }
}

/// The groups for new keys of a tunnel: where they are those of IKE, those of its first proposal first, as VyOS has it, and then
/// those of the others, as the peer may have only one of these; a weak one is not taken because IKE takes it.
fn secrecy(esp: &Esp, ike: &Ike) -> Vec<exchange::Group> {
    let mut groups = esp.groups(ike).to_vec();
    if esp.pfs == Pfs::AsIke {
        for group in ike.proposals.iter().flat_map(|proposal| &proposal.groups) {
            if !groups.contains(group) && !group.is_weak() {
                groups.push(*group);
            }
        }
    }
    groups
}

fn child(peer: &str, number: u32, tunnel: &Tunnel, settings: &Peer) -> ike::Child {
    let groups = &secrecy(&tunnel.esp, &settings.ike);
    let offer = |proposal| esp_offer(proposal, groups, tunnel.esp.extended_sequence);
    ike::Child {
        name: child_name(peer, number),
        esp: tunnel.esp.proposals.iter().map(offer).collect(),
        local: selectors(&tunnel.local, tunnel.protocol),
        remote: selectors(&tunnel.remote, tunnel.protocol),
        mode: tunnel.esp.mode,
        lifetime: Duration::from_secs(tunnel.esp.lifetime_seconds.into()),
        rekey: tunnel.esp.rekey,
        priority: tunnel.priority,
    }
}

fn selectors(traffic: &Traffic, protocol: Option<u8>) -> Vec<TrafficSelector> {
    let selector = |prefix: &IpNet| TrafficSelector {
        protocol: protocol.unwrap_or(0),
        ports: traffic.port.map_or(0..=u16::MAX, |port| port..=port),
        addresses: prefix.network()..=last(prefix),
    };
    traffic.prefixes.iter().map(selector).collect()
}

/// The last address of a prefix.
fn last(prefix: &IpNet) -> IpAddr {
    match prefix {
        IpNet::V4(prefix) => prefix.broadcast().into(),
        IpNet::V6(prefix) => prefix.broadcast().into(),
    }
}

fn options(peer: &Peer, esp: &Esp) -> Options {
    // IKE has timers too, but they depend on a thread that runs in time.
    let limits = |tenths: u64| Limits {
        time: (tenths == 10).then(|| Duration::from_secs(esp.lifetime_seconds.into())),
        bytes: esp.life_bytes.map(|bytes| bytes / 10 * tenths),
        packets: esp.life_packets.map(|packets| packets / 10 * tenths),
    };
    let soft = if esp.rekey { limits(SOFT_TENTHS) } else { Limits::default() };
    let mut options = Options { soft, hard: limits(10), ..Options::default() };
    if let Some(window) = peer.replay_window {
        options.replay_window = window.into();
    }
    options
}

#[cfg(test)]
mod tests;
