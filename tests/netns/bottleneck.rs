//! `show bottleneck`: each limit is made real, and must be named.

use crate::daemon::started;
use crate::ipsec;
use crate::support::{PATIENCE, answers, ask, unavailable};
use lab::{Lab, wait_until};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A datagram that makes a packet of nearly the MTU.
const DATAGRAM: [u8; 1300] = [0; 1300];

/// Sends to an address inside until `stop` is set, `packets` at once and then a pause.
fn send(lab: &Lab, to: &str, packets: usize, pause: Duration, core: Option<usize>, stop: &AtomicBool) {
    let to: SocketAddr = SocketAddr::new(to.parse().expect("literal"), 9);
    lab.enter("a", || {
        // On a busy machine, the sender would be the limit. It is this thread's priority alone.
        setpriority_process(None, -19).expect("root may");
        if let Some(core) = core {
            sched_setaffinity(None, &only(core)).expect("it is ours");
        }
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..packets {
                // The kernel refuses what its queue has no place for.
                let _ = socket.send_to(&DATAGRAM, to);
            }
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
    })
    .expect("it can be entered");
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// Two processors that this process may use.
fn two_cores() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).expect("the kernel tells");
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    Some([cores.next()?, cores.next()?])
}

/// A thread that carries packets.
fn thread(socket: &str, name: &str) -> Pid {
    let said = ask(&["show", "datapath", "threads", "--api", socket]);
    let threads = said["threads"].as_array().expect("a list");
    let thread = threads.iter().find(|thread| thread["name"] == name).expect("it is one of them");
    thread["id"].as_i64().and_then(|id| Pid::from_raw(id as i32)).expect("a number")
}

/// What limits an interface from inside to outside.
fn limit(socket: &str, interface: &str) -> Value {
    let all = ask(&["show", "bottleneck", interface, "--api", socket]);
    let out = all.as_array().expect("a list").iter().find(|it| it["direction"] == "out");
    out.expect("both directions are there").clone()
}

/// Waits until this is what limits the interface, while `traffic` goes on; the traffic is told when to stop.
fn becomes(socket: &str, interface: &str, expected: &str, traffic: impl Fn(&AtomicBool) + Sync) -> Value {
    let (stop, mut last) = (AtomicBool::new(false), Value::Null);
    std::thread::scope(|scope| {
        scope.spawn(|| traffic(&stop));
        let found = wait_until(2 * PATIENCE, || {
            last = limit(socket, interface);
            last["limit"] == expected
        });
        stop.store(true, Ordering::Relaxed);
        found.unwrap_or_else(|_| panic!("it is not {expected}: {last:#}"));
    });
    last
}

#[test]
fn a_tunnel_at_ease_is_not_the_limit_and_a_slow_link_is() {
    let Some((lab, a, _b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let socket = a.socket.to_string_lossy().into_owned();
    becomes(&socket, "wg0", "no-traffic", |_| ());
    let ease = |stop: &AtomicBool| send(&lab, "10.66.0.2", 1, Duration::from_millis(5), None, stop);
    let found = becomes(&socket, "wg0", "elsewhere", ease);
    assert!(found["packets_per_second"].as_f64().is_some_and(|rate| rate > 20.0), "{found:#}");
    assert_eq!(found["remedy"], Value::Null);

    let shaper = "qdisc add dev outside root tbf rate 5mbit burst 64k limit 32m";
    lab.run("a", "tc", &shaper.split(' ').collect::<Vec<_>>()).expect("the kernel has tbf");
    let flood = |stop: &AtomicBool| send(&lab, "10.66.0.2", 10, Duration::from_millis(2), None, stop);
    let found = becomes(&socket, "wg0", "path", flood);
    let evidence = found["evidence"].to_string();
    assert!(evidence.contains("lost") && evidence.contains("peer-congested"), "{found:#}");
    assert!(found["remedy"].as_str().is_some_and(|remedy| remedy.contains("tc qdisc")), "{found:#}");
}

#[test]
fn work_beside_the_gateway_is_named() {
    let Some([first, second]) = two_cores() else { return eprintln!("SKIPPED: it needs two processors") };
    let Some((lab, a, _b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let socket = a.socket.to_string_lossy().into_owned();
    sched_setaffinity(Some(thread(&socket, "wg0 out")), &only(first)).expect("root may");
    // More work than the worker's share of a processor, beside others that want all of it.
    let found = becomes(&socket, "wg0", "host", |stop| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    sched_setaffinity(None, &only(first)).expect("it is ours");
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            send(&lab, "10.66.0.2", 64, Duration::ZERO, Some(second), stop);
        });
    });
    assert!(found["waited"].as_f64().is_some_and(|waited| waited > 0.2), "{found:#}");
}

#[test]
fn a_slow_cipher_is_named() {
    let aes = "esp-group SITES proposal 1 encryption aes256gcm128";
    let triple_des =
        "esp-group SITES proposal 1 encryption 3des\nset vpn ipsec esp-group SITES proposal 1 hash sha1";
    let Some((lab, gateways)) = ipsec::started(|_, text| text.replace(aes, triple_des)) else { return };
    gateways[0].comes_up("other");
    let socket = gateways[0].0.socket.to_string_lossy().into_owned();
    // On a busy machine, others would be the limit.
    let worker = thread(&socket, "ipsec0 out").as_raw_nonzero().to_string();
    lab::run("chrt", ["-f", "-p", "1", &worker]).expect("root may");
    let flood = |stop: &AtomicBool| send(&lab, "10.20.0.1", 64, Duration::ZERO, None, stop);
    let found = becomes(&socket, "ipsec0", "cipher", flood);
    let stages = found["stages"].as_array().expect("a list");
    let encrypt = stages.iter().find(|stage| stage["stage"] == "encrypt").expect("it was timed");
    assert!(encrypt["share"].as_f64().is_some_and(|share| share > 0.5), "{found:#}");
}

/// Sends over a TCP connection from a to b until `stop` is set.
fn transfer(lab: &Lab, stop: &AtomicBool) {
    let listener = lab.enter("b", || TcpListener::bind("10.66.0.2:0")).expect("b").expect("a port");
    let to = listener.local_addr().expect("it has one");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut connection, _) = listener.accept().expect("a connection");
            std::io::copy(&mut connection, &mut std::io::sink())
        });
        lab.enter("a", || {
            let mut connection = TcpStream::connect(to).expect("the tunnel is there");
            connection.set_write_timeout(Some(Duration::from_secs(1))).expect("it has timeouts");
            while !stop.load(Ordering::Relaxed) {
                // A full buffer is what is wanted.
                let _ = connection.write(&[0; 10_000]);
            }
        })
        .expect("it can be entered");
    });
}

#[test]
fn losses_behind_the_gateway_are_seen_by_what_tcp_sends_again() {
    let Some((lab, a, b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let socket = a.socket.to_string_lossy().into_owned();
    // A policer on the way, which the gateway cannot see.
    for line in [
        "add table ip path",
        "add chain ip path policer { type filter hook prerouting priority -300; }",
        "add rule ip path policer iifname outside meta l4proto udp limit rate over 800 kbytes/second drop",
    ] {
        lab.run("b", "nft", &[line]).expect("the kernel has limits");
    }
    let found = becomes(&socket, "wg0", "loss", |stop| transfer(&lab, stop));
    let evidence = found["evidence"].to_string();
    assert!(evidence.contains("segments that were looked at"), "{found:#}");
    // The other end sees the same segments again, and drops nothing either.
    let other = b.socket.to_string_lossy().into_owned();
    assert_eq!(
        limit(&other, "wg0")["limit"],
        "no-traffic",
        "only acknowledgements, which stop with the transfer"
    );
}

#[test]
fn a_short_queue_into_the_tunnel_is_named() {
    let Some((lab, a, _b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let socket = a.socket.to_string_lossy().into_owned();
    lab.ip("a", "link set wg0 txqueuelen 4").expect("it has a queue");
    let bursts = |stop: &AtomicBool| send(&lab, "10.66.0.2", 200, Duration::from_millis(50), None, stop);
    let found = becomes(&socket, "wg0", "tun-queue", bursts);
    assert!(found["remedy"].as_str().is_some_and(|remedy| remedy.contains("txqueuelen")), "{found:#}");
}

/// A control group for processor time, which ends with this.
struct Group(PathBuf);

impl Group {
    /// One that may use 20% of a processor; none where the kernel has no such groups.
    fn slow() -> Option<Self> {
        let name = format!("postern-test-{}", std::process::id());
        let (first, second) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let is_first = first.join("cpu.cfs_quota_us").exists() || first.join("tasks").exists();
        if !is_first {
            // The groups below have a limit of processor time only if this one lends it to them.
            let _ = std::fs::write(second.join("cgroup.subtree_control"), "+cpu");
        }
        let path = if is_first { first } else { second }.join(name);
        std::fs::create_dir(&path).ok()?;
        let group = Self(path);
        let limit = if is_first { ("cpu.cfs_quota_us", "4000") } else { ("cpu.max", "4000 20000") };
        if is_first {
            std::fs::write(group.0.join("cpu.cfs_period_us"), "20000").ok()?;
        }
        std::fs::write(group.0.join(limit.0), limit.1).ok()?;
        Some(group)
    }

    /// Whether the groups are those of version 1.
    fn is_first(&self) -> bool {
        self.0.join("cpu.cfs_quota_us").exists()
    }

    /// Mounts the groups for a process: `ip netns exec` has hidden them from it.
    fn show_to(&self, process: u32) {
        let mount = if self.is_first() {
            "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu && mount -t cgroup -o cpu none /sys/fs/cgroup/cpu"
        } else {
            "mount -t cgroup2 none /sys/fs/cgroup"
        };
        lab::run("nsenter", ["-m", "-t", &process.to_string(), "sh", "-c", mount]).expect("root may");
    }

    fn add(&self, process: u32) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).expect("root may");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still be in it.
        let _ = wait_until(PATIENCE, || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_quota_of_processor_time_is_named() {
    let Some((lab, a, _b, _)) = started() else { return };
    let Some(group) = Group::slow() else {
        return unavailable("the kernel has no control groups for processor time");
    };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let socket = a.socket.to_string_lossy().into_owned();
    let daemon = a.process.expect("it was started").id();
    group.show_to(daemon);
    group.add(daemon);
    let flood = |stop: &AtomicBool| send(&lab, "10.66.0.2", 64, Duration::from_micros(200), None, stop);
    let found = becomes(&socket, "wg0", "quota", flood);
    assert!(found["remedy"].as_str().is_some_and(|remedy| remedy.contains("CPUQuota")), "{found:#}");
}
