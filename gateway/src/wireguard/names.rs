//! Peers that are found by name.
//!
//! ```text
//! its name is another than before ──┐
//! it does not answer ───────────────┴──> looked up, every 5 s ──> its addresses ──> handshake_thread, which decides
//! ```
//! A peer that answers is left alone, whatever its name says by now: like any other peer, it is followed where it moves.

use super::interface::Interface;
use super::update::{Found, PeerUpdate, Update};
use crate::resolver;
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

/// How often it is looked which peers do not answer.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two look-ups of a name; after so many in a row, the longer one.
const PAUSE: Duration = Duration::from_secs(5);
const SOON: u32 = 24;
const LONG_PAUSE: Duration = Duration::from_secs(30);

/// Names of all interfaces that are looked up at once: a resolver that does not answer holds a thread for each.
static LOOK_UPS: Semaphore = Semaphore::const_new(16);

/// What is known of names. It outlives interfaces and changes of the configuration: a change that is undone may have cut off the resolver.
#[derive(Clone, Default)]
pub struct Known(Arc<Mutex<BTreeMap<String, Name>>>);

#[derive(Default)]
struct Name {
    /// Its last addresses.
    addresses: Vec<IpAddr>,
    /// Why it has none now.
    why: Option<String>,
}

impl Known {
    /// The last addresses of a name.
    pub fn addresses(&self, host: &Host) -> Vec<SocketAddr> {
        let known = self.lock();
        let addresses = known.get(&host.name).map(|name| &name.addresses[..]).unwrap_or_default();
        addresses.iter().map(|address| SocketAddr::new(*address, host.port)).collect()
    }

    /// Why a name has no address now.
    pub fn why(&self, name: &str) -> Option<String> {
        self.lock().get(name)?.why.clone()
    }

    /// Notes the answer of a resolver; returns whether it is another one than before.
    pub(super) fn note(&self, name: &str, answer: io::Result<Vec<IpAddr>>) -> bool {
        let mut known = self.lock();
        let name = known.entry(name.to_owned()).or_default();
        match answer {
            Ok(mut addresses) => {
                let was_without = name.why.take().is_some();
                // Resolvers change the order with each answer: another address must not be preferred each time.
                let place = |address: &IpAddr| name.addresses.iter().position(|it| it == address);
                addresses.sort_by_key(|address| place(address).unwrap_or(usize::MAX));
                let before = std::mem::replace(&mut name.addresses, addresses);
                was_without || before != name.addresses
            }
            Err(error) => name.why.replace(error.to_string()).is_none(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Name>> {
        locked(&self.0)
    }
}

fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the addresses of an interface's peers what their names say. Dropping it ends that: nothing is sent to the interface after it.
pub(super) struct Names(JoinHandle<()>);

/// Peers that have got another place, and have not been called there yet. It outlives [`Names`]: a further change may come meanwhile.
pub(super) type NotCalled = Arc<Mutex<Vec<(PublicKey, Host)>>>;

impl Drop for Names {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Names {
    /// Begins, if a peer is found by name. Peers that had another place in `before`, or that are not called at theirs yet, are called at their
    /// new one even if they answer.
    pub(super) fn follow(
        interface: &Arc<Interface>,
        before: Option<&WireGuard>,
        not_called: &NotCalled,
        settings: &WireGuard,
        known: &Known,
    ) -> Option<Self> {
        {
            let mut pending = locked(not_called);
            *pending = moved(settings, before, &pending);
        }
        let sought: Vec<Sought> =
            settings.peers.iter().filter_map(|(name, peer)| Sought::new(name, peer)).collect();
        if sought.is_empty() {
            return None;
        }
        let inside = settings.peers.values().flat_map(|peer| &peer.allowed_ips).copied();
        let inside = inside.filter(|prefix| prefix.prefix_len() != 0).collect();
        let interface = Arc::downgrade(interface);
        let (known, not_called) = (known.clone(), Arc::clone(not_called));
        Some(Self(tokio::spawn(Follower { interface, sought, inside, known, not_called }.run())))
    }
}

/// The peers whose place is another one than before, or that were not called at this one yet.
fn moved(
    settings: &WireGuard,
    before: Option<&WireGuard>,
    not_called: &[(PublicKey, Host)],
) -> Vec<(PublicKey, Host)> {
    let was = |key: &PublicKey| before?.peers.values().find(|peer| peer.public_key == *key);
    let named = settings.peers.values().filter_map(|peer| Some((peer.public_key, peer.host.clone()?)));
    let is_moved = |it: &(PublicKey, Host)| {
        was(&it.0).is_some_and(|before| before.host.as_ref() != Some(&it.1)) || not_called.contains(it)
    };
    named.filter(is_moved).collect()
}

/// A peer that is found by name.
struct Sought {
    name: String,
    key: PublicKey,
    host: Host,
    /// Its other addresses.
    others: Vec<SocketAddr>,
    /// Whether it is being looked up.
    is_asked: bool,
    /// Look-ups in a row.
    count: u32,
    /// Until when it is not looked up again.
    rests_until: Instant,
}

impl Sought {
    fn new(name: &str, peer: &Peer) -> Option<Self> {
        Some(Self {
            name: name.to_owned(),
            key: peer.public_key,
            host: peer.host.clone()?,
            others: peer.backups.clone(),
            is_asked: false,
            count: 0,
            rests_until: Instant::now(),
        })
    }

    fn is_waiting(&self, now: Instant) -> bool {
        !self.is_asked && now >= self.rests_until
    }

    fn rest(&mut self, now: Instant) {
        self.is_asked = false;
        self.count += 1;
        self.rests_until = now + if self.count < SOON { PAUSE } else { LONG_PAUSE };
    }
}

struct Follower {
    interface: Weak<Interface>,
    sought: Vec<Sought>,
    /// What its peers carry, but for all addresses.
    inside: Vec<IpNet>,
    known: Known,
    not_called: NotCalled,
}

/// The place of a peer among those that are sought, and the answer about it.
type Answer = (usize, io::Result<Vec<IpAddr>>);

impl Follower {
    /// Until the interface is gone.
    async fn run(mut self) {
        let mut asked: JoinSet<Answer> = JoinSet::new();
        let mut look = tokio::time::interval(LOOK);
        loop {
            let answer = tokio::select! {
                _ = look.tick() => None,
                Some(answer) = asked.join_next() => Some(answer),
            };
            let Some(interface) = self.interface.upgrade() else { return };
            // A look-up that panicked has said so already.
            if let Some(Ok((at, found))) = answer {
                self.answered(&interface, at, found).await;
            }
            self.ask(&interface, &mut asked).await;
        }
    }

    /// Looks up the names of peers that do not answer, those first that have waited for longest.
    async fn ask(&mut self, interface: &Interface, asked: &mut JoinSet<Answer>) {
        let now = Instant::now();
        let is_waiting = |&at: &usize| self.sought[at].is_waiting(now);
        let mut waiting: Vec<usize> = (0..self.sought.len()).filter(is_waiting).collect();
        if waiting.is_empty() || LOOK_UPS.available_permits() == 0 {
            return;
        }
        waiting.sort_by_key(|&at| self.sought[at].rests_until);
        let lost = interface.lost(waiting.iter().map(|&at| self.sought[at].key).collect()).await;
        for (at, is_lost) in waiting.into_iter().zip(lost) {
            let is_moved = self.is_moved(&self.sought[at].key);
            let sought = &mut self.sought[at];
            if !is_lost && !is_moved {
                sought.count = 0;
                continue;
            }
            let Ok(permit) = LOOK_UPS.try_acquire() else { return };
            sought.is_asked = true;
            let host = sought.host.name.clone();
            asked.spawn_blocking(move || {
                let _permit = permit;
                (at, resolver::addresses(&host))
            });
        }
    }

    fn is_moved(&self, key: &PublicKey) -> bool {
        locked(&self.not_called).iter().any(|(moved, _)| moved == key)
    }

    async fn answered(&mut self, interface: &Interface, at: usize, found: io::Result<Vec<IpAddr>>) {
        let sought = &mut self.sought[at];
        sought.rest(Instant::now());
        let (peer, host) = (format!("{} peer {}", interface.name(), sought.name), &sought.host.name);
        let found = match found.and_then(|found| resolver::callable(&found, &self.inside)) {
            Ok(found) => found,
            Err(error) => {
                let said = error.to_string();
                if self.known.note(host, Err(error)) {
                    tracing::warn!("{peer}: {host} has no address now: {said}; it is looked up again");
                }
                return;
            }
        };
        let all: Vec<String> = found.iter().map(IpAddr::to_string).collect();
        if self.known.note(host, Ok(found)) {
            tracing::info!("{peer}: {host} is {}", all.join(", "));
        }
        let (addresses, others) = (self.known.addresses(&sought.host), sought.others.clone());
        let key = sought.key;
        let found = Some(Found { addresses, others, is_moved: self.is_moved(&key) });
        let update = PeerUpdate { update_only: true, found, ..PeerUpdate::new(key) };
        // Nothing of it can be refused: it opens no socket.
        let _ = interface.update(Update { peers: vec![update], ..Update::default() }).await;
        locked(&self.not_called).retain(|(moved, _)| *moved != key);
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
        if let (Some(resolver), Some((peer, settings))) = (resolver, named) {
            let has_backup = !settings.backups.is_empty();
            let length = if resolver.is_ipv6() { 128 } else { 32 };
            let words = if resolver.is_ipv6() { "route6" } else { "route" };
            let path = format!("interfaces wireguard {interface} peer {peer}");
            let backup = if has_backup {
                String::new()
            } else {
                format!("set {path} backup-address ADDRESS, where it is now; or ")
            };
            warnings.push(format!(
                "{path}: its name cannot be looked up while the tunnel is down, unless the resolver {resolver} is on a link of this \
                 machine\n  fix: {backup}have all queries to that resolver leave outside the tunnel: \
                 set protocols static {words} {resolver}/{length} next-hop ROUTER"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::sample;

    const NAMED: [&str; 3] =
        ["peer b host-name b.example", "peer b port 5", "peer b allowed-ips 10.2.0.0/24"];

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("literal")).collect()
    }

    #[test]
    fn a_name_keeps_its_addresses_and_their_order_while_the_resolver_is_silent_or_shuffles() {
        let (known, host) = (Known::default(), Host { name: "b.example".to_owned(), port: 5 });
        let all = || known.addresses(&host).iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        assert!(known.note("b.example", Ok(ips(&["192.0.2.1", "192.0.2.2"]))));
        assert!(!known.note("b.example", Ok(ips(&["192.0.2.2", "192.0.2.1"]))), "nothing new");
        assert_eq!(all(), ["192.0.2.1:5", "192.0.2.2:5"]);
        assert!(known.note("b.example", Err(io::Error::other("no answer"))));
        assert!(!known.note("b.example", Err(io::Error::other("no answer"))), "said once");
        assert_eq!((all().len(), known.why("b.example").as_deref()), (2, Some("no answer")));
        assert!(known.note("b.example", Ok(ips(&["192.0.2.3", "192.0.2.2"]))));
        assert_eq!(
            (all(), known.why("b.example")),
            (vec!["192.0.2.2:5".to_owned(), "192.0.2.3:5".to_owned()], None)
        );
    }

    #[test]
    fn only_another_name_or_port_moves_a_peer_that_answers() {
        let of = |lines: &[&str]| sample::wireguard(&[&NAMED[..], lines].concat()).wireguard["wg0"].clone();
        let is_moved = |lines: &[&str]| !moved(&of(lines), Some(&of(&[])), &[]).is_empty();
        assert!(
            !is_moved(&["peer b persistent-keepalive 25"]) && !is_moved(&["peer b backup-address 192.0.2.9"])
        );
        assert!(is_moved(&["peer b port 6"]) && is_moved(&["peer b host-name c.example"]));
        assert!(moved(&of(&[]), None, &[]).is_empty(), "it has not been anywhere");
        // A later commit may come before the new name is found.
        let renamed = of(&["peer b host-name c.example"]);
        let not_called = moved(&renamed, Some(&of(&[])), &[]);
        assert_eq!(moved(&renamed, Some(&renamed), &not_called), not_called, "it has not been called there");
        assert!(moved(&renamed, Some(&renamed), &[]).is_empty());
        assert!(moved(&of(&[]), Some(&of(&[])), &not_called).is_empty(), "it is back where it was");
    }

    #[test]
    fn a_name_is_looked_up_often_at_first_and_then_less_often() {
        let settings = sample::wireguard(&NAMED);
        let mut sought = Sought::new("b", &settings.wireguard["wg0"].peers["b"]).expect("named");
        let mut now = Instant::now();
        assert!(sought.is_waiting(now));
        sought.is_asked = true;
        assert!(!sought.is_waiting(now));
        for _ in 1..SOON {
            sought.rest(now);
            assert!(!sought.is_waiting(now));
            now += PAUSE;
            assert!(sought.is_waiting(now));
        }
        sought.rest(now);
        assert!(!sought.is_waiting(now + PAUSE) && sought.is_waiting(now + LONG_PAUSE));
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
        assert!(text.contains("fix: set interfaces wireguard wg0 peer b backup-address ADDRESS"), "{text}");
        // With one, the peer is lost only if it moves.
        let text = said(&[all[0], "peer b backup-address 192.0.2.9"], "").join("\n");
        assert!(text.contains("fix: have all queries") && !text.contains("backup-address"), "{text}");
        let by = |prefix: &str| {
            said(&all, &format!("set protocols static route {prefix} next-hop 198.51.100.1\n"))
        };
        assert!(by("192.0.2.53/32").is_empty() && by("192.0.2.0/24").is_empty());
        assert_eq!(by("0.0.0.0/0").len(), 1, "the tunnel has the default route");
    }
}
