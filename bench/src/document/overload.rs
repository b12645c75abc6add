//! Frames a CPU second under overload: what a device forwards in the processor time that it has, beside ipsec-secgw and beside itself
//! without encryption.
//!
//! ```text
//! tester:t0 ── p0 [encryptor or bypass] u0 ── t1:tester     one direction: frames in clear, ESP behind the device
//! ```
//! On two cores no tester is faster than a device that has a core for itself, and a device that polls uses all of its core whatever it
//! carries. So signals let the device run in a share of the time only. Its rings are then full: none waits, and each forwards as fast as it
//! can. The time is that of the scheduler for the threads of the device. NAPI is deferred at all ports.

use super::device::{Device, Kind, exact_cpu_seconds, signal};
use super::protocol::Setup;
use super::{Bench, quick};
use crate::Outcome;
use crate::report::{median, short, table};
use crate::rfc2544::session::Session;
use crate::rfc2544::text::{grouped, percent};
use crate::rfc2544::trial::Purpose;
use crate::rfc2544::{FrameSize, Plan, Protocol};
use lab::{Process, pin_thread};
use rustix::process::Signal;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The sizes, unless others are wanted.
const SIZES: [FrameSize; 3] = [FrameSize::Bytes(64), FrameSize::Imix, FrameSize::Bytes(1418)];
/// Windows of each device and size.
const ROUNDS: usize = 9;
/// How long a window is.
const SECONDS: f64 = 1.0;
/// How long a device runs and rests in turn.
const RUNS: Duration = Duration::from_millis(1);
const RESTS: Duration = Duration::from_millis(3);
/// Less loss may be none of overload.
const LEAST_LOSS: f64 = 0.05;

/// One window of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// The frame size.
    pub size: String,
    /// The program.
    pub device: String,
    /// Whether it encrypts, or lets all pass.
    pub setup: Setup,
    /// Frames that the tester sent.
    pub sent: u64,
    /// Frames that arrived whole; ESP was opened.
    pub forwarded: u64,
    /// Frames that arrived otherwise.
    pub corrupted: u64,
    /// Processor time of the device, in user and in kernel mode, with that of softirqs which ran while it was running.
    pub cpu_seconds: f64,
    /// Softirq time of the tester's core, where frames are received for a device that does not poll its NAPI; in steps of 10 ms.
    pub tester_softirq_seconds: f64,
    /// Time that the hypervisor took from all cores, in milliseconds.
    pub steal_ms: f64,
}

impl Window {
    /// Frames that arrived whole, for a second of processor time.
    pub fn frames_per_cpu_second(&self) -> f64 {
        self.forwarded as f64 / self.cpu_seconds
    }

    fn loss(&self) -> f64 {
        1.0 - self.forwarded as f64 / self.sent.max(1) as f64
    }

    fn name(&self) -> String {
        if self.setup == Setup::Bypass { format!("{}, bypass", self.device) } else { self.device.clone() }
    }
}

impl Bench<'_> {
    /// Measures all devices that are one gateway, in alternation.
    pub(super) fn overload(&mut self) -> Outcome<Vec<Window>> {
        let sizes = &self.options.sizes;
        let sizes = if sizes[..] == FrameSize::ALL { &SIZES[..] } else { &sizes[..] };
        let mut devices = std::mem::take(&mut self.devices);
        let mut windows = Vec::new();
        let cores = [self.options.tester_core, self.options.device_core];
        for device in devices.iter().filter(|device| device.setup.is_single()) {
            device.defer_napi(true)?;
        }
        for &size in sizes {
            self.say(&format!("Overload: {}, UDP, one direction", size.name()));
            for round in 0..ROUNDS {
                let single = devices.iter_mut().filter(|device| device.setup.is_single());
                let mut turn: Vec<&mut Device> = single.collect();
                if round % 2 == 1 {
                    turn.reverse();
                }
                for device in turn {
                    windows.push(window(device, size, cores)?);
                }
            }
        }
        for device in devices.iter().filter(|device| device.setup.is_single()) {
            device.defer_napi(false)?;
        }
        self.devices = devices;
        Ok(windows)
    }
}

/// One window, after a short one that fills the caches.
fn window(device: &mut Device, size: FrameSize, [tester, core]: [usize; 2]) -> Outcome<Window> {
    let processes = device.processes();
    let session = &mut device.session;
    session.load(Protocol::Udp, false, size);
    let plan = Plan { burst: 64, settle_seconds: 0.002, rest_seconds: 0.0, ..quick() };
    let run =
        |session: &mut Session, seconds| session.trial(&plan, Purpose::FrameLoss, f64::INFINITY, seconds);
    let (trial, cpu_seconds, softirq) = throttled(&processes, core, || {
        run(session, SECONDS / 10.0)?;
        let before = (exact_cpu_seconds(&processes)?, softirq_seconds(tester)?);
        let trial = run(session, SECONDS)?;
        let after = (exact_cpu_seconds(&processes)?, softirq_seconds(tester)?);
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((trial, after.0 - before.0, after.1 - before.1))
    })?;
    Ok(Window {
        size: size.name(),
        device: device.kind.name().to_owned(),
        setup: device.setup,
        sent: trial.counts.sent,
        forwarded: trial.counts.received,
        corrupted: trial.counts.corrupted,
        cpu_seconds,
        tester_softirq_seconds: softirq,
        steal_ms: trial.disturbance.steal_ms,
    })
}

/// Lets processes run in a share of the time as long as `work` lasts; then they rest.
fn throttled<T>(processes: &[Process], core: usize, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The tester never leaves its core.
            let _ = pin_thread(None, core);
            while !is_done.load(Ordering::Relaxed) {
                signal(processes, Signal::CONT);
                std::thread::sleep(RUNS);
                signal(processes, Signal::STOP);
                std::thread::sleep(RESTS);
            }
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        result
    })
}

/// Softirq time of a core so far: the seventh number of its line in /proc/stat (proc(5)).
fn softirq_seconds(core: usize) -> Outcome<f64> {
    let ticks = softirq_ticks(&std::fs::read_to_string("/proc/stat")?, core);
    let ticks = ticks.ok_or_else(|| format!("/proc/stat: no softirq time of core {core}"))?;
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

fn softirq_ticks(stat: &str, core: usize) -> Option<f64> {
    let name = format!("cpu{core} ");
    stat.lines().find_map(|line| line.strip_prefix(&name))?.split_whitespace().nth(6)?.parse().ok()
}

/// The windows of one device with one size, in the order of the rounds.
fn of<'a>(windows: &'a [Window], size: &str, device: &str, setup: Setup) -> Vec<&'a Window> {
    windows.iter().filter(|it| it.size == size && it.device == device && it.setup == setup).collect()
}

/// The median of the ratios of the first to the second in the same rounds; not a number if one was not measured.
fn ratio(first: &[&Window], second: &[&Window]) -> f64 {
    let pairs = first.iter().zip(second);
    median(&pairs.map(|(a, b)| a.frames_per_cpu_second() / b.frames_per_cpu_second()).collect::<Vec<_>>())
}

/// The tables.
pub(super) fn text(windows: &[Window]) -> String {
    let mut text = format!(
        "\nOverload: UDP, one direction, NAPI deferred at all ports; each device runs {:.0}% of the time. Medians of {ROUNDS} windows.\n\
         CPU: of the device, user and system; softirq: of the tester's core, which receives for a device that does not poll NAPI.\n",
        RUNS.as_secs_f64() / (RUNS + RESTS).as_secs_f64() * 100.0
    );
    let mut sizes: Vec<&str> = windows.iter().map(|it| it.size.as_str()).collect();
    sizes.dedup();
    let devices = [
        (Kind::Postern.name(), Setup::One),
        (Kind::IpsecSecgw.name(), Setup::One),
        (Kind::Postern.name(), Setup::Bypass),
    ];
    let groups =
        sizes.iter().flat_map(|size| devices.map(|(device, setup)| of(windows, size, device, setup)));
    let rows: Vec<Vec<String>> = groups.filter_map(|group| row(&group)).collect();
    let head = [
        "frame",
        "device",
        "frames/CPU s",
        "spread",
        "frames/s",
        "sent/s",
        "lost",
        "CPU",
        "softirq",
        "steal ms",
        "",
    ];
    text += &table(&head, &rows);
    for size in sizes {
        let [ours, peer, bypass] = devices.map(|(device, setup)| of(windows, size, device, setup));
        let _ = writeln!(
            text,
            "frames per CPU second, {size}: postern to ipsec-secgw {}x, to its own bypass {}x",
            short(ratio(&ours, &peer)),
            short(ratio(&ours, &bypass)),
        );
    }
    text
}

/// The medians of the windows of one device and size; none if it was not measured.
fn row(windows: &[&Window]) -> Option<Vec<String>> {
    let first = windows.first()?;
    let middle = |value: fn(&Window) -> f64| median(&windows.iter().map(|it| value(it)).collect::<Vec<_>>());
    let rates = || windows.iter().map(|it| it.frames_per_cpu_second());
    let corrupted: u64 = windows.iter().map(|it| it.corrupted).sum();
    let remark = if corrupted > 0 {
        format!("{corrupted} corrupted")
    } else if middle(Window::loss) < LEAST_LOSS {
        "not overloaded".to_owned()
    } else {
        String::new()
    };
    Some(vec![
        first.size.clone(),
        first.name(),
        grouped(middle(Window::frames_per_cpu_second)),
        format!("{} to {}", grouped(rates().fold(f64::MAX, f64::min)), grouped(rates().fold(0.0, f64::max))),
        grouped(middle(|it| it.forwarded as f64 / SECONDS)),
        grouped(middle(|it| it.sent as f64 / SECONDS)),
        percent(middle(Window::loss)),
        format!("{:.0}%", middle(|it| it.cpu_seconds / SECONDS) * 100.0),
        format!("{:.0}%", middle(|it| it.tester_softirq_seconds / SECONDS) * 100.0),
        short(windows.iter().map(|it| it.steal_ms).sum()),
        remark,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(device: Kind, setup: Setup, forwarded: u64) -> Window {
        Window {
            size: "64".to_owned(),
            device: device.name().to_owned(),
            setup,
            sent: 1_000_000,
            forwarded,
            corrupted: 0,
            cpu_seconds: 0.25,
            tester_softirq_seconds: 0.1,
            steal_ms: 0.0,
        }
    }

    #[test]
    fn devices_are_compared_within_rounds() {
        let mut windows = Vec::new();
        for factor in [1, 2, 4] {
            windows.push(example(Kind::Postern, Setup::One, 120_000 * factor));
            windows.push(example(Kind::IpsecSecgw, Setup::One, 100_000 * factor));
            windows.push(example(Kind::Postern, Setup::Bypass, 240_000 * factor));
        }
        let text = text(&windows);
        assert!(text.contains("64: postern to ipsec-secgw 1.20x, to its own bypass 0.50x"), "{text}");
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        let peer = line(" ipsec-secgw  ");
        assert!(peer.contains(" 800,000 ") && peer.contains("400,000 to 1,600,000"), "{text}");
        windows[2].corrupted = 7;
        assert!(super::text(&windows).contains("7 corrupted"));
        let whole = [example(Kind::Postern, Setup::One, 999_000)];
        assert!(
            super::text(&whole).contains("not overloaded") && super::text(&whole).contains("ipsec-secgw -x")
        );
    }

    #[test]
    fn softirq_time_of_a_core_is_read_from_procfs() {
        let stat = "cpu  1 2 3 4 5 6 7 8\ncpu1 0 0 0 0 0 1 70 0\ncpu10 0 0 0 0 0 1 5 0\n";
        assert_eq!([1, 10, 2].map(|core| softirq_ticks(stat, core)), [Some(70.0), Some(5.0), None]);
        assert!(softirq_seconds(0).is_ok());
    }
}
