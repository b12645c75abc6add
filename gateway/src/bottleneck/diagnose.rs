//! From two readings to the limit of each direction of an interface.

use super::Reading;
use super::difference::{busy, lost, segments, shares};
use super::host::Shares;
use super::words::{percent, rate};
use crate::api::model::{Bottleneck, Drop, Limit, OffloadState, StageShare, Worker};
use crate::datapath::{decrypt, encrypt};
use crate::ipsec;
use crate::thread_name::thread_name;
use crate::tunnel_interface::{MOST_RECEIVING, worker_name};

/// A worker that runs, or waits for a processor, for this part of the time has no reserve.
const SATURATED: f64 = 0.85;
/// Of a saturated worker's time: from here on, waiting for a processor is what limits it.
const WAITS: f64 = 0.2;
/// From this part of all processor time on, the hypervisor is what limits.
const STOLEN: f64 = 0.1;
/// From this part of the stages' time on, the cipher is what limits.
const CIPHER: f64 = 0.5;
/// The part of all packets from which on drops are the limit.
const LOST: f64 = 0.01;
/// Packets a second below which there is no traffic to speak of.
const QUIET: f64 = 10.0;
/// Below this mean length in bytes, packets are small.
const SMALL: f64 = 300.0;
/// From this part of the periods on, the quota of the control group is what limits.
const THROTTLED: f64 = 0.1;
/// The part of all TCP segments from which on those that are sent again show a limit.
const RESENT: f64 = 0.002;
/// As few may be sent again without a limit: at the start of a connection, for example.
const FEW: u64 = 3;
/// Processors that must be idle for a further thread to help.
const SPARE: f64 = 0.5;

/// The threads of a direction: the names that follow that of the interface.
const DIRECTIONS: [(&str, &[&str]); 2] = [("out", &["out"]), ("in", &["in", "raw", "tcp"])];

/// What limits each interface in each direction, from a reading and another one some time later.
pub fn diagnose(before: &Reading, after: &Reading) -> Vec<Bottleneck> {
    let interfaces =
        after.workers.iter().filter(|worker| worker.worker == "out").map(|worker| &worker.interface);
    let seen = interfaces.flat_map(|interface| {
        DIRECTIONS.map(|(direction, roles)| Seen::between(before, after, interface, direction, roles))
    });
    seen.map(Seen::conclude).collect()
}

/// What was seen of a direction of an interface.
struct Seen<'a> {
    after: &'a Reading,
    interface: &'a str,
    direction: &'static str,
    /// The busiest thread.
    thread: String,
    load: f64,
    waited: f64,
    packets: f64,
    bytes: f64,
    stages: Vec<StageShare>,
    /// Packets that were lost a second, by reason, the most first.
    lost: Vec<(&'a Drop, f64)>,
    processors: Option<Shares>,
    /// The part of the periods in which the daemon had used up its share of processor time.
    throttled: f64,
    /// TCP segments that were seen, and those among them that were sent before.
    segments: [u64; 2],
}

/// A conclusion: the limit in a sentence, and what to do about it.
struct Conclusion {
    limit: Limit,
    sentence: String,
    remedy: Option<String>,
}

impl<'a> Seen<'a> {
    fn between(
        before: &'a Reading,
        after: &'a Reading,
        interface: &'a str,
        direction: &'static str,
        roles: &[&str],
    ) -> Self {
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        // Those of further receiving threads have numbers.
        let names = roles.iter().flat_map(|role| {
            let number = move |number| thread_name(interface, &worker_name(role, number));
            (0..MOST_RECEIVING).map(number)
        });
        let busiest = names
            .filter_map(|name| busy(before, after, &name, seconds))
            .max_by(|one, other| (one.1 + one.2).total_cmp(&(other.1 + other.2)));
        let (thread, load, waited) = busiest.unwrap_or_else(|| (thread_name(interface, direction), 0.0, 0.0));
        let is_of = |worker: &&Worker| {
            let way = worker.worker.split(' ').next();
            worker.interface == interface && way == Some(direction)
        };
        let of_all = |reading: &Reading, count: fn(&Worker) -> u64| {
            reading.workers.iter().filter(is_of).map(count).sum::<u64>()
        };
        let since = |count: fn(&Worker) -> u64| {
            of_all(after, count).saturating_sub(of_all(before, count)) as f64 / seconds
        };
        let processors = after.processors.zip(before.processors).and_then(|(now, then)| now.since(then));
        Self {
            after,
            interface,
            direction,
            thread,
            load,
            waited,
            packets: since(|worker| worker.received_packets),
            bytes: since(|worker| worker.received_bytes),
            stages: shares(before, after, interface, direction),
            lost: lost(before, after, interface, direction, seconds),
            processors,
            throttled: after
                .throttled
                .as_ref()
                .zip(before.throttled.as_ref())
                .map_or(0.0, |(now, then)| now.since(then)),
            segments: segments(before, after, interface, direction),
        }
    }

    fn conclude(self) -> Bottleneck {
        let Conclusion { limit, sentence, remedy } = self.limit();
        Bottleneck {
            interface: self.interface.to_owned(),
            direction: self.direction.to_owned(),
            limit,
            sentence,
            evidence: self.evidence(limit),
            remedy,
            packets_per_second: self.packets,
            bits_per_second: 8.0 * self.bytes,
            load: self.load,
            waited: self.waited,
            stages: self.stages,
        }
    }

    fn limit(&self) -> Conclusion {
        let lost: f64 = self.lost.iter().map(|(_, rate)| rate).sum();
        if self.throttled >= THROTTLED && self.packets + lost >= QUIET {
            return self.kept_by_quota();
        }
        if self.load + self.waited >= SATURATED {
            return self.saturated();
        }
        if self.packets + lost < QUIET {
            let sentence = format!("{} carries no traffic worth speaking of {}.", self.interface, self.way());
            return Conclusion { limit: Limit::NoTraffic, sentence, remedy: None };
        }
        if let Some(conclusion) = self.losing().or_else(|| self.resending()) {
            return conclusion;
        }
        let sentence = format!(
            "Nothing in the gateway limits {} {}: its busiest thread used {} of a processor. The limit is the sender, the path or the peer.",
            self.interface,
            self.way(),
            percent(self.load),
        );
        Conclusion { limit: Limit::Elsewhere, sentence, remedy: None }
    }

    /// The limit of a worker that has no reserve.
    fn saturated(&self) -> Conclusion {
        let (name, way) = (self.interface, self.way());
        if let Some(shares) = self.processors.filter(|shares| shares.stolen >= STOLEN) {
            return Conclusion {
                limit: Limit::Hypervisor,
                sentence: format!(
                    "The hypervisor limits {name} {way}: it took {} of the time of this machine's processors.",
                    percent(shares.stolen)
                ),
                remedy: Some(
                    "ask for processors of its own, or move the machine to a less busy host".to_owned(),
                ),
            };
        }
        if self.waited >= WAITS * (self.load + self.waited) {
            return self.kept_waiting();
        }
        match self.cipher() {
            Some(cipher) if cipher.share >= CIPHER => Conclusion {
                limit: Limit::Cipher,
                sentence: format!(
                    "The cipher limits {name} {way}: {} takes {} of the time of a thread that has no reserve.",
                    cipher.stage,
                    percent(cipher.share)
                ),
                remedy: Some(self.faster_cipher()),
            },
            _ => Conclusion {
                limit: Limit::OneCore,
                sentence: format!(
                    "One processor limits {name} {way}: a thread has no reserve{}.",
                    self.largest().map_or_else(String::new, |stage| format!(
                        ", and {} takes most of its time, {}",
                        stage.stage,
                        percent(stage.share)
                    ))
                ),
                remedy: self.cheaper_packets(),
            },
        }
    }

    /// The limit of a worker that others keep from running.
    fn kept_waiting(&self) -> Conclusion {
        if self.is_spare() {
            return self.kept_beside_idle();
        }
        Conclusion {
            limit: Limit::Host,
            sentence: format!(
                "Other work on this machine limits {} {}: its thread waited for a processor {} of the time.",
                self.interface,
                self.way(),
                percent(self.waited)
            ),
            remedy: Some(
                "top shows what else runs; move it elsewhere, or let it wait: systemctl set-property postern CPUWeight=1000"
                    .to_owned(),
            ),
        }
    }

    /// The limit of a worker that waits while a processor has nothing to do, where the counts of its group cannot be read.
    fn kept_beside_idle(&self) -> Conclusion {
        Conclusion {
            limit: Limit::Quota,
            sentence: format!(
                "A quota or a pinning limits {} {}: its thread waited for a processor {} of the time, and processors were idle.",
                self.interface,
                self.way(),
                percent(self.waited)
            ),
            remedy: Some(
                "look at the quota of the daemon's control group (systemctl show postern -p CPUQuotaPerSecUSec, or the limit of its container), and at postern show datapath threads"
                    .to_owned(),
            ),
        }
    }

    /// Whether a processor has time for a further thread.
    fn is_spare(&self) -> bool {
        self.processors.is_some_and(|shares| shares.idle * shares.count as f64 >= SPARE)
    }

    /// The limit of a daemon that the kernel does not let run.
    fn kept_by_quota(&self) -> Conclusion {
        Conclusion {
            limit: Limit::Quota,
            sentence: format!(
                "The quota of the daemon's control group limits {} {}: its share of processor time was used up in {} of the periods.",
                self.interface,
                self.way(),
                percent(self.throttled)
            ),
            remedy: Some(
                "give it more or none: systemctl set-property postern CPUQuota=, or the processor limit of its container"
                    .to_owned(),
            ),
        }
    }

    /// The limit that TCP has met elsewhere.
    fn resending(&self) -> Option<Conclusion> {
        let [all, resent] = self.segments;
        if resent < FEW || (resent as f64) < RESENT * all as f64 {
            return None;
        }
        let (name, way) = (self.interface, self.way());
        let (place, ask) = if self.direction == "out" {
            (
                "behind this gateway: on the path, at the peer or beyond",
                "ask the gateway at the other end: postern show bottleneck there; ",
            )
        } else {
            (
                "in front of this gateway, or in the network inside",
                "ask the gateway at the other end and look at the links inside; ",
            )
        };
        Some(Conclusion {
            limit: Limit::Loss,
            sentence: format!(
                "Losses limit {name} {way}: {:.1}% of TCP's segments came again or out of order: packets are lost or overtaken {place}{}.",
                100.0 * resent as f64 / all as f64,
                if self.lost.is_empty() { "" } else { ", beside those that are dropped here" }
            ),
            remedy: Some(format!(
                "{ask}if a link on the way is slower than the senders, shape to its speed in front of it (tc qdisc)"
            )),
        })
    }

    /// The limit that losses name.
    fn losing(&self) -> Option<Conclusion> {
        let &(drop, rate_lost) = self.lost.first()?;
        if rate_lost < LOST * (self.packets + rate_lost) {
            return None;
        }
        let (name, way, lost) = (self.interface, self.way(), rate(rate_lost, "packets/s"));
        let conclude = |limit, sentence, remedy: &str| {
            Some(Conclusion { limit, sentence, remedy: Some(remedy.to_owned()).filter(|it| !it.is_empty()) })
        };
        let is_queue = drop.reason.ends_with("-full") && drop.reason != "tcp-queue-full";
        if is_queue && self.waited >= WAITS {
            // A queue is full because nothing empties it.
            return Some(self.kept_waiting());
        }
        match drop.reason.as_str() {
            "peer-congested" | "tcp-queue-full" | "send-failed" => conclude(
                Limit::Path,
                format!(
                    "The link outside limits {name} {way}: it took less than was to be sent, and {lost} were dropped."
                ),
                "shape what enters the tunnel to the speed of the link (tc qdisc), or get a faster link",
            ),
            "inside-queue-full" => conclude(
                Limit::TunQueue,
                format!(
                    "The queue into {name} limits it: packets came in bursts that are longer, and {lost} were dropped."
                ),
                &format!("ip link set {name} txqueuelen 5000"),
            ),
            reason if reason.ends_with("-full") && reason.contains("socket") => conclude(
                Limit::SocketBuffer,
                format!(
                    "The receive buffer of the socket limits {name} {way}: packets came in bursts that are longer, and {lost} were dropped."
                ),
                "look for what keeps the thread from running: postern show datapath threads",
            ),
            "too-big" => conclude(
                Limit::Mtu,
                format!(
                    "The MTU limits {name} {way}: {lost} were longer than the tunnel carries, and their senders do not react."
                ),
                "lower the MTU of the hosts, or have the MSS of TCP clamped: ip adjust-mss clamp-mss-to-pmtu",
            ),
            reason => conclude(
                Limit::Drops,
                format!("Drops limit {name} {way}: {lost} were dropped as {reason}: {}.", drop.meaning),
                "postern show drops",
            ),
        }
    }

    fn way(&self) -> &'static str {
        if self.direction == "out" { "from inside to outside" } else { "from outside to inside" }
    }

    /// The stage that seals or opens.
    fn cipher(&self) -> Option<&StageShare> {
        self.stages.iter().find(|stage| [encrypt::STAGE.name, decrypt::STAGE.name].contains(&&*stage.stage))
    }

    fn largest(&self) -> Option<&StageShare> {
        self.stages.iter().max_by(|one, other| one.share.total_cmp(&other.share))
    }

    /// The mean length of received packets in bytes.
    fn length(&self) -> f64 {
        if self.packets > 0.0 { self.bytes / self.packets } else { 0.0 }
    }

    fn faster_cipher(&self) -> String {
        let has_threads =
            self.after.handoffs.iter().any(|it| it.interface == self.interface && it.crypto_threads > 0);
        if !has_threads
            && self.is_spare()
            && let Some(place) = threads_of(self.interface)
        {
            return format!("a processor is idle: set {place} threads auto");
        }
        match &self.after.pinned[..] {
            [] => "postern show crypto shows what each cipher and engine costs here: agree on a faster one with the peer".to_owned(),
            pinned => format!(
                "postern show crypto shows whether another engine is faster; pinned: {}; to let the measurement choose: {}",
                pinned.join(", "),
                pinned.iter().map(|cipher| format!("delete system crypto engine {cipher}")).collect::<Vec<_>>().join("; ")
            ),
        }
    }

    fn cheaper_packets(&self) -> Option<String> {
        let off = self.after.offloads.iter().filter(|it| it.interface == self.interface);
        let off: Vec<&str> =
            off.filter(|it| it.state == OffloadState::SwitchedOff).map(|it| &*it.offload).collect();
        if !off.is_empty() {
            return Some(format!("offloads are switched off: {}; see postern show offloads", off.join(", ")));
        }
        if self.length() < SMALL {
            return Some(format!(
                "packets have {:.0} bytes in the mean, and each costs the same: let applications send longer ones",
                self.length()
            ));
        }
        None
    }

    fn evidence(&self, limit: Limit) -> Vec<String> {
        let mut evidence = vec![format!(
            "thread {}: ran {} of the time, waited for a processor {}",
            self.thread,
            percent(self.load),
            percent(self.waited)
        )];
        if self.packets > 0.0 {
            let (packets, bits) = (rate(self.packets, "packets/s"), rate(8.0 * self.bytes, "bit/s"));
            evidence.push(format!("received {packets}, {bits}, {:.0} bytes a packet", self.length()));
        }
        let total: f64 = self.stages.iter().map(|stage| stage.nanoseconds).sum();
        if total > 0.0 && limit != Limit::NoTraffic {
            let mut sorted: Vec<&StageShare> = self.stages.iter().collect();
            sorted.sort_by(|one, other| other.share.total_cmp(&one.share));
            let most = sorted.iter().take(3).map(|stage| format!("{} {}", stage.stage, percent(stage.share)));
            let most: Vec<String> = most.collect();
            evidence.push(format!("stages: {total:.0} ns a packet, most in {}", most.join(", ")));
        }
        if let [all @ 1..=u64::MAX, resent] = self.segments {
            evidence.push(format!("TCP: {resent} of {all} segments that were looked at were sent again"));
        }
        if self.throttled > 0.0 {
            evidence.push(format!(
                "the quota of its group was used up in {} of the periods",
                percent(self.throttled)
            ));
        }
        for (drop, lost) in self.lost.iter().take(3) {
            evidence.push(format!("lost {} as {}", rate(*lost, "packets/s"), drop.reason));
        }
        if let Some(shares) = self.processors {
            let (idle, stolen) = (percent(shares.idle), percent(shares.stolen));
            evidence
                .push(format!("{} processors: {idle} idle, {stolen} taken by the hypervisor", shares.count));
        }
        evidence
    }
}

/// Where the threads of an interface are configured.
fn threads_of(interface: &str) -> Option<String> {
    match interface {
        ipsec::NAME => Some("vpn ipsec".to_owned()),
        _ if interface.starts_with("wg") => Some(format!("interfaces wireguard {interface}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
