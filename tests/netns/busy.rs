//! The daemon starts and sets up tunnels on a machine where other programs keep all processors busy.

use crate::daemon::{Site, key_pair, lines};
use crate::ipsec::{Gateway, configuration};
use crate::support::{answers, sites};
use lab::{Lab, pin_thread, wait_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism, spawn};
use std::time::Duration;

/// Far more than it takes; a handshake thread of `SCHED_IDLE` takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A loop without end on every processor, until dropped.
struct Load {
    stop: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

impl Load {
    fn everywhere() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let processors = available_parallelism().expect("there is one").get();
        let busy = |processor| {
            let stop = Arc::clone(&stop);
            spawn(move || {
                // Where that is denied it runs somewhere.
                let _ = pin_thread(None, processor);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        Self { loops: (0..processors).map(busy).collect(), stop }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for busy in self.loops.drain(..) {
            let _ = busy.join();
        }
    }
}

fn comes_in_force(lab: &mut Lab, site: &mut Site) {
    site.spawn(lab);
    let said = || site.logged();
    wait_until(PATIENCE, || said().contains("is in force"))
        .unwrap_or_else(|error| panic!("{error}:\n{}", said()));
}

#[test]
fn wireguard_starts_and_shakes_hands_on_a_busy_machine() {
    let Some(mut lab) = sites() else { return };
    let (a_keys, b_keys) = (key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    a.write(&lines(0, &b_keys.1, &[]));
    b.write(&lines(1, &a_keys.1, &[]));
    let _load = Load::everywhere();
    comes_in_force(&mut lab, &mut a);
    comes_in_force(&mut lab, &mut b);
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a handshake");
}

#[test]
fn ipsec_starts_and_sets_up_on_a_busy_machine() {
    let Some(mut lab) = sites() else { return };
    let _load = Load::everywhere();
    for (site, end) in [("a", 0), ("b", 1)] {
        lab.ip(site, &format!("address add 10.{}0.0.1/32 dev lo", end + 1)).expect("an address");
    }
    let [a, b] = [("a", 0), ("b", 1)].map(|(site, end)| {
        let mut gateway = Gateway::new(&lab, site);
        // A group that costs much: a thread that gets 0.3 % of a processor would need a minute for it.
        gateway.write(&configuration(end).replace("dh-group 31", "dh-group 18"));
        comes_in_force(&mut lab, &mut gateway.0);
        gateway
    });
    for (gateway, name) in [(&a, "a"), (&b, "b")] {
        for peer in ["other", "second"] {
            wait_until(PATIENCE, || gateway.spis(peer).len() == 1)
                .unwrap_or_else(|error| panic!("{name}, {peer}: {error}"));
        }
    }
    wait_until(PATIENCE, || answers(&lab, "a", "10.20.0.1")).expect("packets pass");
}
