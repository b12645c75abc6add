//! `postern bench ike`: IPsec peers connected per second on one core, and Child SAs rekeyed with a key exchange per
//! second, compared with strongSwan's charon. Also the cost of ten thousand peers.
//!
//! The simulated sites are the same for both gateways, run on another core, and are not part of the measurement. Their
//! CPU use is reported too, to show whether the gateway or the sites were the bottleneck.

use crate::Outcome;
use crate::report::{Machine, median, short, table};
use crate::sites::{self, Calls, Sites, Suite};
use crate::tunnel::progress_bar;
use lab::postern::Postern;
use lab::strongswan::{self, StrongSwan};
use lab::{Lab, Process, pin_thread, wait_until};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to measure.
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// Whether charon is measured too.
    pub with_charon: bool,
    /// The IKE proposals to test.
    pub suites: Vec<Suite>,
    /// Number of sites that connect in each round.
    pub setups: usize,
    /// Number of rounds per gateway.
    pub rounds: u32,
    /// Number of tunnels for the measurement of memory; 0 skips it.
    pub tunnels: usize,
    /// Whether to show progress.
    pub progress: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The version of charon, if it was measured.
    pub charon: Option<String>,
    /// Number of sites that connected in each round.
    pub setups: usize,
    /// IKE SA set-ups, by suite and gateway.
    pub rates: Vec<Rate>,
    /// Child SA rekeyings with PFS, by suite and gateway.
    pub rekeys: Vec<Rate>,
    /// The cost of many tunnels.
    pub tunnels: Option<Tunnels>,
}

/// Set-ups or rekeyings of one gateway with one suite.
#[derive(Debug, Serialize)]
pub struct Rate {
    /// The IKE proposal.
    pub suite: &'static str,
    /// The gateway.
    pub gateway: &'static str,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// One round: all sites connected, or rekeyed, once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Set-ups or rekeyings per second.
    pub rate: f64,
    /// CPU time of the gateway for each, in microseconds.
    pub cpu_us: f64,
    /// Number of sites that failed; should be 0.
    pub failed: usize,
    /// CPU use of the gateway, in percent of its core.
    pub busy: f64,
    /// CPU use of the sites, in percent of their core.
    pub sites_busy: f64,
}

/// The cost of many tunnels for Postern.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tunnels {
    /// Number of tunnels.
    pub count: usize,
    /// Seconds from the start of `postern run` until all peers are configured.
    pub start_seconds: f64,
    /// MiB of resident memory with one peer configured.
    pub memory_empty: f64,
    /// MiB with all peers configured.
    pub memory_configured: f64,
    /// MiB with an IKE SA and a Child SA for each.
    pub memory_established: f64,
    /// Seconds until all were established, on one core.
    pub setup_seconds: f64,
    /// CPU use at rest, in percent of a core.
    pub idle_percent: f64,
    /// Seconds to show all SAs.
    pub show_seconds: f64,
    /// Seconds until one more peer is configured by a reload.
    pub reload_seconds: f64,
}

/// The CPUs of the gateway and of the sites.
const CORES: [usize; 2] = [0, 1];
/// Number of concurrent set-ups: few enough that Postern does not require cookies.
const WINDOW: usize = 48;
/// Time limit of a round.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time limit for the start of a gateway.
const START: Duration = Duration::from_secs(120);

/// Charon's plugins, fastest first, with kernel-libipsec, its ESP in user space, which sends no packets here.
const PLUGINS: &str = "random nonce aesni aes sha1 sha2 hmac kdf openssl gcm curve25519 gmp pem pkcs1 pubkey \
    kernel-libipsec kernel-netlink socket-default vici";
/// Charon without limits for unauthenticated sources, and with tables for many SAs.
const CHARON: &str = "threads = 16\n init_limit_half_open = 0\n init_limit_job_load = 0\n cookie_threshold = 0\n \
    block_threshold = 0\n install_routes = no\n install_virtual_ip = no\n ikesa_table_size = 16384\n \
    ikesa_table_segments = 16\n half_open_timeout = 300\n";

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < CORES.len()) {
        return Err(
            "the gateway and the simulated sites need a core each, but this machine has only one".into()
        );
    }
    let rounds = options.suites.len() as u64 * u64::from(options.rounds);
    let progress = progress_bar(options.progress, rounds * (1 + u64::from(options.with_charon)) + 1);
    let mut lab = sites::lab()?;
    let (mut rates, mut rekeys) = (Vec::new(), Vec::new());
    for &suite in &options.suites {
        let gateways = [Gateway::Postern, Gateway::Charon];
        let empty =
            |gateway: &Gateway| Rate { suite: suite.name(), gateway: gateway.name(), rounds: Vec::new() };
        let gateways = &gateways[..=usize::from(options.with_charon)];
        let [mut found, mut rekeyed] = [(); 2].map(|()| gateways.iter().map(empty).collect::<Vec<Rate>>());
        for _ in 0..options.rounds {
            for (index, gateway) in gateways.iter().enumerate() {
                progress.set_message(format!("{} by {}", suite.name(), gateway.name()));
                let [set_ups, rekeyings] = round(&mut lab, options, *gateway, suite)?;
                found[index].rounds.push(set_ups);
                rekeyed[index].rounds.push(rekeyings);
                progress.inc(1);
            }
        }
        rates.extend(found);
        rekeys.extend(rekeyed);
    }
    progress.set_message(format!("{} tunnels", options.tunnels));
    let tunnels = (options.tunnels > 0).then(|| measure_tunnels(&mut lab, options)).transpose()?;
    progress.finish_and_clear();
    let charon = options.with_charon.then(strongswan::version);
    Ok(Report { machine: Machine::here(), charon, setups: options.setups, rates, rekeys, tunnels })
}

#[derive(Clone, Copy)]
enum Gateway {
    Postern,
    Charon,
}

impl Gateway {
    fn name(self) -> &'static str {
        match self {
            Self::Postern => "postern",
            Self::Charon => "charon",
        }
    }
}

/// Starts a gateway, connects and rekeys all sites, and stops it.
fn round(lab: &mut Lab, options: &Options, gateway: Gateway, suite: Suite) -> Outcome<[Round; 2]> {
    match gateway {
        Gateway::Postern => {
            let daemon = serving(options.setups, lab, options, suite)?;
            let rounds = call_and_rekey(lab, daemon.process, suite, options.setups);
            daemon.end(lab);
            rounds
        }
        Gateway::Charon => {
            let charon =
                StrongSwan::start_with(lab, "a", &sites::swanctl(suite), PLUGINS, CHARON, "default = -1")?;
            let rounds = call_and_rekey(lab, charon.process, suite, options.setups);
            // Kill it: deleting the SA of each site would only take time.
            charon.kill(lab);
            rounds
        }
    }
}

/// Connects all sites to a gateway.
fn call_all(lab: &Lab, gateway: Process, suite: Suite, count: usize) -> Outcome<Round> {
    gateway.pin(CORES[0])?;
    lab.enter("c", || {
        pin_thread(None, CORES[1])?;
        measured(gateway, &mut Sites::new(0..count, suite)?, Sites::call)
    })?
}

/// Connects all sites to a gateway, then rekeys them.
fn call_and_rekey(lab: &Lab, gateway: Process, suite: Suite, count: usize) -> Outcome<[Round; 2]> {
    gateway.pin(CORES[0])?;
    lab.enter("c", || {
        pin_thread(None, CORES[1])?;
        let mut sites = Sites::new(0..count, suite)?;
        Ok([measured(gateway, &mut sites, Sites::call)?, measured(gateway, &mut sites, Sites::rekey)?])
    })?
}

/// Runs an action of the sites and measures the gateway meanwhile.
fn measured(
    gateway: Process,
    sites: &mut Sites,
    action: fn(&mut Sites, usize, Duration) -> Outcome<Calls>,
) -> Outcome<Round> {
    let before = gateway.cpu_of_threads()?;
    let calls = action(sites, WINDOW, PATIENCE)?;
    if calls.connected == 0 {
        return Err(format!("all set-ups failed: {}", sites.failure().unwrap_or_default()).into());
    }
    let used = gateway.cpu_of_threads()?;
    let since = |(thread, used): (&String, &f64)| used - before.get(thread).unwrap_or(&0.0);
    let cpu: f64 = used.iter().map(since).sum();
    Ok(Round {
        rate: calls.connected as f64 / calls.seconds,
        cpu_us: cpu / calls.connected as f64 * 1e6,
        failed: calls.failed,
        busy: cpu / calls.seconds * 100.0,
        sites_busy: calls.own_seconds / calls.seconds * 100.0,
    })
}

/// Starts Postern with a configuration for this many sites.
fn serving(count: usize, lab: &mut Lab, options: &Options, suite: Suite) -> Outcome<Daemon> {
    Daemon::start(lab, &options.program, "a", &sites::configuration(suite, count))
}

/// A running Postern with its configuration file.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    gateway: Postern,
    /// Seconds from start until the first answer of the API.
    start_seconds: f64,
}

impl Daemon {
    pub(crate) fn start(lab: &mut Lab, program: &Path, namespace: &str, text: &str) -> Outcome<Self> {
        let mut gateway = Postern::new(lab, namespace, program)?;
        gateway.write(text);
        let started = Instant::now();
        let process = gateway.start(lab, "error", START)?;
        let mut daemon = Self { process, gateway, start_seconds: 0.0 };
        // The API answers once all peers are configured.
        wait_until(START, || daemon.show(program).is_ok())
            .map_err(|error| format!("postern run: {error}"))?;
        daemon.start_seconds = started.elapsed().as_secs_f64();
        Ok(daemon)
    }

    /// Shows all SAs; returns the seconds it takes.
    fn show(&self, program: &Path) -> Outcome<f64> {
        let (started, socket) = (Instant::now(), self.gateway.socket.to_string_lossy());
        let program = program.to_string_lossy();
        lab::run(&program, ["show", "vpn", "ipsec", "sa", "--json", "--api", &socket])?;
        Ok(started.elapsed().as_secs_f64())
    }

    fn memory(&self) -> Outcome<f64> {
        Ok(self.process.memory()? as f64 / f64::from(1 << 20))
    }

    pub(crate) fn end(self, lab: &mut Lab) {
        lab.kill(self.process, rustix::process::Signal::TERM);
    }
}

fn measure_tunnels(lab: &mut Lab, options: &Options) -> Outcome<Tunnels> {
    let suite = options.suites.first().copied().unwrap_or(Suite::CbcX25519);
    let one = serving(1, lab, options, suite)?;
    let memory_empty = one.memory()?;
    one.end(lab);
    let daemon = serving(options.tunnels, lab, options, suite)?;
    let memory_configured = daemon.memory()?;
    let round = call_all(lab, daemon.process, suite, options.tunnels)?;
    // Wait for work that is delayed after a set-up.
    std::thread::sleep(Duration::from_secs(3));
    let memory_established = daemon.memory()?;
    let before = daemon.process.cpu_seconds()?;
    std::thread::sleep(Duration::from_secs(10));
    let idle_percent = (daemon.process.cpu_seconds()? - before) * 10.0;
    let show_seconds = daemon.show(&options.program)?;
    let reload_seconds = reload(&daemon, suite, options)?;
    let start_seconds = daemon.start_seconds;
    daemon.end(lab);
    Ok(Tunnels {
        count: options.tunnels,
        start_seconds,
        memory_empty,
        memory_configured,
        memory_established,
        setup_seconds: options.tunnels as f64 / round.rate,
        idle_percent,
        show_seconds,
        reload_seconds,
    })
}

/// Adds a peer to the configuration; returns the seconds until it is shown.
fn reload(daemon: &Daemon, suite: Suite, options: &Options) -> Outcome<f64> {
    std::fs::write(&daemon.gateway.file, sites::configuration(suite, options.tunnels + 1))?;
    let pid = rustix::process::Pid::from_raw(daemon.process.id() as i32).ok_or("no process")?;
    let (started, program, socket) =
        (Instant::now(), options.program.to_string_lossy(), daemon.gateway.socket.to_string_lossy());
    rustix::process::kill_process(pid, rustix::process::Signal::HUP)?;
    let last = format!("site{}", options.tunnels);
    wait_until(START, || {
        let peer = ["show", "vpn", "ike", "sa", "peer", &last, "--api", &socket];
        lab::run(&program, peer).is_ok()
    })?;
    Ok(started.elapsed().as_secs_f64())
}

impl Rate {
    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(&self.rounds.iter().map(of).collect::<Vec<_>>())
    }
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = self.machine.head();
        if let Some(charon) = &self.charon {
            let _ = writeln!(text, "charon: {charon}, kernel-libipsec");
        }
        if !self.rates.is_empty() {
            let _ = write!(text, "{} set-ups per round, one core for the gateway, medians\n\n", self.setups);
            text += &Self::rates_text(&self.rates, "set-ups/s");
            let _ = write!(text, "\none rekeying of each Child SA with PFS in the same group, medians\n\n");
            text += &Self::rates_text(&self.rekeys, "rekeys/s");
        }
        if let Some(tunnels) = &self.tunnels {
            let _ = write!(
                text,
                "\n{} tunnels, an IKE SA and a Child SA each\n\n{}",
                tunnels.count,
                tunnels.text()
            );
        }
        text
    }

    fn rates_text(rates: &[Rate], unit: &str) -> String {
        let head = ["IKE SA", "", unit, "CPU us each", "busy %", "sites busy %", "refused", "rate", "CPU"];
        let rows: Vec<Vec<String>> = rates.iter().map(|rate| Self::row(rates, rate)).collect();
        table(&head, &rows)
    }

    /// The row of a gateway. The ratios are Postern's value divided by this gateway's.
    fn row(rates: &[Rate], rate: &Rate) -> Vec<String> {
        let ours = rates.iter().find(|it| it.suite == rate.suite).expect("it is among them");
        let ratio = |of: fn(&Round) -> f64| {
            if std::ptr::eq(ours, rate) {
                String::new()
            } else {
                short(ours.median(of) / rate.median(of)) + "x"
            }
        };
        let numbers: [fn(&Round) -> f64; 4] =
            [|it| it.rate, |it| it.cpu_us, |it| it.busy, |it| it.sites_busy];
        let mut row = vec![rate.suite.to_owned(), rate.gateway.to_owned()];
        row.extend(numbers.map(|of| short(rate.median(of))));
        row.push(rate.rounds.iter().map(|round| round.failed).sum::<usize>().to_string());
        row.extend([ratio(numbers[0]), ratio(numbers[1])]);
        row
    }
}

impl Tunnels {
    fn text(&self) -> String {
        let row = |name: &str, value: f64, unit: &str| vec![name.to_owned(), short(value), unit.to_owned()];
        let each = (self.memory_established - self.memory_empty) * 1024.0 / self.count as f64;
        table(
            &["", "", "unit"],
            &[
                row("postern run with a file of all peers", self.start_seconds, "s"),
                row("one more peer, after SIGHUP", self.reload_seconds, "s"),
                row("memory, one peer configured", self.memory_empty, "MiB"),
                row("memory, all peers configured", self.memory_configured, "MiB"),
                row("memory, all established", self.memory_established, "MiB"),
                row("memory per tunnel", each, "KiB"),
                row("all established within", self.setup_seconds, "s"),
                row("CPU at rest", self.idle_percent, "% of a core"),
                row("show vpn ipsec sa", self.show_seconds, "s"),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(gateway: &'static str, rate: f64, cpu_us: f64) -> Rate {
        let round = Round { rate, cpu_us, failed: 0, busy: 99.0, sites_busy: 50.0 };
        Rate { suite: "a", gateway, rounds: vec![round; 3] }
    }

    #[test]
    fn ratios_are_posterns_value_divided_by_the_others() {
        let machine = Machine::example();
        let rates = vec![rate("postern", 6000.0, 150.0), rate("charon", 2000.0, 500.0)];
        let report = Report { machine, charon: None, setups: 1, rates, rekeys: Vec::new(), tunnels: None };
        let rows: Vec<Vec<String>> =
            report.rates.iter().map(|rate| Report::row(&report.rates, rate)).collect();
        assert_eq!(rows[0][2..], ["6000", "150", "99.0", "50.0", "0", "", ""].map(str::to_owned));
        assert_eq!(rows[1][7..], ["3.00x", "0.30x"].map(str::to_owned));
    }
}
