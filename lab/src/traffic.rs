//! Generates traffic: iperf3 for throughput, a download by HTTP, ping for round-trip times.

use crate::Outcome;
use crate::{Lab, Process, wait_until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Starts the iperf3 server of a namespace.
pub fn serve(lab: &mut Lab, namespace: &str) -> Outcome<Process> {
    let mut command = lab.command(namespace, "iperf3");
    command.arg("--server").stdout(Stdio::null()).stderr(Stdio::null());
    let server = lab.start(&mut command)?;
    let listening = || {
        let sockets = lab.run(namespace, "ss", &["-ltnH", "sport = :5201"]);
        sockets.is_ok_and(|text| !text.trim().is_empty())
    };
    wait_until(Duration::from_secs(5), listening)
        .map_err(|error| format!("iperf3 does not listen: {error}"))?;
    Ok(server)
}

/// The result of a TCP or UDP measurement.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Duration in seconds.
    pub seconds: f64,
    /// Payload bytes received.
    pub bytes: f64,
    /// UDP: datagrams received.
    pub packets: f64,
    /// TCP: retransmitted segments.
    pub retransmits: f64,
}

impl Transfer {
    /// Payload throughput in Gbit/s.
    pub fn gigabits(&self) -> f64 {
        self.bytes * 8.0 / 1e9 / self.seconds
    }

    /// Thousands of datagrams per second.
    pub fn kilopackets(&self) -> f64 {
        self.packets / 1e3 / self.seconds
    }
}

/// Measures TCP with this many streams to the server, or from it if `reverse`.
pub fn tcp(lab: &Lab, from: &str, to: &str, streams: u32, reverse: bool, seconds: u32) -> Outcome<Transfer> {
    let (seconds, streams) = (seconds.to_string(), streams.to_string());
    let mut arguments = vec!["--client", to, "--time", &seconds, "--parallel", &streams, "--json"];
    if reverse {
        arguments.push("--reverse");
    }
    let report = report(lab, from, &arguments)?;
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    Ok(Transfer {
        seconds: number("/end/sum_received/seconds"),
        bytes: number("/end/sum_received/bytes"),
        packets: 0.0,
        retransmits: number("/end/sum_sent/retransmits"),
    })
}

/// Measures TCP with one stream; returns the throughput in Gbit/s of each fifth of a second.
pub fn tcp_by_interval(lab: &Lab, from: &str, to: &str, seconds: u32) -> Outcome<Vec<f64>> {
    let seconds = seconds.to_string();
    let report = report(lab, from, &["--client", to, "--time", &seconds, "--interval", "0.2", "--json"])?;
    let intervals = report.pointer("/intervals").and_then(Value::as_array).cloned().unwrap_or_default();
    let speed = |interval: &Value| interval.pointer("/sum/bits_per_second").and_then(Value::as_f64);
    Ok(intervals.iter().filter_map(speed).map(|bits| bits / 1e9).collect())
}

/// Measures UDP datagrams with this payload, sent as fast as possible.
pub fn udp(lab: &Lab, from: &str, to: &str, payload: u32, seconds: u32) -> Outcome<Transfer> {
    let (seconds, payload) = (seconds.to_string(), payload.to_string());
    let arguments =
        ["--client", to, "--udp", "--bitrate", "0", "--length", &payload, "--time", &seconds, "--json"];
    let report = report(lab, from, &arguments)?;
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let packets = number("/end/sum/packets") - number("/end/sum/lost_packets");
    Ok(Transfer {
        seconds: number("/end/sum/seconds"),
        bytes: packets * number("/start/test_start/blksize"),
        packets,
        retransmits: 0.0,
    })
}

/// Measures a download by HTTP: `to` has the server, which sends for this time.
pub fn http(lab: &Lab, from: &str, to: (&str, &str), seconds: u32) -> Outcome<Transfer> {
    let (namespace, address) = to;
    let listener = lab.enter(namespace, || TcpListener::bind((address, 0)))??;
    let port = listener.local_addr()?.port();
    let limit = Duration::from_secs(seconds.into());
    std::thread::scope(|scope| {
        let server = scope.spawn(move || send_body(&listener, limit));
        let received = lab.enter(from, || download((address, port)));
        if received.as_ref().is_err() || received.as_ref().is_ok_and(Result::is_err) {
            // The server may still wait for a connection.
            let _ = lab.enter(namespace, || TcpStream::connect((address, port)));
        }
        let sent = server.join().map_err(|_| "the server panicked")?;
        let transfer = received??;
        sent?;
        Ok(transfer)
    })
}

/// Answers one request with a body that goes on for `limit`.
fn send_body(listener: &TcpListener, limit: Duration) -> std::io::Result<()> {
    let (mut client, _) = listener.accept()?;
    let _ = client.read(&mut [0; 1024])?;
    client.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n",
    )?;
    let (begun, block) = (Instant::now(), vec![0x55; 256 << 10]);
    while begun.elapsed() < limit {
        client.write_all(&block)?;
    }
    Ok(())
}

/// Requests a body, and reads it to its end.
fn download(server: (&str, u16)) -> std::io::Result<Transfer> {
    let mut server = TcpStream::connect(server)?;
    server.write_all(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")?;
    let (begun, mut block, mut bytes) = (Instant::now(), vec![0; 256 << 10], 0);
    loop {
        match server.read(&mut block)? {
            0 => break,
            length => bytes += length,
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Transfer { seconds, bytes: bytes as f64, packets: 0.0, retransmits: 0.0 })
}

fn report(lab: &Lab, from: &str, arguments: &[&str]) -> Outcome<Value> {
    let text = lab.run(from, "iperf3", arguments)?;
    let report: Value = serde_json::from_str(&text)?;
    match report.get("error").and_then(Value::as_str) {
        Some(error) => Err(format!("iperf3: {error}").into()),
        None => Ok(report),
    }
}

/// Round-trip times in milliseconds, ascending.
#[derive(Clone, Debug)]
pub struct RoundTrips(Vec<f64>);

impl RoundTrips {
    /// The quantile of the round-trip times; 0.5 is the median.
    pub fn quantile(&self, share: f64) -> f64 {
        let index = ((self.0.len() as f64 * share) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }
}

/// Sends `count` echo requests at this interval.
pub fn ping(lab: &Lab, from: &str, to: &str, count: u32, interval: Duration) -> Outcome<RoundTrips> {
    let (count, interval) = (count.to_string(), format!("{:.3}", interval.as_secs_f64()));
    let text = lab.run(from, "ping", &["-c", &count, "-i", &interval, "-W", "2", to])?;
    let time = |line: &str| line.split("time=").nth(1)?.split_whitespace().next()?.parse::<f64>().ok();
    let mut times: Vec<f64> = text.lines().filter_map(time).collect();
    times.sort_by(f64::total_cmp);
    Ok(RoundTrips(times))
}
