//! With strongSwan: the daemon under test at site a, charon at site b, and what both say of what is between them.

mod asks;
mod authorities;
mod certificates;
mod guide;
mod import;
mod instances;
mod keys;
mod lives;
mod nat;
mod proposals;
mod reauthentication;
mod receive_threads;
mod refusals;
mod rekeys;
mod revocation;
mod rounds;
mod secgw;
mod secgw_configured;
mod selectors;
mod ways;

use crate::support::{lab, postern, skip};
use lab::postern::Postern;
use lab::strongswan::StrongSwan;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long anything may take that should not take long: the machines of a pipeline are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Two sites with a link between them, and addresses inside each.
fn sites() -> Option<Lab> {
    let lab = site_labs(&["a", "b"])?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))
        .expect("veth exists");
    Some(lab)
}

/// Namespaces, of which a and b have addresses inside.
fn site_labs(names: &[&str]) -> Option<Lab> {
    if let Some(package) = StrongSwan::missing() {
        skip(&format!("needs strongSwan, of which {package} is not installed"));
        return None;
    }
    let lab = lab(names)?;
    for (site, number) in [("a", 1), ("b", 2)] {
        for inside in [format!("10.{number}.0.1/16"), format!("fd00:{number}::1/64")] {
            lab.ip(site, &format!("address add {inside} dev lo")).expect("an address");
        }
    }
    Some(lab)
}

/// Our configuration: one peer, b, with one tunnel. `more` comes after it and overrides it.
/// PEER stands for the peer.
fn ours(more: &[&str]) -> String {
    let lines = [
        "esp-group E proposal 1 encryption aes256gcm128",
        "esp-group E pfs disable",
        "ike-group I proposal 1 encryption aes256gcm128",
        "ike-group I proposal 1 prf prfsha256",
        "ike-group I proposal 1 dh-group 19",
        "authentication psk sites id 192.168.77.1",
        "authentication psk sites id 192.168.77.2",
        "authentication psk sites secret 'a secret of both sites'",
        "PEER authentication mode pre-shared-secret",
        "PEER authentication local-id 192.168.77.1",
        "PEER authentication remote-id 192.168.77.2",
        "PEER connection-type initiate",
        "PEER ike-group I",
        "PEER default-esp-group E",
        "PEER local-address 192.168.77.1",
        "PEER remote-address 192.168.77.2",
        "PEER tunnel 1 local prefix 10.1.0.0/24",
        "PEER tunnel 1 remote prefix 10.2.0.0/24",
    ];
    let line = |line: &&str| format!("set vpn ipsec {}\n", line.replace("PEER", "site-to-site peer b"));
    lines.iter().chain(more).map(line).collect()
}

/// The same of charon: connection `site` with child `net`, and what comes after the usual settings of each.
fn theirs(connection: &str, child: &str) -> String {
    format!(
        "connections {{ site {{\n version = 2\n local_addrs = 192.168.77.2\n remote_addrs = 192.168.77.1\n\
         proposals = aes256gcm16-prfsha256-ecp256\n encap = yes\n\
         local {{ auth = psk\n id = 192.168.77.2\n }}\n remote {{ auth = psk\n id = 192.168.77.1\n }}\n\
         children {{ net {{ local_ts = 10.2.0.0/24\n remote_ts = 10.1.0.0/24\n esp_proposals = aes256gcm16\n\
         {child}\n }} }}\n {connection}\n }} }}\n\
         secrets {{ ike-site {{ secret = \"a secret of both sites\"\n }} }}\n"
    )
}

/// The daemon under test.
pub(crate) struct Ours {
    gateway: Postern,
}

impl Ours {
    pub(crate) fn start(lab: &mut Lab, namespace: &str, configuration: &str) -> Self {
        let gateway = Postern::new(lab, namespace, postern()).expect("a folder");
        gateway.write(configuration);
        let mut ours = Self { gateway };
        ours.restart(lab);
        ours
    }

    /// Ends it by a signal.
    pub(crate) fn kill(&self, lab: &mut Lab, signal: Signal) {
        lab.kill(self.gateway.process.expect("it was started"), signal);
    }

    /// Has it serve another configuration.
    fn reload(&self, configuration: &str) {
        let served = || self.log().matches("is in force").count();
        let before = served();
        self.gateway.write(configuration);
        self.gateway.signal(Signal::HUP);
        wait_until(PATIENCE, || served() > before).unwrap_or_else(|error| panic!("{error}: {}", self.log()));
    }

    /// Starts it again after [`kill`](Self::kill).
    pub(crate) fn restart(&mut self, lab: &mut Lab) {
        self.gateway.start(lab, "debug", PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    }

    /// What the API says.
    pub(crate) fn ask(&self, path: &str) -> bench::Outcome<Value> {
        let mut stream = UnixStream::connect(&self.gateway.socket)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        Ok(serde_json::from_str(body)?)
    }

    /// What the API says of all peers.
    pub(crate) fn peers(&self) -> Vec<Value> {
        let mut said = self.ask("/v1/vpn/ipsec").unwrap_or_default();
        said["peers"].take().as_array().cloned().unwrap_or_default()
    }

    /// What the API says of the peer b.
    fn peer(&self) -> Value {
        self.peers().into_iter().find(|peer| peer["name"] == "b").unwrap_or_default()
    }

    /// Waits until each of its tunnels has one pair of SAs, which both sides know.
    fn wait_for_tunnels(&self, lab: &Lab, peer: &StrongSwan) {
        self.wait(peer, "each tunnel has one pair of SAs", || {
            let said = self.peers();
            let tunnels: Vec<&Value> =
                said.iter().flat_map(|peer| peer["tunnels"].as_array().expect("a list")).collect();
            let theirs = TheirSa::all(&peer.sas(lab).unwrap_or_default());
            let agreed = |tunnel: &&Value| {
                let sas = tunnel["sas"].as_array().expect("a list");
                sas.len() == 1 && theirs.iter().any(|sa| sa.is(&sas[0]))
            };
            !tunnels.is_empty() && tunnels.iter().all(agreed) && theirs.len() == tunnels.len()
        });
    }

    /// Waits until something is so; what all sides have to say if it never is.
    fn wait(&self, peer: &StrongSwan, what: &str, condition: impl FnMut() -> bool) {
        wait_until(PATIENCE, condition)
            .unwrap_or_else(|error| panic!("{what}: {error}\n{}", self.tell(peer)));
    }

    /// All that both sides have to say.
    fn tell(&self, peer: &StrongSwan) -> String {
        let drops = self.ask("/v1/drops").unwrap_or_default();
        format!("{:#?}\n{drops}\n{}\n--- charon:\n{}", self.peers(), self.log(), peer.log())
    }

    pub(crate) fn log(&self) -> String {
        self.gateway.logged()
    }
}

/// A pair of Child SAs as `swanctl --list-sas` shows it.
#[derive(Debug, Default)]
struct TheirSa {
    child: String,
    state: String,
    spi_in: u32,
    spi_out: u32,
    local: String,
    remote: String,
}

impl TheirSa {
    fn all(listed: &str) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in listed.lines().map(str::trim) {
            let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
            let spi = |word: &str| u32::from_str_radix(word, 16).unwrap_or_default();
            match (&*words, all.last_mut()) {
                ([child, _, "reqid", _, state, ..], _) => {
                    let child = child.trim_end_matches(':').to_owned();
                    all.push(Self { child, state: (*state).to_owned(), ..Self::default() });
                }
                (["in", word, ..], Some(sa)) => sa.spi_in = spi(word),
                (["out", word, ..], Some(sa)) => sa.spi_out = spi(word),
                // The ends of a further IKE SA, which may be half open, are not selectors.
                (["local" | "remote", .., "@", _], _) => {}
                (["local", selectors @ ..], Some(sa)) => sa.local = selectors.join(" "),
                (["remote", selectors @ ..], Some(sa)) => sa.remote = selectors.join(" "),
                _ => {}
            }
        }
        // What is about to be deleted is not there any more.
        all.retain(|sa| matches!(&*sa.state, "INSTALLED" | "REKEYING"));
        all
    }

    /// Whether it is the other end of this pair of ours.
    fn is(&self, ours: &Value) -> bool {
        ours["spi_in"] == self.spi_out && ours["spi_out"] == self.spi_in
    }
}

/// Runs all of a table, three at once; says which have failed.
fn all<T: Sync>(table: &[T], name: impl Fn(&T) -> &str + Sync, run: impl Fn(&T) + Sync) {
    let failed: Vec<&str> = table
        .chunks(3)
        .flat_map(|some| {
            std::thread::scope(|scope| {
                let (run, name) = (&run, &name);
                let threads: Vec<_> =
                    some.iter().map(|one| (name(one), scope.spawn(move || run(one)))).collect();
                let ended = threads.into_iter().map(|(name, thread)| (name, thread.join()));
                ended.filter_map(|(name, result)| result.is_err().then_some(name)).collect::<Vec<_>>()
            })
        })
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Whether a ping is answered, however long that takes.
fn reaches(lab: &Lab, from: &str, to: &str) -> bool {
    pings(lab, from, to, &["-c", "1", "-W", "20"]) == (1, 1)
}

/// Pings sent, and pings answered.
fn pings(lab: &Lab, from: &str, to: &str, options: &[&str]) -> (u32, u32) {
    let before = echo_replies(lab, from);
    let arguments = [options, &["-q", to]].concat();
    let mut command = lab.command(from, "ping");
    let output = command.args(arguments).output().expect("ping runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |before: &str| {
        let (text, _) = said.split_once(before)?;
        text.rsplit([' ', '\n']).next()?.parse().ok()
    };
    let counts = number(" packets transmitted").zip(number(" received"));
    let (sent, received): (u32, u32) =
        counts.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)));
    // Once anything was answered, ping waits for the last no longer than two round trips, or the interval; on a busy
    // machine that is too short. The kernel counts those that come later.
    let arrived = || received.max(echo_replies(lab, from) - before);
    let _ = wait_until(Duration::from_secs(5), || arrived() >= sent);
    (sent, arrived())
}

/// Answers to pings over IPv4 that a site has received.
fn echo_replies(lab: &Lab, site: &str) -> u32 {
    counter(lab, site, "Icmp:", "InEchoReps") as u32
}

/// A number of the kernel's about a protocol.
fn counter(lab: &Lab, site: &str, protocol: &str, name: &str) -> u64 {
    let said = lab.run(site, "cat", &["/proc/net/snmp"]).expect("it is there");
    let mut lines = said.lines().filter(|line| line.starts_with(protocol));
    let (names, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let found = names.split(' ').zip(numbers.split(' ')).find(|(found, _)| *found == name);
    found.and_then(|(_, number)| number.parse().ok()).expect("a number")
}
