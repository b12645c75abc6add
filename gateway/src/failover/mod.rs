//! Tunnels that stand in for each other: packets to networks behind several tunnels take the first tunnel that is up.
//!
//! ```text
//! once a second: state and path of tunnels ──> Group: which is used ──> Host::share: routes
//!                                                        └──> GET /v1/failover
//! ```
//! All of them stay connected. What changes is which interface the routes lead to, so no session ends, and nothing leaves in clear.

mod group;
pub mod model;
mod service;

pub use service::FailoverService;

use crate::api::Shown;
use crate::facts::{self, model::Tunnel};
use crate::host::HostHandle;
use crate::host::sharing::{Shared, Sharing};
use config::settings::{FailoverGroup, FailoverMember};
use group::{Group, Seen};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often tunnels are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The groups, and who leads packets.
pub struct Kept {
    begun: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    groups: BTreeMap<String, Group>,
    host: Option<HostHandle>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { begun: Instant::now(), inner: Mutex::default() }
    }
}

impl Kept {
    /// Serves these groups from now on.
    fn order(&self, wanted: &BTreeMap<String, FailoverGroup>, host: HostHandle) {
        let mut inner = self.lock();
        let before = std::mem::take(&mut inner.groups);
        let group = |(name, settings): (&String, &FailoverGroup)| {
            (name.clone(), Group::new(settings.clone(), before.get(name)))
        };
        inner.groups = wanted.iter().map(group).collect();
        inner.host = Some(host);
        inner.share();
    }

    /// Whether there is a group.
    fn has_any(&self) -> bool {
        !self.lock().groups.is_empty()
    }

    /// Looks at the tunnels, and leads packets elsewhere if one has failed.
    fn look(&self, tunnels: &[Tunnel]) {
        let now = self.begun.elapsed();
        let mut inner = self.lock();
        let mut is_changed = false;
        for (name, group) in &mut inner.groups {
            let before = group.active;
            if group.look(tunnels, now) {
                is_changed = true;
                log(name, group, before);
            }
        }
        if is_changed {
            inner.share();
        }
    }

    /// What the API shows.
    pub(crate) fn show(&self) -> model::Failover {
        let now = self.begun.elapsed();
        let inner = self.lock();
        model::Failover { groups: inner.groups.iter().map(|(name, group)| shown(name, group, now)).collect() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn share(&self) {
        let Some(host) = &self.host else { return };
        let mut sharing = Sharing::new();
        for group in self.groups.values() {
            let Some(used) = group.used() else { continue };
            let members = group.settings.members.iter().map(|member| member.interface.clone()).collect();
            let shared = Shared { active: used.interface.clone(), members };
            sharing.extend(group.settings.prefixes.iter().map(|prefix| (*prefix, shared.clone())));
        }
        host.share(sharing);
    }
}

fn log(name: &str, group: &Group, before: usize) {
    let [used, before] = [group.active, before].map(|place| {
        let member = &group.settings.members[place];
        format!("{} (peer {})", member.interface, member.peer)
    });
    tracing::warn!(
        "protocols failover group {name}: packets take {used} now, and not {before}\n  see: postern show failover"
    );
}

fn shown(name: &str, group: &Group, now: Duration) -> model::Group {
    let members = group.settings.members.iter().zip(&group.seen).enumerate();
    let member = |(place, (member, seen)): (usize, (&FailoverMember, &Seen))| model::Member {
        number: member.number,
        interface: member.interface.clone(),
        peer: member.peer.clone(),
        state: seen.state,
        up_seconds: seen.since.map(|since| now.saturating_sub(since).as_secs()),
        is_used: place == group.active,
    };
    model::Group {
        name: name.to_owned(),
        prefixes: group.settings.prefixes.iter().map(ToString::to_string).collect(),
        hold_seconds: group.settings.hold.as_secs(),
        members: members.map(member).collect(),
        switches: group.switches,
    }
}

/// Looks at tunnels once a second, for ever.
pub(crate) async fn watch(shown: Shown) {
    let Some(kept) = shown.failover() else { return };
    loop {
        if kept.has_any() {
            // Here, and not in a blocking thread: those have no right to change routes.
            kept.look(&facts::tunnels(&shown).await);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
