//! A crypto engine fails under real traffic between two gateways.

use crate::support::{PLAN, answers, daemon, dropped, sites, tcp_arrives_whole};
use crypto::choice::{Choice, Guarded, Health, Rules};
use crypto::engine::aws_lc::AwsLc;
use crypto::{Cipher, PrivateKey};
use faulty::{FAILS, FAILS_HALFWAY, Faulty, STALLS, WORKS, WRONG};
use gateway::tunnel_interface::{Counters, Options};
use gateway::wireguard::interface::Interface;
use gateway::wireguard::update::{AllowedIpUpdate, PeerUpdate, Snapshot, Update};
use lab::wireguard::{Gateway, private_key};
use lab::{Lab, wait_until};
use packet::DropReason;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

#[path = "../../crypto/tests/support/faulty.rs"]
mod faulty;

const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of one transfer.
const TRANSFER: usize = 8 << 20;

/// What the configuration says with `system acceleration qat`, and without.
fn rules(accelerators: bool) -> Rules {
    let pinned = [(Cipher::ChaCha20Poly1305.to_string(), "faulty".to_owned())].into();
    Rules { pinned, accelerators }
}

/// A gateway in this process, so that its engine can be told to fail.
struct Patient {
    interface: Interface,
    runtime: Runtime,
    engine: Faulty,
    choice: Arc<Choice>,
}

impl Patient {
    fn new(lab: &Lab, namespace: &str, name: &str) -> Self {
        let engine = Faulty { accelerator: true, ..Faulty::default() };
        let guarded = Guarded::new(Arc::new(engine.clone()));
        let choice = Arc::new(Choice::among(vec![Arc::new(AwsLc), Arc::new(guarded)]));
        choice.set_rules(rules(true));
        let (events, _) = tokio::sync::mpsc::unbounded_channel();
        let create = || Interface::create(name, choice.clone(), Options::default(), events);
        let interface = lab.enter(namespace, create).expect("entered").expect("TUN is there");
        let runtime = Builder::new_current_thread().build().expect("tokio starts");
        Self { interface, runtime, engine, choice }
    }

    fn join(&self, ours: &PrivateKey, theirs: &PrivateKey, inside: &str) {
        let mut peer = PeerUpdate::new(theirs.public());
        peer.endpoint = Some(SocketAddr::new(PLAN.outside[1].parse().expect("literal"), PLAN.port));
        peer.allowed_ips = vec![AllowedIpUpdate { remove: false, prefix: inside.parse().expect("literal") }];
        let update = Update {
            private_key: Some(ours.secret().clone()),
            listen_port: Some(PLAN.port),
            peers: vec![peer],
            ..Update::default()
        };
        self.runtime.block_on(self.interface.update(update)).expect("accepted");
    }

    fn snapshot(&self) -> Snapshot {
        self.runtime.block_on(self.interface.snapshot())
    }

    /// Fails in one way, and recovers once that was noticed.
    fn suffer(&self, how: u8) {
        self.engine.how.store(how, Ordering::Relaxed);
        wait_until(PATIENCE, || self.choice.health(1).0 != Health::Works).expect("it is noticed");
        self.engine.how.store(WORKS, Ordering::Relaxed);
        wait_until(PATIENCE, || {
            self.choice.maintain();
            self.choice.health(1).0 == Health::Works
        })
        .expect("it is tried again");
        let calls = self.engine.calls.load(Ordering::Relaxed);
        wait_until(PATIENCE, || self.engine.calls.load(Ordering::Relaxed) > calls + 10)
            .expect("it is used again");
    }

    /// Dropped packets, except those without a receiver.
    fn lost(&self) -> u64 {
        let reasons = DropReason::ALL.iter().filter(|reason| **reason != DropReason::NoRoute);
        reasons.flat_map(|&reason| self.interface.drops().read(reason)).sum()
    }
}

/// Bytes on the wire that one side has sent and the other has not received.
fn on_the_way(patient: &Patient, well: &Gateway) -> [i64; 2] {
    let counted = |key: &str| well.value(key).expect("it answers").expect("it is told").parse::<i64>();
    let [sent, received] = ["tx_bytes", "rx_bytes"].map(|key| counted(key).expect("a number"));
    let peer = &patient.snapshot().peers[0];
    [peer.sent_bytes as i64 - received, sent - peer.received_bytes as i64]
}

/// A tunnel between a gateway whose engine may fail and another one.
fn join(lab: &mut Lab) -> (Patient, Gateway) {
    let [ours, theirs] = [0, 1].map(|end| private_key(PLAN.port, end));
    let names = [lab.interface("i"), lab.interface("w")];
    let patient = Patient::new(lab, "a", &names[0]);
    patient.join(&ours, &theirs, "10.77.0.2/32");
    let well = Gateway::start(lab, &daemon(), "b", &names[1]).expect("it starts");
    well.set(&format!(
        "private_key={}\nlisten_port={}\npublic_key={}\nallowed_ip=10.77.0.1/32\n",
        base16ct::lower::encode_string(theirs.secret().expose()),
        PLAN.port,
        base16ct::lower::encode_string(&ours.public().0),
    ))
    .expect("accepted");
    for (end, namespace) in ["a", "b"].into_iter().enumerate() {
        let (name, address) = (&names[end], format!("10.77.0.{}/24", end + 1));
        lab.ip(namespace, &format!("address add {address} dev {name}")).expect("it is new");
        lab.ip(namespace, &format!("link set {name} up mtu 1420")).expect("it is there");
    }
    wait_until(PATIENCE, || answers(lab, "a", "10.77.0.2")).expect("a tunnel");
    (patient, well)
}

#[test]
fn an_engine_fails_under_a_transfer_and_no_packet_is_lost_or_wrong() {
    let Some(mut lab) = sites() else { return };
    let (patient, well) = join(&mut lab);
    let before = (patient.lost(), on_the_way(&patient, &well));
    let done = AtomicBool::new(false);
    let transfers = std::thread::scope(|scope| {
        let sick = scope.spawn(|| {
            for how in [FAILS, STALLS, WRONG, FAILS_HALFWAY] {
                patient.suffer(how);
            }
        });
        let transfers = scope.spawn(|| {
            let mut transfers = 0;
            while !done.load(Ordering::Relaxed) {
                tcp_arrives_whole(&lab, "a", "b", "10.77.0.2", TRANSFER).expect("out");
                tcp_arrives_whole(&lab, "b", "a", "10.77.0.1", TRANSFER).expect("back");
                transfers += 2;
            }
            transfers
        });
        let outcome = sick.join();
        done.store(true, Ordering::Relaxed);
        let transfers = transfers.join().expect("all of them arrive whole");
        outcome.expect("each failure is noticed and overcome");
        transfers
    });
    let (_, failures) = patient.choice.health(1);
    assert!(failures >= 4 && transfers >= 2, "{failures} failures, {transfers} transfers");
    assert_eq!(patient.lost(), before.0, "packets lost by the gateway with the engine");
    for reason in ["bad-tag", "engine-failed", "replayed", "counter-exhausted"] {
        assert_eq!(dropped(&well.interface, reason), 0, "{reason}");
    }
    wait_until(PATIENCE, || on_the_way(&patient, &well) == before.1).expect("what was sent was received");
}

/// What a reload does when `system acceleration qat` is set or deleted.
#[test]
fn an_accelerator_is_switched_on_and_off_under_a_transfer_and_no_packet_is_lost() {
    let Some(mut lab) = sites() else { return };
    let (patient, well) = join(&mut lab);
    let before = (patient.lost(), on_the_way(&patient, &well));
    let done = AtomicBool::new(false);
    let carried = || patient.choice.carried(1).expect("it is an accelerator")[0].packets;
    let sent = || patient.snapshot().peers[0].sent_bytes;
    let goes_on = || {
        let from = sent();
        wait_until(PATIENCE, || sent() > from + (1 << 20)).expect("packets go on");
    };
    std::thread::scope(|scope| {
        let transfers = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                tcp_arrives_whole(&lab, "a", "b", "10.77.0.2", TRANSFER).expect("out");
                tcp_arrives_whole(&lab, "b", "a", "10.77.0.1", TRANSFER).expect("back");
            }
        });
        let switches = scope.spawn(|| {
            for _ in 0..4 {
                let from = carried();
                wait_until(PATIENCE, || carried() > from).expect("the accelerator encrypts");
                patient.choice.set_rules(rules(false));
                // A burst may still be on its way through the accelerator.
                goes_on();
                let from = carried();
                goes_on();
                assert_eq!(carried(), from, "the processor encrypts");
                patient.choice.set_rules(rules(true));
            }
        });
        let outcome = switches.join();
        done.store(true, Ordering::Relaxed);
        transfers.join().expect("all of them arrive whole");
        outcome.expect("each switch has its effect");
    });
    assert_eq!(patient.lost(), before.0, "packets lost by the gateway with the accelerator");
    for reason in ["bad-tag", "engine-failed", "replayed", "counter-exhausted"] {
        assert_eq!(dropped(&well.interface, reason), 0, "{reason}");
    }
    wait_until(PATIENCE, || on_the_way(&patient, &well) == before.1).expect("what was sent was received");
}
