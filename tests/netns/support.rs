//! What the tests have in common: two sites, and real data between them.

use bench::Outcome;
use lab::wireguard::{Daemon, Plan, Tunnel};
use lab::{Lab, Process, wait_until};
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

/// How long anything may take that should not take long: machines that run tests are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test.
pub fn postern() -> PathBuf {
    env!("CARGO_BIN_EXE_postern").into()
}

/// The daemon under test.
pub fn daemon() -> Daemon {
    Daemon::Postern(postern())
}

/// Reports a test that cannot run because root, or a program that `make setup` installs, is missing.
///
/// The test passes, unless NO_SKIP is set: then it fails. The report bypasses the capture of the test harness, which would
/// hide it, and is one write, because tests run side by side.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set, and {test} cannot run: {reason}");
    unavailable(reason);
}

/// Reports a test that cannot run because of the kernel, the hardware or the caller's environment, which no set-up changes.
pub fn unavailable(reason: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = std::io::stderr().write_all(format!("SKIPPED {test}: {reason}\n").as_bytes());
}

/// Namespaces can be made only by root; without it a test says so and passes.
pub fn lab(names: &[&str]) -> Option<Lab> {
    if !rustix::process::geteuid().is_root() {
        skip("needs root to make network namespaces");
        return None;
    }
    Some(Lab::new(names).expect("root can make namespaces"))
}

/// Two namespaces with a link between them.
pub fn sites() -> Option<Lab> {
    sites_and(&[])
}

/// The same, and other namespaces.
pub fn sites_and(others: &[&str]) -> Option<Lab> {
    let lab = lab(&[&["a", "b"], others].concat())?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))
        .expect("veth exists");
    for (site, end) in [("a", 1), ("b", 2)] {
        lab.ip(site, &format!("address add fd77::{end}/64 dev outside nodad")).expect("IPv6 exists");
    }
    Some(lab)
}

/// The usual tunnel between the sites.
pub const PLAN: Plan<'static> = Plan::SITES;

/// Two sites and a tunnel between them.
pub fn joined(extra: &[&str]) -> Option<(Lab, Tunnel)> {
    let mut lab = sites()?;
    let daemon = daemon();
    let tunnel = Tunnel::start_between(&mut lab, [&daemon, &daemon], &PLAN, extra).expect("a tunnel");
    Some((lab, tunnel))
}

/// Bytes that are different everywhere.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(count).collect()
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Sends so many bytes by TCP from one site to an address at the other, and tells whether the same bytes arrived.
pub fn tcp_arrives_whole(lab: &Lab, from: &str, to: &str, address: &str, count: usize) -> Outcome<()> {
    tcp_arrives_whole_at(lab, from, to, [address; 2], count)
}

/// The same, to a site that has the first of the addresses, and is called by the second.
pub fn tcp_arrives_whole_at(
    lab: &Lab,
    from: &str,
    to: &str,
    [address, called]: [&str; 2],
    count: usize,
) -> Outcome<()> {
    let server: SocketAddr = SocketAddr::new(address.parse()?, 0);
    let listener = lab.enter(to, || TcpListener::bind(server))??;
    let target = SocketAddr::new(called.parse()?, listener.local_addr()?.port());
    let data = bytes(count);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || -> Outcome<Vec<u8>> {
            // A connection that never comes is a failure too, not a test without end.
            listener.set_nonblocking(true)?;
            let mut accepted = None;
            wait_until(PATIENCE, || {
                accepted = listener.accept().ok();
                accepted.is_some()
            })?;
            let (mut stream, _) = accepted.ok_or("no connection arrived")?;
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            let mut received = Vec::new();
            stream.read_to_end(&mut received)?;
            Ok(received)
        });
        lab.enter(from, || -> Outcome<()> {
            let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(10))?;
            stream.set_write_timeout(Some(Duration::from_secs(30)))?;
            stream.write_all(&data)?;
            Ok(())
        })??;
        let received = receiver.join().map_err(|_| "the receiver panicked")??;
        if digest(&received) == digest(&data) {
            return Ok(());
        }
        Err(format!("{} of {} bytes arrived, or not the same", received.len(), data.len()).into())
    })
}

/// Sends datagrams of these sizes, each answered by the other site with the same; tells how many came back whole.
pub fn udp_echoes(lab: &Lab, from: &str, to: &str, address: &str, sizes: &[usize]) -> Outcome<usize> {
    let server =
        lab.enter(to, || UdpSocket::bind(SocketAddr::new(address.parse().expect("an address"), 0)))??;
    let target = server.local_addr()?;
    server.set_read_timeout(Some(Duration::from_secs(2)))?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok((length, source)) = server.recv_from(&mut buffer) {
                let _ = server.send_to(&buffer[..length], source);
            }
        });
        lab.enter(from, || -> Outcome<usize> {
            let unspecified = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let client = UdpSocket::bind(unspecified)?;
            client.set_read_timeout(Some(Duration::from_secs(1)))?;
            let mut whole = 0;
            for &size in sizes {
                let data = bytes(size);
                client.send_to(&data, target)?;
                let mut buffer = vec![0; 65_536];
                if client.recv_from(&mut buffer).is_ok_and(|(length, _)| buffer[..length] == data) {
                    whole += 1;
                }
            }
            Ok(whole)
        })?
    })
}

/// How often some text is in the memory of a process that it can write to: heap and stacks.
pub fn occurrences(process: Process, text: &str) -> usize {
    use std::os::unix::fs::FileExt;
    let folder = PathBuf::from(format!("/proc/{}", process.id()));
    let maps = std::fs::read_to_string(folder.join("maps")).expect("it lives");
    let memory = std::fs::File::open(folder.join("mem")).expect("we are root");
    let parts = maps.lines().filter(|line| line.contains(" rw")).filter_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let mut bytes = vec![0; usize::try_from(to - from).ok()?];
        let read = memory.read_at(&mut bytes, from).ok()?;
        Some(bytes[..read].windows(text.len()).filter(|part| *part == text.as_bytes()).count())
    });
    parts.sum()
}

/// Whether an address answers a ping within three seconds.
pub fn answers(lab: &Lab, from: &str, address: &str) -> bool {
    lab.run(from, "ping", &["-c", "1", "-W", "3", address]).is_ok()
}

/// What the API says.
pub fn ask(arguments: &[&str]) -> serde_json::Value {
    let output =
        std::process::Command::new(postern()).args(arguments).arg("--json").output().expect("it runs");
    // `explain` ends with 1 if what it explains is down.
    let codes = if arguments.first() == Some(&"explain") { &[0, 1][..] } else { &[0] };
    let code = output.status.code().unwrap_or(-1);
    assert!(codes.contains(&code), "{arguments:?}: {code}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// One offload of an interface: state, packets and fallbacks.
pub fn offload(interface: &str, name: &str) -> (String, u64, u64) {
    let socket = format!("/run/postern/{interface}.sock");
    let said = ask(&["show", "offloads", "--api", &socket]);
    let all = said["offloads"].as_array().expect("a list");
    let found = all.iter().find(|offload| offload["offload"] == name).expect("it is listed");
    let number = |key: &str| found[key].as_u64().expect("a number");
    (found["state"].as_str().expect("a word").to_owned(), number("packets"), number("fallbacks"))
}

/// How many packets an interface dropped for a reason.
pub fn dropped(interface: &str, reason: &str) -> u64 {
    let socket = format!("/run/postern/{interface}.sock");
    let said = ask(&["show", "drops", "--all", "--api", &socket]);
    let all = said["drops"].as_array().expect("a list");
    let found = all.iter().find(|drop| drop["reason"] == reason).expect("it is listed");
    ["outbound", "inbound", "handshake"].iter().filter_map(|way| found[*way].as_u64()).sum()
}

/// A configuration without the lines that contain `text`.
pub fn without(configuration: &str, text: &str) -> String {
    configuration.lines().filter(|line| !line.contains(text)).map(|line| format!("{line}\n")).collect()
}
