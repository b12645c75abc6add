//! Ten thousand peers, all of them down: the memory that the page takes, in bytes.

use super::{PLACE, TOKEN, ask};
use crate::daemon::{Site, key_pair};
use crate::support::{PATIENCE, sites};
use crate::transactions::Router;
use base64ct::{Base64, Encoding};
use lab::wait_until;
use std::fs;
use std::path::Path;
use std::process::Stdio;

const PEERS: usize = 10_000;
/// What the process that serves the page may take at most.
const MOST: u64 = 60_000_000;
/// Browsers that follow the page.
const READERS: usize = 6;

/// A key that nobody has.
fn key(number: usize) -> String {
    let mut bytes = [9; 32];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    Base64::encode_string(&bytes)
}

fn peers() -> Vec<String> {
    let of = |number: usize| {
        let name = format!("peer p{number}");
        let (high, low) = (number / 250, number % 250 + 1);
        [
            format!("{name} public-key {}", key(number)),
            format!("{name} allowed-ips 10.77.{high}.{low}/32"),
            format!("{name} address 192.168.77.2"),
            format!("{name} port {}", 20_000 + number),
            format!("{name} persistent-keepalive 25"),
        ]
    };
    (0..PEERS).flat_map(of).collect()
}

/// A field of the memory of the process that serves the pages of a daemon, in bytes.
fn memory(state: &Path, field: &str) -> Option<u64> {
    let state = state.display().to_string();
    let is_server =
        |line: &str| line.contains("https-server") && line.contains("--server") && line.contains(&state);
    let folders = fs::read_dir("/proc").ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let found = folders
        .into_iter()
        .find(|folder| fs::read_to_string(folder.join("cmdline")).is_ok_and(|it| is_server(&it)));
    let status = fs::read_to_string(found?.join("status")).ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(kilobytes.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[test]
fn ten_thousand_peers_take_less_than_sixty_megabytes() {
    let Some(lab) = sites() else { return };
    let keys = [key_pair(), key_pair()];
    let site = Site::new(&lab, "a", &keys[0].0);
    let fixed = ["address 10.66.0.1/24", "port 51820"].map(str::to_owned);
    site.write(&[&fixed[..], &peers()].concat());
    let mut router = Router { lab, site, keys };
    router.start();
    router.commits(&[&format!("set service page token '{TOKEN}'")]);
    let field = format!("token={TOKEN}");
    assert_eq!(ask(&router, "/login", &["--data-urlencode", &field]).expect("an answer").0, 303);
    let get = |path: &str| ask(&router, path, &[]).expect("an answer");
    wait_until(4 * PATIENCE, || get("/?filter=down").1.contains(&format!("{PEERS} tunnels")))
        .expect("all are down");
    // A jar of their own: that of the others is written anew while these begin.
    let jar = router.site.state.join("cookies-of-readers");
    fs::copy(router.site.state.join("cookies"), &jar).expect("there");
    let follow = |number: usize| {
        let url = format!("{PLACE}/events/?page={}", number + 1);
        let mut curl = router.lab.command("a", "curl");
        curl.args(["-sN", "--max-time", "120", "-b"])
            .arg(&jar)
            .arg(&url)
            .stdout(Stdio::null())
            .spawn()
            .expect("curl runs")
    };
    let mut readers: Vec<_> = (0..READERS).map(follow).collect();
    for round in 0..15 {
        for path in [
            "/",
            "/?page=50",
            "/?filter=p99",
            "/performance",
            "/drops",
            &format!("/tunnel?protocol=wireguard&interface=wg0&peer=p{round}"),
        ] {
            let (status, text) = get(path);
            assert_eq!(status, 200, "{path}: {text}");
            assert!(text.len() < 256 << 10, "{path} has {} bytes", text.len());
        }
    }
    assert!(
        readers.iter_mut().all(|it| it.try_wait().is_ok_and(|ended| ended.is_none())),
        "they still follow"
    );
    let state = &router.site.state;
    let (most, now) = (memory(state, "VmHWM:").expect("it runs"), memory(state, "VmRSS:").expect("it runs"));
    let anonymous = memory(state, "RssAnon:").expect("it runs");
    println!("{PEERS} peers: at most {most} bytes, now {now}, of which {anonymous} are its own");
    for mut reader in readers {
        let _ = reader.kill();
        let _ = reader.wait();
    }
    assert!(most < MOST, "the page takes {most} bytes");
}
