//! From what the configuration says of a peer to what IKE needs to know of the connection to it.

use super::proof::{Proof, authentication, our_own};
use super::revocation;
use crate::clock::Clock;
use crate::host::netlink::Netlink;
use crate::host::networks::MARK;
use config::settings::ipsec::{
    Action, Authentication, DhGroup, Encryption, Esp, EspProposal, Identity, Ike, IkeProposal, Mode, Peer,
    Pfs, Remote, Retransmission, Start, Traffic, Tunnel,
};
use crypto::exchange;
use crypto::pki::{ChainError, Evidence};
use ipnet::IpNet;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tunnel::esp::{Limits, Options, TrafficSelector};
use tunnel::ikev2 as ike;
use tunnel::ikev2::limits::IKE_PORT;
use tunnel::ikev2::proposal::{self, EspOffer, IkeOffer, Sequence};

/// An IKE SA of an `ike-group` without a lifetime lasts this long.
pub const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// When the keys of a limited number of bytes or packets are replaced, in tenths.
const SOFT_TENTHS: u64 = 9;

/// Why a peer cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Its domain names lead nowhere.
    #[error(
        "vpn ipsec site-to-site peer {peer}: {name} has no address now: {error}\n  fix: set vpn ipsec site-to-site peer {peer} remote-address ADDRESS, or mend the resolver and reload"
    )]
    Name {
        /// The peer.
        peer: String,
        /// Its domain name.
        name: String,
        /// What the resolver says.
        error: std::io::Error,
    },
    /// Certificates, or a key, are not what they should be.
    #[error("vpn ipsec site-to-site peer {peer}: {of}: {error}\n  fix: {fix}")]
    Pki {
        /// The peer.
        peer: String,
        /// Which certificate, list or key.
        of: String,
        /// What is wrong with it.
        error: Box<dyn std::error::Error + Send + Sync>,
        /// What to do.
        fix: String,
    },
    /// Our private key is that of another certificate.
    #[error(
        "vpn ipsec site-to-site peer {peer}: pki certificate {certificate} private key: it does not belong to the certificate, which has another public key\n  fix: set pki certificate {certificate} private key BASE64, the key for which the certificate was issued, or set pki certificate {certificate} certificate BASE64, the one of this key"
    )]
    ForeignKey {
        /// The peer.
        peer: String,
        /// The name of the certificate.
        certificate: String,
    },
    /// Our certificate is not valid now.
    #[error(
        "vpn ipsec site-to-site peer {peer}: pki certificate {certificate} certificate: {error}, and every peer would refuse it\n  fix: set pki certificate {certificate} certificate BASE64, renewed by its authority; or set the clock of this machine, if it is wrong"
    )]
    OwnCertificate {
        /// The peer.
        peer: String,
        /// The name of the certificate.
        certificate: String,
        /// Why it is not valid.
        error: ChainError,
    },
    /// Who we are is not configured, and no address of ours is known from which it could be reached.
    #[error(
        "vpn ipsec site-to-site peer {0}: who we are is not configured, and no address of ours leads to it now\n  fix: set vpn ipsec site-to-site peer {0} authentication local-id NAME, or its local-address"
    )]
    NoIdentity(String),
}

impl PeerError {
    /// Whether it may go away without anybody's doing.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Name { .. } | Self::NoIdentity(_))
    }
}

/// What is decided on our side alone about the SAs of a tunnel.
#[derive(Clone, Debug)]
pub struct Child {
    /// The number of the tunnel.
    pub tunnel: u32,
    /// Which of several tunnels for the same packets is taken, if that is said: the lowest.
    pub priority: Option<u8>,
    /// The largest packet inside, if one is set.
    pub mtu: Option<u16>,
    /// When its SAs end, and their replay window.
    pub options: Options,
}

/// What the configuration calls things, so that advice can be typed as it stands.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The peer.
    pub peer: String,
    /// Its `ike-group`.
    pub ike_group: Group,
    /// The `esp-group` of each tunnel, by the name of the tunnel.
    pub esp_groups: Vec<(String, Group)>,
    /// By what it and we show who we are.
    pub proof: Proof,
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

/// What becomes of a peer of the configuration.
pub struct Plan {
    /// What the configuration calls things.
    pub names: Names,
    /// What IKE needs to know.
    pub connection: Arc<ike::Connection>,
    /// What the data path needs to know, in the order of the connection's children.
    pub children: Vec<Child>,
    /// Whether what is there of a connection of the same name may stay.
    pub keeps: bool,
}

/// Says whether a peer can be served, as far as that can be known without asking a resolver or for routes. Returns a warning
/// of what can be served and is hardly meant.
pub fn check(name: &str, peer: &Peer) -> Result<Option<String>, PeerError> {
    let authentication = authentication(name, peer, None)?;
    check_time(name, peer, &authentication)?;
    if let Authentication::X509(x509) = &peer.authentication {
        revocation::check(name, x509)?;
    }
    peer.remote_id.as_ref().map(|id| spoken(name, id)).transpose()?;
    if peer.remote_addresses.is_empty() || peer.local_id.is_some() {
        local_identity(name, peer, &authentication, None)?;
    }
    Ok(our_own(name, peer, &authentication))
}

/// Says whether our certificate is valid now. While it is not, IKE says so whenever the peer is to be called or calls: an
/// hour later the clock may be right, or the certificate expired.
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
    let remote_identity = peer.remote_id.as_ref().map(|id| spoken(name, id)).transpose()?;
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
        start: match peer.start {
            Start::Initiate => ike::Start::Initiate,
            Start::OnTraffic => ike::Start::OnTraffic,
            Start::Listen => ike::Start::Respond,
        },
        reauthenticate: peer.reauthenticate,
        when_lost: when_lost(peer),
        force_encapsulation: peer.prefers_udp,
    };
    let plan = |(tunnel, it): (u32, &Tunnel)| Child {
        tunnel,
        priority: it.priority,
        mtu: it.mtu,
        options: options(peer, &it.esp),
    };
    let children = children.map(plan).collect();
    let names = Names { local_id: connection.local_identity.to_string(), ..names(name, peer) };
    Ok(Plan { names, connection: Arc::new(connection), children, keeps: false })
}

/// How long the answers of peers are waited for.
pub fn patience(settings: Retransmission) -> ike::Patience {
    let Retransmission { attempts, base_percent, timeout_seconds } = settings;
    ike::Patience { first: Duration::from_secs(timeout_seconds.into()), base_percent, attempts }
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
            Pfs::Group(group) => Some(group.0),
            Pfs::Off | Pfs::AsIke => None,
        };
        (child_name(name, number), Group { pfs, ..group(&tunnel.esp_group, &mut numbers) })
    };
    Names {
        peer: name.to_owned(),
        ike_group: group(&peer.ike_group, &mut peer.ike.proposals.iter().map(|proposal| proposal.number)),
        esp_groups: peer.tunnels.iter().map(|(&number, tunnel)| esp_group((number, tunnel))).collect(),
        proof: Proof::of(name, peer),
        local_id: String::new(),
    }
}

fn child_name(peer: &str, number: u32) -> String {
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
        match (name.as_str(), IKE_PORT).to_socket_addrs() {
            Ok(found) => known.extend(found.map(|found| found.ip())),
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

/// Whether two settings of a peer are of the same sides, which show in the same way who they are: then what is there may
/// stay, and the rest holds from the next keys on.
pub fn is_same(before: &Peer, after: &Peer) -> bool {
    let sides = |peer: &Peer| (peer.local_address, peer.remote_addresses.clone());
    let ids = |peer: &Peer| (peer.local_id.clone(), peer.remote_id.clone());
    sides(before) == sides(after)
        && ids(before) == ids(after)
        && (&before.authentication, before.prefers_udp) == (&after.authentication, after.prefers_udp)
}

/// Who we say we are: what is configured, or the subject of our certificate, or the address that the peer sees.
fn local_identity(
    peer: &str,
    settings: &Peer,
    authentication: &ike::Authentication,
    remote: Option<IpAddr>,
) -> Result<ike::Identity, PeerError> {
    if let Some(id) = &settings.local_id {
        return spoken(peer, id);
    }
    if let ike::Authentication::Certificate(credentials) = authentication
        && let Some(own) = credentials.certificates.first()
    {
        return Ok(ike::Identity::Name(own.subject().clone()));
    }
    let address = settings.local_address.or_else(|| remote.and_then(address_towards));
    address.map(Into::into).ok_or_else(|| PeerError::NoIdentity(peer.to_owned()))
}

/// The address from which the kernel would send there, outside of any tunnel.
pub(super) fn address_towards(remote: IpAddr) -> Option<IpAddr> {
    Netlink::open().ok()?.outside(remote, MARK).ok()?.source
}

pub(super) fn spoken(peer: &str, id: &Identity) -> Result<ike::Identity, PeerError> {
    Ok(match id {
        Identity::Address(address) => (*address).into(),
        Identity::Domain(name) => ike::Identity::Fqdn(name.clone()),
        Identity::Email(name) => ike::Identity::Email(name.clone()),
        Identity::KeyId(bytes) => ike::Identity::KeyId(bytes.clone()),
        Identity::DistinguishedName(text) => {
            ike::Identity::Name(text.parse().map_err(|error| PeerError::name(peer, text, error))?)
        }
    })
}

impl PeerError {
    /// Of what stands in the configuration at `place`.
    pub(super) fn pki(
        peer: &str,
        place: String,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let fix = format!("set {place} BASE64, what stands between the first and last line of its PEM file");
        Self::Pki { peer: peer.to_owned(), of: place, error: Box::new(error), fix }
    }

    /// Of a file that is named at `place`.
    pub(super) fn file(
        peer: &str,
        place: &str,
        path: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let fix = format!("write the list there, in PEM or DER, or delete {place} {path}");
        Self::Pki { peer: peer.to_owned(), of: format!("{place} {path}"), error: Box::new(error), fix }
    }

    /// Of a distinguished name.
    fn name(peer: &str, text: &str, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        let path = format!("set vpn ipsec site-to-site peer {peer} authentication");
        let fix = format!("{path} local-id or remote-id, like 'C=DE, O=Example, CN=berlin'");
        let of = format!("the name {text}");
        Self::Pki { peer: peer.to_owned(), of, error: Box::new(error), fix }
    }
}

fn encryption(encryption: Encryption) -> proposal::Encryption {
    match encryption {
        Encryption::Aead(cipher, tag) => proposal::Encryption::Aead(cipher, tag),
        Encryption::Gmac(cipher) => proposal::Encryption::Gmac(cipher),
        Encryption::Plain(cipher) => proposal::Encryption::Plain(cipher),
    }
}

fn group(group: DhGroup) -> exchange::Group {
    exchange::Group::from_id(group.0).expect("the grammar has the groups that there are")
}

fn ike_offer(proposal: &IkeProposal) -> IkeOffer {
    IkeOffer {
        encryption: vec![encryption(proposal.encryption)],
        integrity: proposal.integrity.clone(),
        prf: proposal.prfs.clone(),
        groups: proposal.groups.iter().copied().map(group).collect(),
    }
}

fn esp_offer(proposal: &EspProposal, groups: &[DhGroup], extended_sequence: bool) -> EspOffer {
    // RFC 4303 section 2.2.1: at these speeds 32 bits last minutes.
    let extended = extended_sequence.then_some(Sequence::Extended);
    EspOffer {
        encryption: vec![encryption(proposal.encryption)],
        integrity: proposal.integrity.clone(),
        groups: groups.iter().copied().map(group).collect(),
        sequence: extended.into_iter().chain([Sequence::Short]).collect(),
    }
}

/// The groups for new keys of a tunnel: where they are those of IKE, those of its first proposal first, as VyOS has it, and then
/// those of the others, as the peer may have only one of these; a weak one is not taken because IKE takes it.
fn secrecy(esp: &Esp, ike: &Ike) -> Vec<DhGroup> {
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
        mode: match tunnel.esp.mode {
            Mode::Tunnel => tunnel::esp::Mode::Tunnel,
            Mode::Transport => tunnel::esp::Mode::Transport,
        },
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
    // IKE has timers too, but they need a thread that has its turn.
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
mod tests {
    use super::*;
    use config::Settings;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

    const SITE: &str = "set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec authentication psk a id %any
set vpn ipsec authentication psk a secret 'a b'
set vpn ipsec site-to-site peer a ike-group I
set vpn ipsec site-to-site peer a default-esp-group E
set vpn ipsec site-to-site peer a tunnel 1 local prefix 10.1.0.0/16
set vpn ipsec site-to-site peer a tunnel 1 remote prefix 10.2.0.0/16
";

    /// What is said of the peer with these lines.
    fn said(lines: &str) -> String {
        let line = |line: &str| match line.strip_prefix("pki ") {
            Some(_) => format!("set {line}\n"),
            None => format!("set vpn ipsec site-to-site peer a {line}\n"),
        };
        let text = SITE.to_owned() + &lines.lines().map(line).collect::<String>();
        let tree = config::parse(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
        let (settings, _) = Settings::new(&tree).unwrap_or_else(|errors| panic!("{errors:?}"));
        let checked = check("a", &settings.ipsec.peers["a"]);
        checked.unwrap_or_else(|error| Some(error.to_string())).unwrap_or_default()
    }

    #[test]
    fn the_data_path_knows_when_a_key_ends() {
        let text = format!(
            "{SITE}set vpn ipsec site-to-site peer a remote-address 192.0.2.2
set vpn ipsec esp-group E lifetime 600
"
        );
        let (settings, _) = Settings::new(&config::parse(&text).expect("right")).expect("right");
        let peer = &settings.ipsec.peers["a"];
        let options = options(peer, &peer.tunnels[&1].esp);
        assert_eq!(options.hard.time, Some(Duration::from_secs(600)));
        assert_eq!(options.soft.time, None, "IKE begins before, and each time a little earlier or later");
    }

    #[test]
    fn a_check_asks_no_resolver() {
        assert_eq!(said("remote-address berlin.invalid"), "");
        assert_eq!(said("remote-address any\nlocal-address 192.0.2.1"), "");
    }

    #[test]
    fn what_cannot_be_served_is_known_without_serving_it() {
        let unknown = said("remote-address any");
        assert!(unknown.contains("authentication local-id NAME"), "{unknown}");
        let name = said("remote-address 192.0.2.2\nauthentication remote-id 'dn:berlin'");
        assert!(name.contains("the name berlin") && name.contains("\n  fix: set vpn ipsec "), "{name}");
        let x509 = "remote-address 192.0.2.2
authentication mode x509
authentication x509 certificate own
authentication x509 ca-certificate root
pki certificate own certificate AAAA
pki certificate own private key BBBB
pki ca root certificate CCCC";
        let key = said(x509);
        assert!(key.starts_with("vpn ipsec site-to-site peer a: pki certificate own private key: "), "{key}");
        assert!(key.contains("\n  fix: set pki certificate own private key BASE64"), "{key}");
        let rsa = "remote-address 192.0.2.2
authentication mode rsa
authentication remote-id 192.0.2.2
authentication rsa local-key own
authentication rsa remote-key theirs
pki key-pair own private key AAAA
pki key-pair theirs public key BBBB";
        let key = said(rsa);
        assert!(key.starts_with("vpn ipsec site-to-site peer a: pki key-pair own private key: "), "{key}");
        let own = include_str!("../../../crypto/tests/keys/rsa2048-pkcs8.pem");
        let own: String = own.lines().filter(|line| !line.starts_with('-')).collect();
        let key = said(&rsa.replace("AAAA", &own));
        assert!(key.contains("\n  fix: set pki key-pair theirs public key BASE64"), "{key}");
    }

    #[test]
    fn our_own_key_as_that_of_the_peer_is_warned_of() {
        let [own, other] = [(), ()].map(|()| KeyPair::generate().expect("P-256 is there"));
        let told = |theirs: &KeyPair| {
            let [private, public] = [own.serialize_pem(), theirs.public_key_pem()].map(|pem| base64(&pem));
            said(&format!(
                "remote-address 192.0.2.2\nauthentication mode rsa\nauthentication remote-id 192.0.2.2\n\
                 authentication rsa local-key own\nauthentication rsa remote-key theirs\n\
                 pki key-pair own private key {private}\npki key-pair theirs public key {public}"
            ))
        };
        assert_eq!(told(&other), "");
        let warning = told(&own);
        let set = "vpn ipsec site-to-site peer a authentication rsa remote-key";
        assert!(warning.starts_with(&format!("{set} theirs: it is our own public key")), "{warning}");
        assert!(warning.contains(&format!("\n  fix: set {set} NAME")), "{warning}");
    }

    /// What stands between the first and the last line of a PEM file.
    fn base64(pem: &str) -> String {
        pem.lines().filter(|line| !line.starts_with('-')).collect()
    }

    #[test]
    fn an_own_certificate_must_be_valid_and_of_our_key() {
        let root_key = KeyPair::generate().expect("P-256 is there");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params, root_key).expect("valid");
        let (key, other) = (KeyPair::generate().expect("one"), KeyPair::generate().expect("another"));
        let told_with = |from: i32, until: i32, key_of: &KeyPair, more: &str| {
            let mut params = CertificateParams::default();
            (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
            let own = params.signed_by(&key, &root).expect("valid");
            let [own, secret, root] = [own.pem(), key_of.serialize_pem(), root.pem()].map(|pem| base64(&pem));
            said(&format!(
                "remote-address 192.0.2.2\nauthentication mode x509\nauthentication x509 certificate own\n\
                 authentication x509 ca-certificate root\npki certificate own certificate {own}\n\
                 pki certificate own private key {secret}\npki ca root certificate {root}{more}"
            ))
        };
        let told = |from, until, key_of| told_with(from, until, key_of, "");
        assert_eq!(told(2020, 2090, &key), "");
        let named = |local: &str, remote: &str| {
            let ids = format!("\nauthentication local-id {local}\nauthentication remote-id {remote}");
            told_with(2020, 2090, &key, &ids)
        };
        assert_eq!(named("a.example", "b.example"), "");
        let same = named("a.example", "a.example");
        assert!(same.contains("it is our own name") && same.contains("\n  fix: set vpn ipsec"), "{same}");
        let foreign = told(2020, 2090, &other);
        assert!(foreign.contains("own private key: it does not belong to the certificate"), "{foreign}");
        assert!(foreign.contains("\n  fix: set pki certificate own private key BASE64"), "{foreign}");
        let expired = told(2020, 2021, &key);
        assert!(
            expired.contains("expired 2021-01-01T00:00:00Z, and every peer would refuse it"),
            "{expired}"
        );
        assert!(
            expired.contains("\n  fix: set pki certificate own certificate BASE64, renewed"),
            "{expired}"
        );
        let early = told(2080, 2090, &key);
        assert!(early.contains("is not valid before 2080-01-01T00:00:00Z"), "{early}");
    }
}
