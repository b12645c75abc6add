//! With the kernel's own IPsec (XFRM), and keys set by hand: ESP without UDP in tunnel and transport mode, with
//! and without extended sequence numbers, of every cipher that it has.

use crate::machine::{Machine, NETWORK, Start, X86, kernel};
use crate::manual::Ipsec;
use crate::support::lab;
use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::{SecretBytes, random};
use gateway::datapath::protocol::{PeerState, Tunnel};
use gateway::datapath::staging::Budget;
use gateway::datapath::tables::{Peer, Session};
use lab::Lab;
use packet::{DropReason, Endpoint};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tunnel::esp::{
    self, ChildSa, Half, Mode, Policy, Processing, Selectors, TrafficSelector, Transform, Transport,
};
use tunnel::{PeerId, Time};

/// The emulated machine takes seconds for what others do in milliseconds.
const PATIENCE: Duration = Duration::from_secs(90);
const OUR: &str = "192.168.91.1";
const ITS: &str = "192.168.91.2";
/// Packets with this mark go around our own routes, as the outer packets of transport mode must.
const MARK: u32 = 5;

struct Case {
    number: usize,
    transform: Transform,
    extended: bool,
    mode: Mode,
    /// Inner addresses: ours, and the kernel's.
    inside: [String; 2],
    /// Outer addresses.
    outside: [String; 2],
}

fn cases() -> Vec<Case> {
    let pair = |encryption, integrity| Transform::Pair(Pair { encryption, integrity });
    let tunnels = [
        (Transform::Aead(Cipher::Aes128Gcm, 16), false),
        (Transform::Aead(Cipher::Aes128Gcm, 8), false),
        (Transform::Aead(Cipher::Aes256Gcm, 12), true),
        (Transform::Aead(Cipher::Aes128Ccm, 16), false),
        (Transform::Aead(Cipher::Aes256Ccm, 8), true),
        (Transform::Aead(Cipher::ChaCha20Poly1305, 16), true),
        (Transform::Gmac(Cipher::Aes128Gcm), false),
        (Transform::Gmac(Cipher::Aes256Gcm), true),
        (pair(Encryption::AesCbc(16), Integrity::HmacSha256), false),
        (pair(Encryption::AesCbc(32), Integrity::HmacSha512), true),
        (pair(Encryption::AesCbc(24), Integrity::HmacSha384), false),
        (pair(Encryption::AesCtr(16), Integrity::HmacSha1), false),
        (pair(Encryption::AesCtr(32), Integrity::HmacSha256), true),
        (pair(Encryption::TripleDesCbc, Integrity::HmacSha1), false),
        (pair(Encryption::Null, Integrity::HmacSha256), true),
        (pair(Encryption::AesCbc(16), Integrity::AesXcbc), false),
    ];
    let outside = || [OUR.to_owned(), ITS.to_owned()];
    let mut cases: Vec<Case> = tunnels
        .into_iter()
        .zip(1..)
        .map(|((transform, extended), number)| {
            let inside = [1, 2].map(|host| format!("10.92.{number}.{host}"));
            Case { number, transform, extended, mode: Mode::Tunnel, inside, outside: outside() }
        })
        .collect();
    let gcm = Transform::Aead(Cipher::Aes128Gcm, 16);
    let inside = ["fd92::1", "fd92::2"].map(str::to_owned);
    let (number, mode) = (cases.len() + 1, Mode::Tunnel);
    cases.push(Case { number, transform: gcm, extended: true, mode, inside, outside: outside() });
    for (transform, extended) in [(gcm, false), (pair(Encryption::AesCbc(16), Integrity::HmacSha256), true)] {
        let number = cases.len() + 1;
        let inside = [100, 200].map(|host| format!("192.168.91.{}", host + number));
        let outside = inside.clone();
        cases.push(Case { number, transform, extended, mode: Mode::Transport, inside, outside });
    }
    cases
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("literal")
}

impl Case {
    /// The SPI of packets that this end sends: 0 for us, 1 for the kernel.
    fn spi(&self, from: usize) -> u32 {
        (0x1000 * (from + 1) + self.number) as u32
    }

    fn keys(&self, from: usize) -> Vec<u8> {
        let length = self.transform.key_material_length();
        (0..length).map(|byte| (byte * 11 + self.number + from * 100) as u8).collect()
    }

    fn child(&self) -> ChildSa {
        let half = |from| Half { spi: self.spi(from), keys: SecretBytes::new(self.keys(from)) };
        let side = |end: usize| {
            let address = address(&self.inside[end]);
            vec![TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses: address..=address }]
        };
        ChildSa {
            transform: self.transform,
            extended_sequence: self.extended,
            mode: self.mode,
            outbound: half(0),
            inbound: half(1),
            local: side(0),
            remote: side(1),
        }
    }

    /// The transform in the words of `ip xfrm state`.
    fn words(&self, from: usize) -> String {
        let keys = self.keys(from);
        match self.transform {
            Transform::Aead(cipher, tag) => {
                let name = match cipher {
                    Cipher::ChaCha20Poly1305 => "rfc7539esp(chacha20,poly1305)",
                    _ if cipher.is_ccm() => "rfc4309(ccm(aes))",
                    _ => "rfc4106(gcm(aes))",
                };
                format!("aead '{name}' {} {}", hex(&keys), tag * 8)
            }
            Transform::Null => unreachable!("no case has it"),
            Transform::Gmac(_) => format!("aead 'rfc4543(gcm(aes))' {} 128", hex(&keys)),
            Transform::Pair(Pair { encryption, integrity }) => {
                let (key, mac) = keys.split_at(keys.len() - integrity.key_length());
                let cipher = match encryption {
                    Encryption::Null => return format!("enc 'ecb(cipher_null)' '' {}", auth(integrity, mac)),
                    Encryption::AesCbc(_) => "cbc(aes)",
                    Encryption::AesCtr(_) => "rfc3686(ctr(aes))",
                    Encryption::TripleDesCbc => "cbc(des3_ede)",
                };
                format!("enc '{cipher}' {} {}", hex(key), auth(integrity, mac))
            }
        }
    }

    /// What the machine does for it.
    fn script(&self) -> String {
        let mode = if self.mode == Mode::Tunnel { "tunnel" } else { "transport" };
        let flags = match (self.extended, self.mode) {
            (true, Mode::Tunnel) => "replay-window 128 flag esn af-unspec",
            (true, Mode::Transport | Mode::BumpInTheWire) => "replay-window 128 flag esn",
            (false, Mode::Tunnel) => "replay-window 32 flag af-unspec",
            (false, Mode::Transport | Mode::BumpInTheWire) => "replay-window 32",
        };
        let ([our, its], [ours, theirs]) = (&self.inside, &self.outside);
        let state = |from: usize, source: &str, destination: &str| {
            format!(
                "xfrm xfrm state add src {source} dst {destination} proto esp spi {} reqid {} mode {mode} {flags} {}\n",
                self.spi(from),
                self.number,
                self.words(from)
            )
        };
        let policy = |direction: &str, from: &str, to: &str, source: &str, destination: &str| {
            format!(
                "xfrm xfrm policy add src {from} dst {to} dir {direction} \
                 tmpl src {source} dst {destination} proto esp reqid {} mode {mode}\n",
                self.number
            )
        };
        let device = if self.mode == Mode::Tunnel { "lo" } else { "eth0" };
        let mut script = format!("ip addr add {its} dev {device}\n");
        if self.mode == Mode::Tunnel {
            let _ = writeln!(script, "ip route add {our} dev eth0 src {its}");
        } else {
            let _ = writeln!(script, "ip route add {our} dev eth0");
        }
        script += &state(0, ours, theirs);
        script += &state(1, theirs, ours);
        script += &policy("in", our, its, ours, theirs);
        script += &policy("out", its, our, theirs, ours);
        script
    }

    /// Makes a peer of ours for it.
    fn install(&self, ipsec: &Ipsec) -> Policy<Arc<Peer>> {
        let tunnel = Tunnel { in_udp: AtomicBool::new(false), ..Tunnel::default() };
        let id = PeerId::new(self.number as u64);
        let peer = Arc::new(Peer::new(id, PeerState::Ipsec(tunnel), Budget::default()));
        let [local, remote] = self.outside.each_ref().map(|text| address(text));
        peer.endpoint
            .store(Some(Endpoint { local: Some(local), ..Endpoint::new(SocketAddr::new(remote, 0)) }));
        let child = self.child();
        let (random, now) = (&mut random::System::default(), Time::from_nanoseconds(1));
        let (outbound, inbound) =
            child.load(&esp::Options::default(), &AwsLc, random, now).expect("keys of the right length");
        let selectors = Selectors::new(&child.local, &child.remote);
        let transport = (self.mode == Mode::Transport).then(|| Transport {
            local: address(&self.inside[0]),
            remote: address(&self.inside[1]),
            translated: false,
        });
        let (sa, of) = (Arc::new(inbound), Arc::clone(&peer));
        let session = Session { sa, peer: of, selectors: Some(selectors.clone()), transport };
        ipsec.tables().install(session);
        peer.sending.store(Some(Arc::new(outbound)));
        Policy { selectors, processing: Processing::Protect(peer) }
    }

    fn lead(&self, lab: &Lab, interface: &str) {
        let [ours, theirs] = &self.inside;
        let device = if self.mode == Mode::Tunnel { interface } else { "outside" };
        let nodad = if address(ours).is_ipv6() { "nodad" } else { "" };
        lab.ip("a", &format!("address add {ours} dev {device} {nodad}")).expect("an address");
        lab.ip("a", &format!("route add {theirs} dev {interface} src {ours}")).expect("a route");
        if self.mode == Mode::Transport {
            lab.ip("a", &format!("route add {theirs} dev outside table {MARK}")).expect("a route");
        }
    }

    /// Pings of several sizes, each answered.
    fn is_answered(&self, lab: &Lab) -> bool {
        ["1", "56", "1001"].iter().all(|size| {
            let arguments = ["-c", "2", "-i", "0.2", "-W", "5", "-s", size, self.inside[1].as_str()];
            lab.run("a", "ping", &arguments).is_ok()
        })
    }
}

fn auth(integrity: Integrity, key: &[u8]) -> String {
    let name = match integrity {
        Integrity::HmacSha1 => "hmac(sha1)",
        Integrity::HmacSha256 => "hmac(sha256)",
        Integrity::HmacSha384 => "hmac(sha384)",
        Integrity::HmacSha512 => "hmac(sha512)",
        Integrity::AesXcbc => "xcbc(aes)",
    };
    format!("auth-trunc '{name}' {} {}", hex(key), integrity.tag_length() * 8)
}

/// iproute2's program, under a name that busybox does not have.
fn iproute(folder: &std::path::Path) -> PathBuf {
    let program = ["/sbin/ip", "/usr/sbin/ip", "/bin/ip", "/usr/bin/ip"].map(PathBuf::from);
    let program = program.into_iter().find(|path| path.exists()).expect("the lab has used it");
    let copy = folder.join("xfrm");
    std::fs::copy(program, &copy).expect("a copy");
    copy
}

#[test]
fn every_cipher_is_that_of_the_kernel() {
    let Some(kernel) = kernel(&["ip"]) else { return };
    let Some(mut lab) = lab(&["a"]) else { return };
    lab.ip("a", "tuntap add outside mode tap").expect("TAP exists");
    lab.ip("a", &format!("address add {OUR}/24 dev outside")).expect("an address");
    lab.ip("a", "link set outside up").expect("it is there");
    lab.ip("a", &format!("rule add fwmark {MARK} table {MARK}")).expect("a rule");
    let cases = cases();
    let folder = tempfile::tempdir().expect("a directory");
    let program = iproute(folder.path());
    let mut script = format!(
        "ip link set lo up; ip link set eth0 up; ip addr add {ITS}/24 dev eth0\n\
         echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad\n"
    );
    for case in &cases {
        script += &case.script();
    }
    script += "echo READY\nwhile true; do sleep 5; cat /proc/net/xfrm_stat | grep -v ' 0$'; done\n";
    let boot = Start {
        board: &X86,
        modules: "ipsec",
        programs: &[program],
        tree: None,
        script: &script,
        hardware: NETWORK,
    };
    let machine = Machine::boot(&mut lab, "a", &kernel, &boot);
    drop(folder);
    let interface = lab.interface("x");
    let created = lab.enter("a", || Ipsec::create(&interface, true, MARK));
    let (ipsec, _notices) = created.expect("a namespace");
    lab.ip("a", &format!("link set {interface} mtu 1400 up")).expect("it is there");
    for case in &cases {
        case.lead(&lab, &interface);
    }
    ipsec.set_policies(cases.iter().map(|case| case.install(&ipsec)).collect());
    machine.says("READY", PATIENCE);
    let unanswered: Vec<String> = cases
        .iter()
        .filter(|case| !case.is_answered(&lab))
        .map(|case| format!("{} {} esn {}", case.number, case.transform.name(), case.extended))
        .collect();
    let drops: Vec<(&str, u64)> = DropReason::ALL
        .iter()
        .map(|&reason| (reason.name(), ipsec.drops().read(reason).iter().sum()))
        .filter(|&(_, count)| count > 0)
        .collect();
    assert!(
        unanswered.is_empty(),
        "{unanswered:#?}\nwe dropped {drops:?}; the machine said\n{}",
        machine.said()
    );
}
