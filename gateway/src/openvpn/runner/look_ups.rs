//! When the names of a peer are looked up that connects with us: nothing else tells that it has moved.

use crate::openvpn::names::Name;
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

/// The next tick; never without an interval.
pub(super) async fn tick(interval: Option<&mut Interval>) {
    match interval {
        Some(interval) => _ = interval.tick().await,
        None => std::future::pending().await,
    }
}
