//! ESP as scapy makes and reads it (`scapy.layers.ipsec`): byte for byte, of every cipher that it has, with and without
//! extended sequence numbers, in tunnel and transport mode.

use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::{SecretBytes, random};
use packet::checksum::Sum;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, UDP};
use packet::{Batch, DropCounters, DropReason};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tunnel::esp::open::Inner;
use tunnel::esp::{Mode, SaKeys, Transform};
use tunnel::replay::ReplayWindow;
use zerocopy::IntoBytes;

/// Debian's, which has python3-scapy.
const PYTHON: &str = "/usr/bin/python3";
const SPI: u32 = 0xc0de_0001;

/// The other implementation, as a process that answers line by line.
struct Oracle {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts it; says aloud if it is not here.
    fn start() -> Option<Self> {
        let here = Command::new(PYTHON)
            .args(["-c", "import scapy.layers.ipsec, cryptography"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !here {
            assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set, and python3-scapy is missing");
            // Past the capture of the test harness, which would hide it.
            let _ = std::io::stderr().write_all(b"SKIPPED: needs python3-scapy (make setup)\n");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scapy/oracle.py");
        let mut process = Command::new(PYTHON)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python runs");
        let questions = process.stdin.take().expect("piped");
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        Some(Self { process, questions, answers })
    }

    fn ask(&mut self, question: &str) -> (Vec<u8>, Vec<u8>) {
        writeln!(self.questions, "{question}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        let (opened, sealed) =
            answer.trim().split_once(' ').unwrap_or_else(|| panic!("no answer to {question}"));
        assert_ne!(opened, "error", "{sealed} of {question}");
        (unhex(opened), unhex(sealed))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::from("-");
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).expect("hex digits"))
        .collect()
}

/// The cipher, key, tag length, MAC and its key, as scapy calls them; `None` if it lacks the transform.
fn words(transform: Transform, keys: &[u8]) -> Option<String> {
    let word = match transform {
        Transform::Aead(cipher, tag) => {
            let name = match cipher {
                Cipher::ChaCha20Poly1305 => "CHACHA20-POLY1305",
                _ if cipher.is_ccm() => "AES-CCM",
                _ => "AES-GCM",
            };
            format!("{name} {} {tag} - -", hex(keys))
        }
        Transform::Gmac(_) => format!("AES-GMAC {} 16 - -", hex(keys)),
        Transform::Null => String::from("NULL - 0 NULL -"),
        Transform::Pair(Pair { encryption, integrity }) => {
            let crypt = match encryption {
                Encryption::Null => "NULL",
                Encryption::AesCbc(_) => "AES-CBC",
                Encryption::AesCtr(_) => "AES-CTR",
                Encryption::TripleDesCbc => "3DES",
            };
            let auth = match integrity {
                Integrity::HmacSha1 => "HMAC-SHA1-96",
                Integrity::HmacSha256 => "SHA2-256-128",
                Integrity::HmacSha384 => "SHA2-384-192",
                Integrity::HmacSha512 => "SHA2-512-256",
                Integrity::AesXcbc => return None,
            };
            let (key, mac) = keys.split_at(keys.len() - integrity.key_length());
            format!("{crypt} {} 0 {auth} {}", hex(key), hex(mac))
        }
    };
    Some(word)
}

/// A UDP packet over IPv4 with this much in it.
fn v4(payload: usize) -> Vec<u8> {
    let mut header = Ipv4Header {
        identification: 1.into(),
        ..Ipv4Header::new(UDP, [10, 1, 0, 1], [10, 2, 0, 1], (28 + payload) as u16)
    };
    header.finish();
    let length = (8 + payload) as u16;
    let mut datagram = [&[0x12, 0x34, 0x56, 0x78][..], &length.to_be_bytes(), &[0; 2]].concat();
    datagram.resize(8 + payload, 0xa5);
    let pseudo = Sum::pseudo_v4([10, 1, 0, 1].into(), [10, 2, 0, 1].into(), UDP, datagram.len());
    let checksum = (pseudo + Sum::of(&datagram)).checksum();
    datagram[6..8].copy_from_slice(&checksum);
    [header.as_bytes(), &datagram].concat()
}

/// The same over IPv6, with a protocol whose payload is not parsed.
fn v6(payload: usize) -> Vec<u8> {
    let header = Ipv6Header::new(253, [0xfd; 16], [0xfe; 16], payload as u16);
    [header.as_bytes(), &vec![0x5a; payload]].concat()
}

struct Case {
    transform: Transform,
    mode: Mode,
    /// The whole sequence number, if it is extended; the high half is not sent.
    extended: bool,
    sequence: u64,
    inner: Vec<u8>,
}

impl Case {
    fn protection(&self, keys: &SecretBytes) -> SaKeys {
        let random = &mut random::System::default();
        SaKeys::new(self.transform, self.extended, self.mode, keys, &AwsLc, random).expect("keys fit")
    }

    /// What is sealed, and what it is.
    fn payload(&self) -> (&[u8], u8) {
        let is_v4 = self.inner[0] >> 4 == 4;
        match (self.mode, is_v4) {
            (Mode::Tunnel, true) => (&self.inner, 4),
            (Mode::Tunnel, false) => (&self.inner, 41),
            (Mode::Transport | Mode::BumpInTheWire, true) => (&self.inner[20..], self.inner[9]),
            (Mode::Transport | Mode::BumpInTheWire, false) => (&self.inner[40..], self.inner[6]),
        }
    }

    fn check(&self, oracle: &mut Oracle) -> bool {
        let keys = SecretBytes::new(
            (0..self.transform.key_material_length()).map(|byte| (byte * 7 + 1) as u8).collect(),
        );
        let Some(words) = words(self.transform, keys.expose()) else { return false };
        let protection = self.protection(&keys);
        let (payload, next_header) = self.payload();
        let mut batch = Batch::new(8192);
        batch.append(payload.len()).expect("it fits").copy_from_slice(payload);
        protection.encapsulate(&mut batch, 0, SPI, self.sequence, next_header);
        protection.seal(&mut batch, 0..1, SPI, self.sequence).expect("the engine works");
        let (low, high) = (self.sequence as u32, self.sequence >> 32);
        let esn = if self.extended { high.to_string() } else { String::from("-") };
        let mode = if self.mode == Mode::Tunnel { "tunnel" } else { "transport" };
        let (inner, sealed) = (hex(&self.inner), hex(batch.packet(0)));
        let (opened, theirs) = oracle.ask(&format!("{words} {esn} {low} {mode} {inner} {sealed}"));
        assert_eq!(theirs, batch.packet(0), "{}, {mode}, esn {esn}: sealed", self.transform.name());
        let gmac = matches!(self.transform, Transform::Gmac(_));
        let expected = if gmac { payload } else { &self.inner };
        assert_eq!(opened, expected, "{}, {mode}, esn {esn}: opened", self.transform.name());
        self.open(&protection, &theirs);
        true
    }

    /// Opens what the other side sealed.
    fn open(&self, protection: &SaKeys, sealed: &[u8]) {
        let (payload, next_header) = self.payload();
        let mut window = ReplayWindow::new(64);
        window.accept(self.sequence - 1).expect("new");
        let sequence = protection.infer_sequence(sealed, &window).expect("there is one");
        assert_eq!(sequence, self.sequence);
        let mut batch = Batch::new(8192);
        batch.append(sealed.len()).expect("it fits").copy_from_slice(sealed);
        let drops = DropCounters::default();
        protection.open(&mut batch, 0..1, &[sequence], &drops);
        assert_eq!(drops.read(DropReason::BadTag), 0);
        let stripped = protection.decapsulate(&mut batch, 0);
        assert_eq!(stripped, Ok(Inner::Payload { next_header, length: payload.len() }));
        assert_eq!(batch.packet(0), payload);
    }
}

#[test]
fn every_cipher_is_that_of_scapy() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut compared = 0;
    for transform in Transform::all() {
        for mode in [Mode::Tunnel, Mode::Transport] {
            for (extended, sequence) in [(false, 1), (false, 0xffff_fffe), (true, 2), (true, 0x5_0000_0001)] {
                for inner in [v4(1), v4(37), v6(100)] {
                    assert!(IpPacket::parse(&inner).is_ok());
                    let case = Case { transform, mode, extended, sequence, inner };
                    compared += usize::from(case.check(&mut oracle));
                }
            }
        }
    }
    assert!(compared > 1000, "only {compared} packets were compared");
}
