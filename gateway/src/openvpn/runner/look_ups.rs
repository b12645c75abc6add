//! When the names of a peer are looked up that connects with us: nothing else tells that it has moved.

use crate::openvpn::named_routes::{self, Known};
use crate::openvpn::names::Name;
use crate::resolver;
use crate::rights::Rights;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// How often.
const LOOK_UPS: Duration = Duration::from_secs(30);

/// When to look up the names of the peer of a server, site to site.
pub(super) fn of(interface: &str, names: &[Name]) -> Option<Interval> {
    for name in names.iter().filter(|name| name.known.is_empty()) {
        let (host, seconds) = (&name.host, LOOK_UPS.as_secs());
        tracing::warn!("interface {interface}: {host} has no address yet; it is looked up every {seconds} s");
    }
    names.iter().any(Name::is_host_name).then(|| {
        let mut interval = tokio::time::interval_at(Instant::now() + LOOK_UPS, LOOK_UPS);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    })
}

/// Names to which the server of a client has pushed routes.
#[derive(Default)]
pub(super) struct RouteNames {
    hosts: Vec<String>,
    is_running: bool,
}

impl RouteNames {
    /// Looks these up on a thread of its own; one that runs is awaited first.
    pub(super) fn want(&mut self, hosts: Vec<String>, on_answer: impl FnOnce(Known) + Send + 'static) {
        self.hosts = hosts;
        if self.is_running || self.hosts.is_empty() {
            return;
        }
        self.is_running = true;
        let hosts = self.hosts.clone();
        std::thread::spawn(move || {
            Rights::None.keep();
            on_answer(named_routes::look_up(&hosts, resolver::addresses));
        });
    }

    /// A look-up has ended. Names that it did not have are to be looked up now.
    pub(super) fn ended(&mut self, known: &Known) -> Option<Vec<String>> {
        self.is_running = false;
        self.hosts.iter().any(|host| !known.contains_key(host)).then(|| self.hosts.clone())
    }
}

/// The next tick; never without an interval.
pub(super) async fn tick(interval: Option<&mut Interval>) {
    match interval {
        Some(interval) => _ = interval.tick().await,
        None => std::future::pending().await,
    }
}
