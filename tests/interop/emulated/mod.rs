//! With IKEv2 daemons that need the kernel's ESP, in an emulated machine whose network card is a TAP interface in one of our
//! namespaces. The daemon under test is outside, its peers are connections of the one daemon inside.

mod libreswan;
mod openiked;

use crate::machine::{Machine, NETWORK, Start, X86, kernel};
use crate::strongswan::Ours;
use crate::support::{lab, skip};
use lab::{Lab, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

/// The emulated machine takes seconds for what others do in milliseconds.
const PATIENCE: Duration = Duration::from_secs(120);
const OUR: &str = "192.168.93.1";
const ITS: &str = "192.168.93.2";
const SECRET: &str = "a secret of both sites";

/// A connection: it has a number, and with that an address of ours of its own, as iked sends from one address only.
struct Peer {
    number: usize,
    /// Whether we call.
    we_call: bool,
    /// The cipher, the hash if one is needed, and the group: of IKE with its prf, and of ESP.
    ike: [&'static str; 4],
    esp: [&'static str; 3],
    /// The same in the words of the other side.
    theirs: [&'static str; 2],
    /// What else is configured on either side.
    more: &'static [&'static str],
    their_more: &'static str,
}

impl Peer {
    /// Our address.
    fn address(&self) -> String {
        format!("192.168.93.{}", 100 + self.number)
    }

    /// The other side's. What is between the gateways alone needs one of its own, as all that is sent there is protected.
    fn its_address(&self) -> String {
        if self.is_transport() { format!("192.168.93.{}", 200 + self.number) } else { ITS.to_owned() }
    }

    fn is_transport(&self) -> bool {
        self.more.iter().any(|line| line.ends_with("mode transport"))
    }

    fn name(&self) -> String {
        format!("p{}", self.number)
    }

    /// Addresses inside: ours, and its.
    fn inside(&self) -> [String; 2] {
        if self.is_transport() {
            return [self.address(), self.its_address()];
        }
        [1, 2].map(|site| format!("10.{site}.{}.1", self.number))
    }

    fn networks(&self) -> [String; 2] {
        [1, 2].map(|site| format!("10.{site}.{}.0/24", self.number))
    }

    /// Our configuration of it.
    fn configuration(&self) -> String {
        let Self { number, ike: [cipher, hash, prf, group], esp: [esp, esp_hash, pfs], .. } = self;
        let (address, its) = (self.address(), self.its_address());
        let start = if self.we_call { "initiate" } else { "none" };
        let mut lines = vec![
            format!("ike-group I{number} proposal 1 encryption {cipher}"),
            format!("ike-group I{number} proposal 1 prf {prf}"),
            format!("ike-group I{number} proposal 1 dh-group {group}"),
            format!("esp-group E{number} proposal 1 encryption {esp}"),
            format!("esp-group E{number} pfs {pfs}"),
            format!("authentication psk all id {address}"),
        ];
        let hashes = [(format!("ike-group I{number}"), hash), (format!("esp-group E{number}"), esp_hash)];
        let hashes = hashes.iter().filter(|(_, hash)| !hash.is_empty());
        lines.extend(hashes.map(|(group, hash)| format!("{group} proposal 1 hash {hash}")));
        let mut peer = vec![
            "authentication mode pre-shared-secret".to_owned(),
            format!("authentication local-id {address}"),
            format!("authentication remote-id {its}"),
            format!("connection-type {start}"),
            format!("ike-group I{number}"),
            format!("default-esp-group E{number}"),
            format!("local-address {address}"),
            format!("remote-address {its}"),
            "tunnel 1 priority 1".to_owned(),
        ];
        if !self.is_transport() {
            let networks = ["local", "remote"].into_iter().zip(self.networks());
            peer.extend(networks.map(|(side, network)| format!("tunnel 1 {side} prefix {network}")));
        }
        lines.extend(peer.iter().map(|line| format!("site-to-site peer p{number} {line}")));
        lines.extend(self.more.iter().map(|line| line.replace('#', &number.to_string())));
        lines.iter().fold(String::new(), |text, line| format!("{text}set vpn ipsec {line}\n"))
    }
}

/// Our configuration of all of them.
fn configuration(peers: &[Peer]) -> String {
    let theirs = peers.iter().map(|peer| format!("authentication psk all id {}", peer.its_address()));
    let theirs: BTreeSet<String> = theirs.collect();
    let common = theirs.into_iter().chain([format!("authentication psk all secret '{SECRET}'")]);
    let common = common.fold(String::new(), |text, line| format!("{text}set vpn ipsec {line}\n"));
    peers.iter().fold(common, |text, peer| text + &peer.configuration())
}

/// The daemon under test, and the machine that its peers are in.
struct Pair {
    ours: Ours,
    machine: Machine,
    lab: Lab,
}

impl Pair {
    /// Boots the machine; `None` if a requirement is missing, which is printed.
    fn start(program: &str, peers: &[Peer]) -> Option<Self> {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/ike");
        if !tree.join("bin").join(program).is_file() {
            skip(&format!("needs {program} in .peers (make setup)"));
            return None;
        }
        let kernel = kernel(&[])?;
        if !kernel.join("order-ike").is_file() {
            skip("needs more modules in .peers (make setup)");
            return None;
        }
        let mut lab = lab(&["a"])?;
        lab.ip("a", "tuntap add outside mode tap").expect("TAP exists");
        lab.ip("a", &format!("address add {OUR}/24 dev outside")).expect("an address");
        lab.ip("a", "link set outside up").expect("it is there");
        for peer in peers {
            let ([inside, _], outside) = (peer.inside(), peer.address());
            lab.ip("a", &format!("address add {outside}/24 dev outside")).expect("an address");
            if !peer.is_transport() {
                lab.ip("a", &format!("address add {inside}/24 dev lo")).expect("an address");
            }
        }
        let boot = Start {
            board: &X86,
            modules: "ike",
            programs: &[],
            tree: Some(&tree),
            script: &script(peers),
            hardware: NETWORK,
        };
        let machine = Machine::boot(&mut lab, "a", &kernel, &boot);
        machine.says("READY", PATIENCE);
        let ours = Ours::start(&mut lab, "a", &configuration(peers));
        Some(Self { ours, machine, lab })
    }

    /// Runs a script in the machine, and returns what it says.
    fn run(&self, script: &str) -> String {
        let text = format!("exec 2>&1\n{script}\nexit\n");
        let said = self.call(&format!("{ITS}:99"), text.as_bytes());
        String::from_utf8_lossy(&said.expect("the machine answers")).into_owned()
    }

    /// Writes a file in the machine.
    fn write(&self, path: &str, text: &str) {
        self.run(&format!("cat > {path} <<'END'\n{text}\nEND\nchmod 600 {path}"));
    }

    /// Sends all of that to an address in the machine, and returns all that comes back.
    fn call(&self, address: &str, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let call = || -> std::io::Result<Vec<u8>> {
            let address = address.parse().expect("an address");
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(bytes)?;
            stream.shutdown(Shutdown::Write)?;
            let mut said = Vec::new();
            stream.read_to_end(&mut said)?;
            Ok(said)
        };
        self.lab.enter("a", call).expect("a namespace")
    }

    /// What our API says of a peer.
    fn said_of(&self, peer: &Peer) -> Value {
        self.ours.peers().into_iter().find(|said| said["name"] == peer.name()).unwrap_or_default()
    }

    /// The SPIs that a peer's packets come with, one for each pair of SAs that is in use. What a peer that died has left may
    /// be there for minutes.
    fn spis(&self, peer: &Peer) -> Vec<u64> {
        let said = self.said_of(peer);
        let sas = said["tunnels"][0]["sas"].as_array().cloned().unwrap_or_default();
        sas.iter().filter(|sa| sa["sending"] == true).filter_map(|sa| sa["spi_in"].as_u64()).collect()
    }

    /// What a peer's IKE SA is called.
    fn ike(&self, peer: &Peer) -> Value {
        self.said_of(peer)["ike"]["spi_initiator"].clone()
    }

    fn wait(&self, what: &str, condition: impl FnMut() -> bool) {
        wait_until(PATIENCE, condition)
            .unwrap_or_else(|error| panic!("{what}: {error}\n{:#?}\n{}", self.ours.peers(), self.tell()));
    }

    /// All that both sides have to say.
    fn tell(&self) -> String {
        let log = self.run("head -n 200 /log; echo ...; tail -n 300 /log; xfrm xfrm state");
        let drops = self.ours.ask("/v1/drops").unwrap_or_default();
        format!("{}\n{drops}\n--- the machine:\n{}\n{log}", self.ours.log(), self.machine.said())
    }

    /// Waits until a peer has a pair of SAs, which the machine's kernel has too, and that carries packets both ways.
    fn works(&self, peer: &Peer) {
        self.wait(&format!("{} has SAs", peer.name()), || {
            let spis = self.spis(peer);
            spis.len() == 1 && self.run("xfrm xfrm state").contains(&format!("spi 0x{:08x}", spis[0]))
        });
        let [ours, theirs] = peer.inside();
        self.wait(&format!("{} is answered", peer.name()), || {
            let arguments = ["-c", "2", "-i", "0.2", "-W", "2", "-s", "1200", "-I", &ours, &theirs];
            self.lab.run("a", "ping", &arguments).is_ok()
        });
        self.wait(&format!("{} has its answer", peer.name()), || {
            self.run(&format!("ping -c 2 -s 900 -I {theirs} {ours}")).contains("2 packets received")
        });
    }

    /// Each of them does.
    fn all_work<'a>(&self, peers: impl IntoIterator<Item = &'a Peer>) {
        for peer in peers {
            self.works(peer);
        }
    }

    /// A file each way through a tunnel, compared by its digest.
    fn carries_files(&self, peer: &Peer) {
        let [_, inside] = peer.inside();
        let data: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let digest = self.call(&format!("{inside}:5000"), &data);
        let digest = digest.unwrap_or_else(|error| panic!("it takes the file: {error}\n{}", self.tell()));
        let digest = String::from_utf8_lossy(&digest).split_whitespace().next().map(str::to_owned);
        assert_eq!(digest.as_deref(), Some(&*crate::kernel::md5(&data)), "{}", self.tell());
        let received = self.call(&format!("{inside}:5001"), &[]);
        let received = received.unwrap_or_else(|error| panic!("it sends the file: {error}\n{}", self.tell()));
        let digest = crate::kernel::md5(&received);
        assert!(self.run("md5sum < /file").contains(&digest), "{} bytes", received.len());
    }

    /// Sends `count` pings, during which keys are replaced; returns the output of ping.
    fn is_busy(&self, peer: &Peer, count: usize) -> String {
        let [ours, theirs] = peer.inside();
        let arguments = ["-q", "-c", &count.to_string(), "-i", "0.003", "-W", "5", "-I", &ours, &theirs];
        self.lab.run("a", "ping", &arguments).unwrap_or_else(|error| error.to_string())
    }
}

/// What the machine does when it boots: a link, addresses, and shells and files for the test.
fn script(peers: &[Peer]) -> String {
    let mut script = format!(
        "mkdir -p /etc /run /var/empty /root /dev/shm /usr/libexec; ln -s /bin /usr/libexec/ipsec; ln -s /run /var/run\n\
         echo 127.0.0.1 localhost > /etc/hosts; echo nameserver 127.0.0.1 > /etc/resolv.conf\n\
         echo root:x:0:0::/:/bin/sh > /etc/passwd; echo _iked:x:100:100::/var/empty:/bin/sh >> /etc/passwd\n\
         echo root:x:0: > /etc/group; echo _iked:x:100: >> /etc/group\n\
         hostname peer; ip link set lo up; ip link set eth0 up; ip addr add {ITS}/24 dev eth0\n"
    );
    for peer in peers {
        let ([local, _], [_, inside]) = (peer.networks(), peer.inside());
        if peer.is_transport() {
            let _ = writeln!(script, "ip addr add {inside}/24 dev eth0");
            continue;
        }
        let _ =
            writeln!(script, "ip addr add {inside}/24 dev lo; ip route add {local} dev eth0 src {inside}");
    }
    script
        + "printf '#!/bin/sh\\ncat /file\\n' > /bin/send; chmod 755 /bin/send\n\
           dd if=/dev/urandom of=/file bs=1024 count=1024 2> /dev/null\n\
           nc -ll -p 99 -e sh &\n\
           nc -ll -p 5000 -e md5sum &\n\
           nc -ll -p 5001 -e send &\n\
           echo READY\n\
           while true; do sleep 1000; done\n"
}
