//! What the kernel has of our routes. They are read once, and then followed by the kernel's notifications: of thousands of routes a
//! commit changes few, and reading them all takes longer than everything else in it.
//!
//! The kernel queues the notification of a change before the call returns that makes it. So what is read here before a comparison
//! includes all changes until then, like a dump.

use super::netlink::{Netlink, NetlinkError, Notice, Route, notices, watch};
use super::networks::TABLES;
use netlink_sys::Socket;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;

/// The conversation in which our state is compared and changed.
pub(super) struct Kernel {
    pub(super) netlink: Netlink,
    /// The number of the conversation.
    port: u32,
    notifications: Socket,
    /// Our routes; `None` if they must be read.
    routes: Option<BTreeSet<Route>>,
}

impl Kernel {
    pub(super) fn open() -> io::Result<Self> {
        // Opened first: no change is lost between the first dump and the first notification.
        let notifications = watch()?;
        let netlink = Netlink::open()?;
        Ok(Self { port: netlink.port()?, netlink, notifications, routes: None })
    }

    /// The routes that we, or a daemon like us, have added.
    pub(super) fn routes(&mut self) -> Result<&BTreeSet<Route>, NetlinkError> {
        self.follow();
        let routes = match self.routes.take() {
            Some(routes) => routes,
            None => self.netlink.routes()?.into_iter().collect(),
        };
        Ok(self.routes.insert(routes))
    }

    /// Whether nothing but our own changes has happened since the routes were read.
    pub(super) fn is_undisturbed(&mut self) -> bool {
        self.follow();
        self.routes.is_some()
    }

    /// The next comparison reads everything.
    pub(super) fn doubt(&mut self) {
        self.routes = None;
    }

    /// Reads the notifications that wait.
    fn follow(&mut self) {
        loop {
            match self.notifications.recv_from_full() {
                Ok((bytes, _)) => notices(&bytes, &TABLES, self.port).for_each(|notice| self.note(notice)),
                // Some were lost.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => self.doubt(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.doubt(),
            }
        }
    }

    fn note(&mut self, notice: Notice) {
        match (notice, &mut self.routes) {
            (Notice::Added(route), Some(routes)) => _ = routes.insert(route),
            (Notice::Removed(route), Some(routes)) => _ = routes.remove(&route),
            (Notice::Disturbed, routes) => *routes = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::{MAIN_TABLE, Way};
    use lab::{Lab, wait_until};
    use std::time::Duration;

    fn route(prefix: &str) -> Route {
        Route { prefix: prefix.parse().expect("literal"), table: MAIN_TABLE, way: Way::Nowhere }
    }

    #[test]
    fn what_is_followed_is_what_a_dump_finds() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            return eprintln!("SKIPPED: needs root to make network namespaces");
        }
        let lab = Lab::new(&["present", "far"]).expect("root can make namespaces");
        let (near, far) = (("present", "outside", "192.0.2.1/24"), ("far", "outside", "192.0.2.9/24"));
        lab.connect(near, far).expect("veth exists");
        // The kernel tells of the carrier and of the end of duplicate address detection (RFC 4862, 5.4), which would disturb.
        let is_settled = || {
            let state = lab.ip("present", "address show dev outside").unwrap_or_default();
            state.contains("state UP") && state.contains("fe80:") && !state.contains("tentative")
        };
        wait_until(Duration::from_secs(30), is_settled).expect("the interface is ready");
        lab.enter("present", || {
            let mut kernel = Kernel::open().expect("rtnetlink is there");
            let check = |kernel: &mut Kernel, expected: &[&str], is_read: bool| {
                assert_eq!(kernel.is_undisturbed(), !is_read, "{expected:?}");
                let found = kernel.routes().expect("a dump").clone();
                assert_eq!(found, expected.iter().copied().map(route).collect());
                let dump: BTreeSet<Route> = kernel.netlink.routes().expect("a dump").into_iter().collect();
                assert_eq!(found, dump);
            };
            check(&mut kernel, &[], true);
            for prefix in ["10.1.0.0/16", "10.2.0.0/16", "fd00::/64"] {
                kernel.netlink.add_route(route(prefix)).expect("added");
            }
            check(&mut kernel, &["10.1.0.0/16", "10.2.0.0/16", "fd00::/64"], false);
            kernel.netlink.remove_route(route("fd00::/64")).expect("removed");
            check(&mut kernel, &["10.1.0.0/16", "10.2.0.0/16"], false);
            let ip = |arguments: &str| {
                let done = std::process::Command::new("ip").args(arguments.split(' ')).status();
                assert!(done.expect("ip is there").success(), "{arguments}");
            };
            ip("route add 203.0.113.0/24 via 192.0.2.9");
            check(&mut kernel, &["10.1.0.0/16", "10.2.0.0/16"], false);
            ip("route delete unreachable 10.1.0.0/16 metric 4278190080");
            check(&mut kernel, &["10.2.0.0/16"], true);
            ip("address add 192.0.2.77/32 dev lo");
            check(&mut kernel, &["10.2.0.0/16"], true);
            let gone = Netlink::open().and_then(|mut other| {
                other.remove_route(route("10.2.0.0/16")).map_err(|error| io::Error::other(error.to_string()))
            });
            gone.expect("another conversation of ours");
            check(&mut kernel, &[], true);
        })
        .expect("the namespace is there");
    }
}
