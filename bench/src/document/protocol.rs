//! The protocol of document 002: what is measured, in steps. Each step is measured at every device before the next.

use crate::rfc2544::{FrameSize, Plan, Protocol, Test};
use serde::Serialize;

/// A part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All measurements for each frame size: TCP frames in bursts of 64, both directions.
    FrameSizes,
    /// Bursts of 16, 256 and 1024.
    Bursts,
    /// One direction.
    Directions,
    /// UDP and ICMP.
    Traffic,
    /// One encryptor; the tester opens and seals ESP.
    Encryptor,
    /// Two encryptors in memory, without the kernel.
    Memory,
    /// Frames a CPU second of one encryptor that has more than it can carry, and without encryption.
    Overload,
}

impl Part {
    /// All parts in order.
    pub const ALL: [Self; 7] = [
        Self::FrameSizes,
        Self::Bursts,
        Self::Directions,
        Self::Traffic,
        Self::Encryptor,
        Self::Memory,
        Self::Overload,
    ];
}

/// What is between the ports of the tester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setup {
    /// Two encryptors and the wire between them.
    Pair,
    /// One encryptor.
    One,
    /// One gateway whose policies let all packets pass in clear.
    Bypass,
    /// Two encryptors in a thread of this process.
    Memory,
}

impl Setup {
    /// Whether it is one gateway, with two ports.
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::One | Self::Bypass)
    }
}

/// One step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub part: Part,
    pub setup: Setup,
    pub size: FrameSize,
    pub both: bool,
    pub protocol: Protocol,
    pub burst: u64,
    pub tests: Vec<Test>,
    /// Whether loss and delay at the rates of the document's figures are measured.
    pub is_fixed: bool,
}

impl Step {
    /// What a line of progress says.
    pub fn name(&self) -> String {
        let directions = if self.both { "both directions" } else { "one direction" };
        let protocol = format!("{:?}", self.protocol).to_uppercase();
        format!("{:?}: {}, {protocol}, bursts of {}, {directions}", self.part, self.size.name(), self.burst)
    }

    /// About how many seconds it takes at one device.
    pub fn estimate(&self, plan: &Plan) -> f64 {
        let has = |test| self.tests.contains(&test);
        let pause = plan.settle_seconds + plan.rest_seconds;
        let short = plan.search_seconds + pause;
        let last = plan.final_seconds.map_or(0.0, |seconds| 3.0 * (seconds + pause));
        let mut seconds = plan.searches as f64 * (20.0 * short + last);
        if has(Test::Latency) {
            seconds += (plan.latency_trials + 2) as f64 * (plan.latency_seconds + pause);
        }
        if has(Test::FrameLoss) {
            seconds += 8.0 * (plan.loss_seconds + pause);
        }
        if has(Test::BackToBack) {
            seconds += (12 * plan.bursts) as f64 * (plan.burst_seconds / 8.0 + pause);
        }
        seconds + if self.is_fixed { FIXED.len() as f64 * (plan.loss_seconds + pause) } else { 0.0 }
    }
}

/// Bits a second of the document's figures of loss.
pub(super) const FIXED: [f64; 2] = [1e8, 1e9];

/// The burst of the document.
const BURST: u64 = 64;

/// The steps: all sizes in the first part; in the others all with `is_full`, else the smallest and the mix of them.
pub(super) fn steps(is_full: bool, sizes: &[FrameSize], parts: &[Part]) -> Vec<Step> {
    let some = |wanted: &[FrameSize]| -> Vec<FrameSize> {
        sizes.iter().copied().filter(|size| is_full || sizes.len() < 3 || wanted.contains(size)).collect()
    };
    let (small, large) = (FrameSize::Bytes(64), FrameSize::Bytes(1518));
    let of = |part, setup, size| Step {
        part,
        setup,
        size,
        both: true,
        protocol: Protocol::Tcp,
        burst: BURST,
        tests: vec![Test::Latency],
        is_fixed: false,
    };
    let mut steps = Vec::new();
    for &part in parts {
        match part {
            Part::FrameSizes => {
                let tests = vec![Test::Latency, Test::FrameLoss, Test::BackToBack];
                let all = sizes.iter().map(|&size| of(part, Setup::Pair, size));
                steps.extend(all.map(|step| Step { tests: tests.clone(), is_fixed: true, ..step }));
            }
            Part::Bursts => {
                let of_size =
                    |size| [16, 256, 1024].map(|burst| Step { burst, ..of(part, Setup::Pair, size) });
                steps.extend(some(&[FrameSize::Imix]).into_iter().flat_map(of_size));
            }
            Part::Directions => {
                let of_size = |size| Step { both: false, ..of(part, Setup::Pair, size) };
                steps.extend(some(&[small, FrameSize::Imix]).into_iter().map(of_size));
            }
            Part::Traffic => {
                let protocols = [Protocol::Udp, Protocol::Icmp];
                let of_size =
                    |size| protocols.map(|protocol| Step { protocol, ..of(part, Setup::Pair, size) });
                steps.extend(some(&[small, FrameSize::Imix]).into_iter().flat_map(of_size));
            }
            Part::Encryptor => {
                let of_size = |size| [false, true].map(|both| Step { both, ..of(part, Setup::One, size) });
                steps.extend(some(&[small, FrameSize::Imix, large]).into_iter().flat_map(of_size));
            }
            Part::Memory => {
                let of_size = |size| of(part, Setup::Memory, size);
                steps.extend(some(&[small, FrameSize::Imix, large]).into_iter().map(of_size));
            }
            // It has no search and no calibration.
            Part::Overload => {}
        }
    }
    steps
}

/// Short trials, so that the whole protocol takes some minutes. Not those of the RFCs.
pub fn quick() -> Plan {
    Plan {
        search_seconds: 0.15,
        latency_seconds: 0.3,
        loss_seconds: 0.15,
        burst_seconds: 0.1,
        bursts: 1,
        precision: 0.05,
        settle_seconds: 0.05,
        rest_seconds: 0.02,
        ..Plan::quick()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_has_all_sizes_bursts_directions_and_kinds_of_traffic() {
        for is_full in [false, true] {
            let steps = steps(is_full, &FrameSize::ALL, &Part::ALL);
            let of = |part| steps.iter().filter(move |step| step.part == part);
            assert_eq!(of(Part::FrameSizes).map(|it| it.size).collect::<Vec<_>>(), FrameSize::ALL);
            let whole = |it: &Step| it.both && it.is_fixed && it.tests.len() == 3 && it.burst == 64;
            assert!(of(Part::FrameSizes).all(whole));
            let mut bursts: Vec<u64> = steps.iter().map(|it| it.burst).collect();
            bursts.sort_unstable();
            bursts.dedup();
            assert_eq!(bursts, [16, 64, 256, 1024]);
            assert!(of(Part::Directions).all(|it| !it.both) && of(Part::Directions).count() > 1);
            for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp] {
                assert!(steps.iter().any(|it| it.protocol == protocol && it.size == FrameSize::Imix));
            }
            let per_part = if is_full { 8 } else { 2 };
            assert_eq!(of(Part::Traffic).count(), 2 * per_part);
            assert_eq!(steps.iter().filter(|it| it.setup == Setup::One).count() % 2, 0);
        }
    }

    #[test]
    fn a_quick_run_beside_two_peers_takes_some_minutes_and_a_full_one_days() {
        let total = |is_full, plan: &Plan| -> f64 {
            let steps = steps(is_full, &FrameSize::ALL, &Part::ALL);
            steps.iter().map(|step| step.estimate(plan) * 3.0).sum()
        };
        let minutes = total(false, &quick()) / 60.0;
        assert!((3.0..10.0).contains(&minutes), "{minutes}");
        assert!(total(true, &Plan::full()) > 86_400.0);
    }
}
