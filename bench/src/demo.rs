//! `postern demo`: two sites on this machine, with a tunnel between them and real TCP traffic through it.

use crate::Outcome;
use crate::report::{Machine, short, table};
use indicatif::{ProgressBar, ProgressStyle};
use lab::Lab;
use lab::traffic::{self, RoundTrips, Transfer};
use lab::wireguard::{Daemon, Plan, Tunnel};
use std::time::Duration;

/// The measurements of one path between the sites.
struct Measured {
    transfers: [Transfer; 2],
    gateways_cpu: Option<f64>,
    idle: RoundTrips,
    loaded: RoundTrips,
}

/// Creates the sites, measures without and with the tunnel, `seconds` per transfer, and prints a table.
pub fn run(seconds: u32) -> Outcome<()> {
    println!("{}", Machine::here().head());
    println!("  site a                                             site b");
    println!("  10.77.0.1 ─ postern ══ 192.168.77.1 ─── 192.168.77.2 ══ postern ─ 10.77.0.2\n");
    let mut lab = Lab::new(&["a", "b"])?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))?;
    let plan = Plan { name: "wg", ..Plan::SITES };
    let tunnel = Tunnel::start(&mut lab, &Daemon::Postern(std::env::current_exe()?), &plan)?;
    traffic::serve(&mut lab, "b")?;
    println!("two namespaces, a link, two gateways: the tunnel is up\n");
    let without = measure(&lab, "without the tunnel", "192.168.77.2", None, seconds)?;
    let with = measure(&lab, "through the tunnel", &tunnel.inside[1], Some(&tunnel), seconds)?;
    println!("\n{}", show(&without, &with));
    Ok(())
}

fn measure(lab: &Lab, what: &str, to: &str, tunnel: Option<&Tunnel>, seconds: u32) -> Outcome<Measured> {
    let style = ProgressStyle::with_template("{prefix:>18}  {spinner} {msg}").expect("a literal template");
    let bar = ProgressBar::new_spinner().with_style(style).with_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.set_message("round trips, idle");
    let idle = traffic::ping(lab, "a", to, 100, Duration::from_millis(10))?;
    let before = tunnel.map(Tunnel::cpu_seconds).transpose()?;
    bar.set_message(format!("TCP, 1 stream, {seconds} s"));
    let one = traffic::tcp(lab, "a", to, 1, false, seconds)?;
    bar.set_message(format!("TCP, 4 streams, {seconds} s; 1 stream: {:.2} Gbit/s", one.gigabits()));
    let four = traffic::tcp(lab, "a", to, 4, false, seconds)?;
    let after = tunnel.map(Tunnel::cpu_seconds).transpose()?;
    let gigabytes = (one.bytes + four.bytes) / 1e9;
    let gateways_cpu = before.zip(after).map(|(before, after)| (after - before) / gigabytes);
    bar.set_message(format!("round trips under load; 4 streams: {:.2} Gbit/s", four.gigabits()));
    let loaded = std::thread::scope(|scope| {
        let load = scope.spawn(|| traffic::tcp(lab, "a", to, 1, false, 4).map_err(|error| error.to_string()));
        std::thread::sleep(Duration::from_millis(500));
        let times = traffic::ping(lab, "a", to, 150, Duration::from_millis(20));
        load.join().map_err(|_| "the load failed")??;
        times
    })?;
    bar.finish_with_message(format!("{:.2} Gbit/s, {:.2} ms", one.gigabits(), idle.quantile(0.5)));
    Ok(Measured { transfers: [one, four], gateways_cpu, idle, loaded })
}

fn show(without: &Measured, with: &Measured) -> String {
    let cpu = |measured: &Measured| measured.gateways_cpu.map_or_else(|| "-".to_owned(), short);
    let row = |name: &str, unit: &str, value: &dyn Fn(&Measured) -> String| {
        vec![name.to_owned(), unit.to_owned(), value(without), value(with)]
    };
    let rows = [
        row("TCP, 1 stream", "Gbit/s", &|measured| short(measured.transfers[0].gigabits())),
        row("TCP, 4 streams", "Gbit/s", &|measured| short(measured.transfers[1].gigabits())),
        row("CPU of both gateways", "s/GB", &cpu),
        row("round trip, idle", "ms", &|measured| short(measured.idle.quantile(0.5))),
        row("round trip, loaded", "ms", &|measured| short(measured.loaded.quantile(0.5))),
    ];
    table(&["", "unit", "without", "tunnel"], &rows)
}
