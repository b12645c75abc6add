//! Peers that are found by name.
//!
//! ```text
//! new, or its lines have changed ──┐
//! it does not answer ──────────────┴──> its name is looked up, every 5 s ──> its addresses ──> handshake_thread
//! ```
//! A peer that answers is left alone, whatever its name says by now: like any other peer, it is followed where it moves.

use super::interface::Interface;
use super::update::{PeerSnapshot, PeerUpdate, Update};
use crate::openvpn::names;
use config::Settings;
use config::settings::{Host, Peer, WireGuard};
use crypto::PublicKey;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// How often it is looked whether a name must be looked up.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two look-ups of a name.
const PAUSE: Duration = Duration::from_secs(5);
/// Addresses of a name that are used: each may be called for 15 s before the next one.
const MOST: usize = 8;

/// Names of all interfaces that are looked up at once: a resolver that does not answer holds a thread for each.
static LOOK_UPS: Semaphore = Semaphore::const_new(16);

/// Names without an address, by the keys of their peers: why, if they have been looked up.
#[derive(Clone, Default)]
pub struct Unresolved(Arc<Mutex<BTreeMap<PublicKey, Option<String>>>>);

impl Unresolved {
    /// Why the name of a peer has no address.
    pub fn why(&self, peer: &PublicKey) -> Option<String> {
        self.lock().get(peer).cloned().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the addresses of an interface's peers what their names say. Dropping it ends that.
pub(super) struct Names(JoinHandle<()>);

impl Drop for Names {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Names {
    /// Begins, if a peer is found by name. Peers whose lines differ from those of `before` are looked up at once.
    pub(super) fn follow(
        interface: &Arc<Interface>,
        before: Option<&WireGuard>,
        settings: &WireGuard,
        unresolved: &Unresolved,
    ) -> Option<Self> {
        let was = |key: &PublicKey| before?.peers.values().find(|peer| peer.public_key == *key);
        let mut sought: Vec<Sought> = { settings.peers.iter() }
            .filter_map(|(name, peer)| Sought::new(name, peer, was(&peer.public_key)))
            .collect();
        let mut without = unresolved.lock();
        without.retain(|key, _| sought.iter().any(|it| it.key == *key));
        for sought in &mut sought {
            // What was new before a further change, and has no address yet, is still new.
            sought.is_new |= without.contains_key(&sought.key);
            if sought.is_new {
                without.entry(sought.key).or_default();
            }
        }
        drop(without);
        if sought.is_empty() {
            return None;
        }
        let follower =
            Follower { interface: Arc::downgrade(interface), sought, unresolved: unresolved.clone() };
        Some(Self(tokio::spawn(follower.run())))
    }
}

/// A peer that is found by name.
struct Sought {
    name: String,
    key: PublicKey,
    host: Host,
    /// Its other addresses.
    backups: Vec<SocketAddr>,
    /// Whether it is looked up even if it answers: what the configuration says of it is new.
    is_new: bool,
    /// Whether it is being looked up.
    is_asked: bool,
    /// Until when it is not looked up again.
    rests_until: Instant,
}

impl Sought {
    fn new(name: &str, peer: &Peer, before: Option<&Peer>) -> Option<Self> {
        let is_new =
            before.is_none_or(|before| (&before.host, &before.backups) != (&peer.host, &peer.backups));
        Some(Self {
            name: name.to_owned(),
            key: peer.public_key,
            host: peer.host.clone()?,
            backups: peer.backups.clone(),
            is_new,
            is_asked: false,
            rests_until: Instant::now(),
        })
    }

    fn is_due(&self, peer: &PeerSnapshot, now: Instant) -> bool {
        let is_lost = peer.endpoint.is_none() || peer.trouble.unanswered > 0;
        !self.is_asked && now >= self.rests_until && (self.is_new || is_lost)
    }

    /// What changes when these are its addresses; `None` for nothing.
    fn update(&self, peer: &PeerSnapshot, found: &[IpAddr]) -> Option<PeerUpdate> {
        let found: Vec<SocketAddr> = found.iter().map(|it| SocketAddr::new(*it, self.host.port)).collect();
        // Resolvers change the order with each answer: another address must not be preferred each time.
        let mut addresses: Vec<SocketAddr> =
            peer.addresses.iter().copied().filter(|known| found.contains(known)).collect();
        for address in found.iter().chain(&self.backups) {
            if !addresses.contains(address) {
                addresses.push(*address);
            }
        }
        let is_elsewhere = peer.endpoint.is_none_or(|it| !addresses.contains(&it.remote));
        if !is_elsewhere && addresses == peer.addresses {
            return None;
        }
        let endpoint = addresses.first().copied().filter(|_| is_elsewhere);
        Some(PeerUpdate {
            update_only: true,
            endpoint,
            addresses: Some(addresses),
            ..PeerUpdate::new(self.key)
        })
    }
}

/// The addresses at which a peer can be called: some resolvers give 0.0.0.0 for names that they block.
fn callable(found: Vec<IpAddr>) -> io::Result<Vec<IpAddr>> {
    let mut callable: Vec<IpAddr> = Vec::new();
    for address in found {
        if !address.is_unspecified() && !address.is_multicast() && !callable.contains(&address) {
            callable.push(address);
        }
    }
    callable.truncate(MOST);
    if callable.is_empty() {
        return Err(io::Error::other("no address of it can be called"));
    }
    Ok(callable)
}

struct Follower {
    interface: Weak<Interface>,
    sought: Vec<Sought>,
    unresolved: Unresolved,
}

/// The place of a peer among those that are sought, and the answer about it.
type Answer = (usize, io::Result<Vec<IpAddr>>);

impl Follower {
    /// Until the interface is gone.
    async fn run(mut self) {
        let mut asked: JoinSet<Answer> = JoinSet::new();
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = look.tick() => {
                    let Some(interface) = self.interface.upgrade() else { return };
                    self.ask(&interface, &mut asked).await;
                }
                Some(answer) = asked.join_next() => {
                    let Some(interface) = self.interface.upgrade() else { return };
                    // A look-up that panicked has said so already.
                    if let Ok((at, found)) = answer {
                        self.answered(&interface, at, found).await;
                    }
                }
            }
        }
    }

    /// Looks up what is due.
    async fn ask(&mut self, interface: &Interface, asked: &mut JoinSet<Answer>) {
        let now = Instant::now();
        if self.sought.iter().all(|sought| sought.is_asked || now < sought.rests_until) {
            return;
        }
        let snapshot = interface.snapshot().await;
        if !snapshot.up {
            return;
        }
        let peers: BTreeMap<PublicKey, &PeerSnapshot> =
            snapshot.peers.iter().map(|peer| (peer.public, peer)).collect();
        for (at, sought) in self.sought.iter_mut().enumerate() {
            let is_due = peers.get(&sought.key).is_some_and(|peer| sought.is_due(peer, now));
            if is_due && let Ok(permit) = LOOK_UPS.try_acquire() {
                sought.is_asked = true;
                let host = sought.host.name.clone();
                asked.spawn_blocking(move || {
                    let _permit = permit;
                    (at, names::resolve(&host).and_then(callable))
                });
            }
        }
    }

    async fn answered(&mut self, interface: &Interface, at: usize, found: io::Result<Vec<IpAddr>>) {
        let sought = &mut self.sought[at];
        (sought.is_asked, sought.rests_until) = (false, Instant::now() + PAUSE);
        let (peer, host) = (format!("{} peer {}", interface.name(), sought.name), &sought.host.name);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let before = self.unresolved.lock().insert(sought.key, Some(error.to_string()));
                let is_first = before.flatten().is_none();
                if is_first {
                    let every = PAUSE.as_secs();
                    tracing::warn!(
                        "{peer}: {host} has no address now: {error}; it is looked up again every {every} s"
                    );
                }
                return;
            }
        };
        if self.unresolved.lock().remove(&sought.key).flatten().is_some() {
            tracing::info!("{peer}: {host} has an address again");
        }
        let snapshot = interface.snapshot().await;
        let Some(known) = snapshot.peers.iter().find(|peer| peer.public == sought.key) else { return };
        sought.is_new = false;
        let Some(update) = sought.update(known, &found) else { return };
        let all: Vec<String> = found.iter().map(IpAddr::to_string).collect();
        tracing::info!("{peer}: {host} is {}", all.join(", "));
        // Nothing of it can be refused: it opens no socket.
        let _ = interface.update(Update { peers: vec![update], ..Update::default() }).await;
    }
}

/// A warning for each interface where a name cannot be looked up while its tunnel is down, as the resolver is behind it.
pub(super) fn cut_off(settings: &Settings, resolvers: &[IpAddr]) -> Vec<String> {
    // A default route of the main table is not taken while a tunnel has one.
    let longest = |prefixes: &mut dyn Iterator<Item = &IpNet>, resolver: &IpAddr| {
        prefixes.filter(|prefix| prefix.contains(resolver)).map(IpNet::prefix_len).max()
    };
    let mut warnings = Vec::new();
    for (interface, link) in settings.wireguard.iter().filter(|(_, link)| !link.disable) {
        let prefixes = || link.peers.values().flat_map(|peer| &peer.allowed_ips);
        let is_behind = |resolver: &&IpAddr| {
            let around = longest(&mut settings.routes.iter().map(|route| &route.prefix), resolver);
            longest(&mut prefixes(), resolver).is_some_and(|length| around.is_none_or(|it| it <= length))
        };
        let resolver = resolvers.iter().find(|resolver| !resolver.is_loopback() && is_behind(resolver));
        let named = link.peers.iter().find(|(_, peer)| peer.host.is_some());
        if let (Some(resolver), Some((peer, _))) = (resolver, named) {
            let length = if resolver.is_ipv6() { 128 } else { 32 };
            let words = if resolver.is_ipv6() { "route6" } else { "route" };
            warnings.push(format!(
                "interfaces wireguard {interface} peer {peer}: its name cannot be looked up while the tunnel is down, unless the \
                 resolver {resolver} is on a link of this machine\n  fix: set protocols static {words} {resolver}/{length} \
                 next-hop ROUTER"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::sample;
    use crypto::Secret;
    use packet::Endpoint;
    use tunnel::wireguard::{Reason, Trouble};

    const NAMED: [&str; 3] =
        ["peer b host-name b.example", "peer b port 5", "peer b allowed-ips 10.2.0.0/24"];

    fn sought(lines: &[&str]) -> Sought {
        let settings = sample::wireguard(&[&NAMED[..], lines].concat());
        let peer = &settings.wireguard["wg0"].peers["b"];
        Sought::new("b", peer, None).expect("it has a name")
    }

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("literal")
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("literal")).collect()
    }

    fn peer(endpoint: Option<&str>, addresses: &[&str]) -> PeerSnapshot {
        PeerSnapshot {
            public: PublicKey([2; 32]),
            preshared: Secret::zero(),
            endpoint: endpoint.map(|it| Endpoint::new(socket(it))),
            addresses: addresses.iter().map(|it| socket(it)).collect(),
            reason: Some(Reason::First),
            last_handshake: None,
            handshakes: 0,
            sent_bytes: 0,
            received_bytes: 0,
            sent_packets: 0,
            received_packets: 0,
            unsent_packets: 0,
            persistent_keepalive: 0,
            has_key: false,
            trouble: Trouble::default(),
            refusal: None,
            allowed_ips: Vec::new(),
        }
    }

    /// The endpoint that is set, and the addresses.
    fn change(sought: &Sought, peer: &PeerSnapshot, found: &[&str]) -> Option<(Option<String>, String)> {
        let update = sought.update(peer, &ips(found))?;
        let addresses = update.addresses.expect("they are always said");
        let text: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        Some((update.endpoint.map(|it| it.to_string()), text.join(" ")))
    }

    #[test]
    fn a_peer_is_called_at_the_first_address_of_its_name_and_then_at_the_others_and_the_backups() {
        let sought = sought(&["peer b backup-address 192.0.2.9", "peer b backup-address 192.0.2.2"]);
        let all = "192.0.2.1:5 192.0.2.2:5 192.0.2.9:5".to_owned();
        let expected = Some((Some("192.0.2.1:5".to_owned()), all));
        assert_eq!(change(&sought, &peer(None, &[]), &["192.0.2.1", "192.0.2.2"]), expected);
    }

    #[test]
    fn another_order_of_the_same_addresses_changes_nothing() {
        let known = peer(Some("192.0.2.1:5"), &["192.0.2.1:5", "192.0.2.2:5"]);
        assert_eq!(change(&sought(&[]), &known, &["192.0.2.2", "192.0.2.1"]), None);
    }

    #[test]
    fn a_peer_whose_name_has_another_address_is_called_there() {
        let known = peer(Some("192.0.2.1:5"), &["192.0.2.1:5"]);
        let there = Some((Some("192.0.2.7:5".to_owned()), "192.0.2.7:5".to_owned()));
        assert_eq!(change(&sought(&[]), &known, &["192.0.2.7"]), there);
        // It had called from there itself, and is silent now.
        let followed = peer(Some("198.51.100.1:999"), &["192.0.2.7:5"]);
        assert_eq!(change(&sought(&[]), &followed, &["192.0.2.7"]), there);
    }

    #[test]
    fn an_address_that_comes_does_not_move_the_peer() {
        let known = peer(Some("192.0.2.1:5"), &["192.0.2.1:5"]);
        let both = Some((None, "192.0.2.1:5 192.0.2.2:5".to_owned()));
        assert_eq!(change(&sought(&[]), &known, &["192.0.2.2", "192.0.2.1"]), both);
    }

    #[test]
    fn a_name_is_looked_up_when_it_is_new_and_while_the_peer_does_not_answer() {
        let (mut sought, now) = (sought(&[]), Instant::now());
        let mut known = peer(Some("192.0.2.1:5"), &["192.0.2.1:5"]);
        assert!(sought.is_due(&known, now));
        sought.is_new = false;
        assert!(!sought.is_due(&known, now), "it answers, as far as is known");
        assert!(sought.is_due(&peer(None, &[]), now));
        known.trouble.unanswered = 1;
        assert!(sought.is_due(&known, now));
        sought.rests_until = now + PAUSE;
        assert!(!sought.is_due(&known, now) && sought.is_due(&known, now + PAUSE));
        sought.is_asked = true;
        assert!(!sought.is_due(&known, now + PAUSE));
    }

    #[test]
    fn only_lines_that_have_changed_make_a_peer_new() {
        let of = |lines: &[&str]| {
            sample::wireguard(&[&NAMED[..], lines].concat()).wireguard["wg0"].peers["b"].clone()
        };
        let is_new = |lines: &[&str]| Sought::new("b", &of(lines), Some(&of(&[]))).expect("named").is_new;
        assert!(!is_new(&["peer b persistent-keepalive 25"]));
        assert!(is_new(&["peer b port 6"]) && is_new(&["peer b backup-address 192.0.2.9"]));
    }

    #[test]
    fn addresses_that_nobody_has_are_not_called() {
        let found = callable(ips(&["0.0.0.0", "192.0.2.1", "ff02::1", "192.0.2.1"])).expect("one is left");
        assert_eq!(found, ips(&["192.0.2.1"]));
        assert!(callable(ips(&["::"])).is_err());
    }

    #[test]
    fn a_resolver_behind_the_tunnel_is_said_with_the_line_that_gets_around_it() {
        let resolvers = ips(&["127.0.0.53", "192.0.2.53"]);
        let said = |lines: &[&str], more: &str| {
            let settings = sample::wireguard_with(&[&NAMED[..], lines].concat(), more);
            cut_off(&settings, &resolvers)
        };
        assert!(said(&[], "").is_empty());
        let all = ["peer b allowed-ips 0.0.0.0/0"];
        let text = said(&all, "").join("\n");
        assert!(text.contains("wg0 peer b: its name cannot be looked up"), "{text}");
        assert!(text.ends_with("set protocols static route 192.0.2.53/32 next-hop ROUTER"), "{text}");
        let by = |prefix: &str| {
            said(&all, &format!("set protocols static route {prefix} next-hop 198.51.100.1\n"))
        };
        assert!(by("192.0.2.53/32").is_empty() && by("192.0.2.0/24").is_empty());
        assert_eq!(by("0.0.0.0/0").len(), 1, "the tunnel has the default route");
    }
}
