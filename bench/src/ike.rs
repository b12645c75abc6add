//! `postern bench ike`: how many IPsec peers a gateway sets up in a second on one core, and how many Child SAs it rekeys with a
//! key exchange, beside strongSwan's charon; and what it holds with ten thousand peers.
//!
//! The sites that call are the same for both, run on another core, and are no part of what is measured; how busy they were
//! is reported, so that it is seen whether the gateway was waited for or they were.

use crate::Outcome;
use crate::report::{Machine, median, short, table};
use crate::sites::{self, Calls, Sites, Suite};
use crate::tunnel::progress_bar;
use lab::strongswan::{self, StrongSwan};
use lab::{Lab, Process, pin_thread, wait_until};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What to measure.
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// Whether charon is measured too.
    pub with_charon: bool,
    /// What the IKE SAs are made of.
    pub suites: Vec<Suite>,
    /// Sites that call in each round.
    pub setups: usize,
    /// How often each gateway is called.
    pub rounds: u32,
    /// Tunnels whose memory is measured; none is measured with 0.
    pub tunnels: usize,
    /// Whether to show progress.
    pub progress: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// The version of charon, if it was measured.
    pub charon: Option<String>,
    /// Sites that called in each round.
    pub setups: usize,
    /// The set-ups with each suite by each gateway.
    pub rates: Vec<Rate>,
    /// The rekeyings of a Child SA with PFS, by the same.
    pub rekeys: Vec<Rate>,
    /// What many tunnels cost.
    pub tunnels: Option<Tunnels>,
}

/// A gateway's set-ups or rekeyings with one suite.
#[derive(Debug, Serialize)]
pub struct Rate {
    /// What the IKE SAs were made of.
    pub suite: &'static str,
    /// Which gateway.
    pub gateway: &'static str,
    /// Each round.
    pub rounds: Vec<Round>,
}

/// All sites called, or rekeyed, once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Set-ups or rekeyings a second.
    pub rate: f64,
    /// Microseconds of processor time that the gateway has used for each.
    pub cpu_us: f64,
    /// Sites that were refused, of which there should be none.
    pub failed: usize,
    /// Share of its core that it has used, in percent.
    pub busy: f64,
    /// Share of their core that the sites have used, in percent.
    pub sites_busy: f64,
}

/// What many tunnels cost our gateway.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tunnels {
    /// How many.
    pub count: usize,
    /// Seconds from the start of `postern run` until it serves all peers.
    pub start_seconds: f64,
    /// MiB of resident memory with one peer configured.
    pub memory_empty: f64,
    /// MiB with all peers configured.
    pub memory_configured: f64,
    /// MiB with an IKE SA and a Child SA for each.
    pub memory_established: f64,
    /// Seconds until all were established, on one core.
    pub setup_seconds: f64,
    /// Share of one core used at rest, in percent.
    pub idle_percent: f64,
    /// Seconds that `show` of all SAs takes.
    pub show_seconds: f64,
    /// Seconds until a configuration with one more peer is in force.
    pub reload_seconds: f64,
}

/// The core of the gateway, and that of the sites.
const CORES: [usize; 2] = [0, 1];
/// So many sites call at once: fewer than make our gateway ask for cookies.
const WINDOW: usize = 48;
/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a gateway may take until it can be called.
const START: Duration = Duration::from_secs(120);

/// Charon's fastest plugins first, and only its built-in kernel interface, which sends no packets.
const PLUGINS: &str = "random nonce aesni aes sha1 sha2 hmac kdf openssl gcm curve25519 gmp pem pkcs1 pubkey \
    kernel-libipsec kernel-netlink socket-default vici";
/// Nothing that slows unauthenticated sources down, and tables for many SAs.
const CHARON: &str = "threads = 16\n init_limit_half_open = 0\n init_limit_job_load = 0\n cookie_threshold = 0\n \
    block_threshold = 0\n install_routes = no\n install_virtual_ip = no\n ikesa_table_size = 16384\n \
    ikesa_table_segments = 16\n half_open_timeout = 300\n";

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < CORES.len()) {
        return Err("the gateway and its callers need a core each, and this machine has one".into());
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

/// Starts a gateway, has all sites call it and rekey, and ends it.
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
            // Deleting the SA of each site would only take time.
            charon.kill(lab);
            rounds
        }
    }
}

/// Has all sites call a gateway.
fn call_all(lab: &Lab, gateway: Process, suite: Suite, count: usize) -> Outcome<Round> {
    gateway.pin(CORES[0])?;
    lab.enter("c", || {
        pin_thread(None, CORES[1])?;
        measured(gateway, &mut Sites::new(0..count, suite)?, Sites::call)
    })?
}

/// The same, and then has them rekey.
fn call_and_rekey(lab: &Lab, gateway: Process, suite: Suite, count: usize) -> Outcome<[Round; 2]> {
    gateway.pin(CORES[0])?;
    lab.enter("c", || {
        pin_thread(None, CORES[1])?;
        let mut sites = Sites::new(0..count, suite)?;
        Ok([measured(gateway, &mut sites, Sites::call)?, measured(gateway, &mut sites, Sites::rekey)?])
    })?
}

/// What the gateway uses while the sites do something.
fn measured(
    gateway: Process,
    sites: &mut Sites,
    action: fn(&mut Sites, usize, Duration) -> Outcome<Calls>,
) -> Outcome<Round> {
    let before = gateway.cpu_of_threads()?;
    let calls = action(sites, WINDOW, PATIENCE)?;
    if calls.connected == 0 {
        return Err(format!("all calls failed: {}", sites.failure().unwrap_or_default()).into());
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

/// Our gateway, which serves this many sites.
fn serving(count: usize, lab: &mut Lab, options: &Options, suite: Suite) -> Outcome<Daemon> {
    Daemon::start(lab, &options.program, "a", &sites::configuration(suite, count))
}

/// Our gateway with a configuration file.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    socket: PathBuf,
    file: PathBuf,
    /// Seconds until it served.
    start_seconds: f64,
}

impl Daemon {
    pub(crate) fn start(lab: &mut Lab, program: &Path, namespace: &str, text: &str) -> Outcome<Self> {
        let name = lab.interface(&format!("ike-{namespace}-"));
        let file = std::env::temp_dir().join(format!("{name}.conf"));
        let socket = std::env::temp_dir().join(format!("{name}.sock"));
        std::fs::write(&file, text)?;
        let started = Instant::now();
        let mut command = lab.command(namespace, program);
        command.args(["run", "--config"]).arg(&file).arg("--api").arg(&socket).env("LOG_LEVEL", "error");
        let process = lab.start(command.stdout(Stdio::null()))?;
        let mut daemon = Self { process, socket, file, start_seconds: 0.0 };
        // What it is asked for after the peers is answered when it has them.
        wait_until(START, || daemon.socket.exists() && daemon.show(program).is_ok())
            .map_err(|error| format!("postern run: {error}"))?;
        daemon.start_seconds = started.elapsed().as_secs_f64();
        Ok(daemon)
    }

    /// Shows all SAs; the seconds that it takes.
    fn show(&self, program: &Path) -> Outcome<f64> {
        let (started, socket) = (Instant::now(), self.socket.to_string_lossy());
        let program = program.to_string_lossy();
        lab::run(&program, ["show", "vpn", "ipsec", "sa", "--json", "--api", &socket])?;
        Ok(started.elapsed().as_secs_f64())
    }

    fn memory(&self) -> Outcome<f64> {
        Ok(self.process.memory()? as f64 / f64::from(1 << 20))
    }

    pub(crate) fn end(self, lab: &mut Lab) {
        lab.kill(self.process, rustix::process::Signal::TERM);
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(&self.socket);
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
    // What is done a while after a set-up is not rest yet.
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

/// Has one more peer configured; the seconds until it is shown.
fn reload(daemon: &Daemon, suite: Suite, options: &Options) -> Outcome<f64> {
    std::fs::write(&daemon.file, sites::configuration(suite, options.tunnels + 1))?;
    let pid = rustix::process::Pid::from_raw(daemon.process.id() as i32).ok_or("no process")?;
    let (started, program, socket) =
        (Instant::now(), options.program.to_string_lossy(), daemon.socket.to_string_lossy());
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
    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = self.machine.head();
        if let Some(charon) = &self.charon {
            let _ = writeln!(text, "charon: {charon}, kernel-libipsec");
        }
        if !self.rates.is_empty() {
            let _ = write!(text, "{} set-ups a round, one core for the gateway, medians\n\n", self.setups);
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

    /// A gateway's row; the ratios are those of ours to this one.
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
                row("postern run with a file of them", self.start_seconds, "s"),
                row("one more peer, after SIGHUP", self.reload_seconds, "s"),
                row("memory, one peer configured", self.memory_empty, "MiB"),
                row("memory, all peers configured", self.memory_configured, "MiB"),
                row("memory, all established", self.memory_established, "MiB"),
                row("memory of each", each, "KiB"),
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
    fn ratios_are_of_ours_to_the_other() {
        let machine = Machine::example();
        let rates = vec![rate("postern", 6000.0, 150.0), rate("charon", 2000.0, 500.0)];
        let report = Report { machine, charon: None, setups: 1, rates, rekeys: Vec::new(), tunnels: None };
        let rows: Vec<Vec<String>> =
            report.rates.iter().map(|rate| Report::row(&report.rates, rate)).collect();
        assert_eq!(rows[0][2..], ["6000", "150", "99.0", "50.0", "0", "", ""].map(str::to_owned));
        assert_eq!(rows[1][7..], ["3.00x", "0.30x"].map(str::to_owned));
    }
}
