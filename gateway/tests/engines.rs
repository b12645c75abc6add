//! A crypto engine fails under a running transfer, and not one packet is lost or wrong.

#[path = "../../crypto/tests/support/faulty.rs"]
mod faulty;
#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use config::Settings;
use crypto::Cipher;
use crypto::choice::{Choice, DEADLINE, Guarded, Health, Rules};
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, Key, LoadError, PairJob, PairKey};
use faulty::{FAILS, Faulty, STALLS, WORKS, WRONG};
use gateway::bed::Bed;
use gateway::daemon::engine_rules;
use packet::header::ip::Ipv4Header;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::v4;

/// Bursts sent in each state of the engine, and packets in each.
const BURSTS: usize = 30;
const PACKETS: usize = 40;

/// A packet that says which it is.
fn packet(number: usize) -> Vec<u8> {
    let mut packet = v4(1, 60 + number % 1300, 0);
    let (name, rest) = packet[Ipv4Header::LENGTH..].split_at_mut(8);
    name.copy_from_slice(&(number as u64).to_be_bytes());
    rest.fill(number as u8);
    packet
}

/// Waits until the engine is used again, and tries it as a daemon does every second; here no time need pass.
fn recovers(choice: &Choice) {
    for _ in 0..600 {
        if choice.health(1).0 == Health::Works {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
        choice.maintain();
    }
    panic!("the engine works, and is not used");
}

#[test]
fn no_packet_is_lost_or_wrong_while_an_engine_fails_and_recovers() {
    let faulty = Faulty::default();
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(Guarded::new(Arc::new(faulty.clone())))]);
    let pinned = [(Cipher::ChaCha20Poly1305.to_string(), "faulty".to_owned())].into();
    choice.set_rules(Rules { pinned, accelerators: true });
    let mut bed = Bed::new(&choice).expect("the engines have the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    let mut number = 0;
    for how in [WORKS, FAILS, WORKS, STALLS, WORKS, WRONG, WORKS] {
        faulty.how.store(how, Ordering::Relaxed);
        if how == WORKS {
            recovers(&choice);
        }
        let calls = faulty.calls.load(Ordering::Relaxed);
        for _ in 0..BURSTS {
            let sent: Vec<Vec<u8>> = (number..number + PACKETS).map(packet).collect();
            number += PACKETS;
            bed.inside.push(sent.iter().map(Vec::as_slice), None, 0);
            let (failures, begun) = (choice.health(1).1, Instant::now());
            bed.carry();
            if how == WORKS && choice.health(1).1 != failures {
                // On a busy machine a burst may be late, and only then an engine that works has failed.
                assert!(begun.elapsed() >= DEADLINE, "state {how}: it failed in time");
                recovers(&choice);
            }
            assert!(bed.received() == sent, "state {how}, up to packet {number}");
        }
        assert!(faulty.calls.load(Ordering::Relaxed) > calls, "state {how}: the engine was called");
        assert_eq!(choice.health(1).0 == Health::Works, how == WORKS, "state {how}");
    }
    assert_eq!(bed.dropped(), [], "{number} packets");
}

/// An engine under a name that a configuration may have.
struct Named(Faulty, &'static str);

impl Engine for Named {
    fn name(&self) -> &'static str {
        self.1
    }

    fn version(&self) -> String {
        self.0.version()
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        self.0.load(cipher, secret)
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        self.0.load_pair(pair, encryption, integrity)
    }
}

#[test]
fn a_pair_is_done_by_the_engine_that_the_configuration_names() {
    let engines = ["openssl", "ipsec-mb"].map(|name| (name, Faulty::default()));
    let [openssl, ipsec_mb] = engines.each_ref().map(|(_, faulty)| Arc::clone(&faulty.calls));
    let named = engines.into_iter().map(|(name, faulty)| Arc::new(Named(faulty, name)) as Arc<dyn Engine>);
    let choice = Choice::among([Arc::new(AwsLc) as Arc<dyn Engine>].into_iter().chain(named).collect());
    let pair = Pair { encryption: Encryption::AesCbc(32), integrity: Integrity::HmacSha256 };
    for (pinned, other, name) in [(&openssl, &ipsec_mb, "openssl"), (&ipsec_mb, &openssl, "ipsec-mb")] {
        let text = format!("set system crypto engine {pair} {name}");
        let (settings, _) = Settings::new(&config::parse(&text).expect("right")).expect("right");
        choice.set_rules(engine_rules(settings.crypto));
        let key = choice.load_pair(pair, &[3; 32], &[4; 32]).expect("all have it");
        let before = [pinned, other].map(|calls| calls.load(Ordering::Relaxed));
        let mut job = PairJob {
            iv: [0; 16],
            packet: &mut [0; 64],
            text: 0,
            suffix: &[],
            tag: &mut [0; 16],
            authentic: true,
        };
        assert!(key.seal(std::slice::from_mut(&mut job)).is_ok());
        let after = [pinned, other].map(|calls| calls.load(Ordering::Relaxed));
        assert_eq!(after, [before[0] + 1, before[1]], "pinned to {name}");
    }
}
