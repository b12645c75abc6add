//! What `postern secgw` and ipsec-secgw read: the file of the encryptors, the words of their command line, and the keys for the tester.
//!
//! Two encryptors are one process with four ports, as two that never sleep would take each other's core. SA 5 is for packets from left to
//! right, SA 6 for those from right to left.

use super::protocol::Setup;
use crate::Outcome;
use crate::rfc2544::{Addresses, Esp, EspSa, OuterAddresses};
use crypto::SecretBytes;
use std::fmt::Write as _;

/// The outer address of the left encryptor.
pub(super) const LEFT: &str = "172.16.1.5";
/// That of the right one.
pub(super) const RIGHT: &str = "172.16.2.5";

/// The keys of both SAs: AES-128 and the salt.
pub(super) struct Keys([[u8; 20]; 2]);

impl Keys {
    pub fn random() -> Outcome<Self> {
        let mut bytes = [[0; 20]; 2];
        let mut source = std::fs::File::open("/dev/urandom")?;
        for key in &mut bytes {
            std::io::Read::read_exact(&mut source, key)?;
        }
        Ok(Self(bytes))
    }

    /// The tester in place of the right encryptor.
    pub fn esp(&self) -> Esp {
        let sa = |place: usize, source: &str, destination: &str| EspSa {
            spi: 5 + place as u32,
            transform: tunnel::esp::Transform::Aead(crypto::Cipher::Aes128Gcm, 16),
            keys: SecretBytes::new(self.0[place].to_vec()),
            extended_from: None,
            tunnel: Some(OuterAddresses {
                source: source.parse().expect("literal"),
                destination: destination.parse().expect("literal"),
            }),
            in_udp: false,
        };
        Esp {
            ports: [false, true],
            sealed_by_device: vec![sa(0, LEFT, RIGHT)],
            opened_by_device: [Vec::new(), vec![sa(1, RIGHT, LEFT)]],
            ..Esp::default()
        }
    }

    /// The file.
    pub fn file(&self, setup: Setup) -> String {
        let mut text = String::new();
        for (spi, net) in [(5, "198.19.0.0/16"), (6, "198.18.0.0/16")] {
            for direction in ["out", "in"] {
                let is_here = !setup.is_single() || (spi == 5) == (direction == "out");
                if is_here {
                    // The SAs stay: without one, `-u` is refused.
                    let action =
                        if setup == Setup::Bypass { "bypass".to_owned() } else { format!("protect {spi}") };
                    let _ = writeln!(
                        text,
                        "sp ipv4 {direction} esp {action} pri 1 dst {net} sport 0:65535 dport 0:65535"
                    );
                }
            }
        }
        text += "sp ipv6 out esp discard pri 1 sport 0:65535 dport 0:65535\n";
        text += "sp ipv6 in esp discard pri 1 sport 0:65535 dport 0:65535\n";
        for (spi, [source, destination]) in [(5, [LEFT, RIGHT]), (6, [RIGHT, LEFT])] {
            let key = self.0[spi - 5].map(|byte| format!("{byte:02x}")).join(":");
            for direction in ["out", "in"] {
                let is_here = !setup.is_single() || (spi == 5) == (direction == "out");
                if is_here {
                    let _ = writeln!(
                        text,
                        "sa {direction} {spi} aead_algo aes-128-gcm aead_key {key} mode ipv4-tunnel src {source} dst {destination}"
                    );
                }
            }
        }
        text + &routes(setup)
    }
}

/// The routes, and the stations behind the ports.
fn routes(setup: Setup) -> String {
    let routes: &[(&str, u8)] = match setup {
        Setup::One => &[("198.18.0.0/16", 0), ("172.16.2.0/24", 1)],
        Setup::Bypass => &[("198.18.0.0/16", 0), ("198.19.0.0/16", 1)],
        Setup::Pair | Setup::Memory => {
            &[("198.18.0.0/16", 0), ("172.16.2.0/24", 1), ("172.16.1.0/24", 2), ("198.19.0.0/16", 3)]
        }
    };
    let last = routes.len() - 1;
    let mut text = String::new();
    for &(net, port) in routes {
        let tester = usize::from(usize::from(port) == last);
        let mac = Addresses::mac(tester).map(|byte| format!("{byte:02x}")).join(":");
        let _ = writeln!(text, "rt ipv4 dst {net} port {port}\nneigh port {port} {mac}");
    }
    text
}

/// The words behind `--`, without the file.
pub(super) fn words(setup: Setup, core: usize) -> String {
    let (ports, all, unprotected) = if setup.is_single() { (2, "0x3", "0x2") } else { (4, "0xf", "0x6") };
    let queues: Vec<String> = (0..ports).map(|port| format!("({port},0,{core})")).collect();
    // Outer headers of the longest frames, and no fragments.
    format!("-P -p {all} -u {unprotected} -w 64 --mtu 1600 --config {}", queues.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::engine::aws_lc::AwsLc;
    use gateway::secgw::bed;
    use port::memory::ring;

    #[test]
    fn files_and_words_of_every_setup_are_accepted() {
        for (setup, ports) in [(Setup::One, 2), (Setup::Pair, 4), (Setup::Bypass, 2)] {
            let file = Keys::random().expect("there are random bytes").file(setup);
            let vdevs: String = (0..ports).map(|it| format!("--vdev net_af_xdp{it},iface=e{it} ")).collect();
            let line = format!("-l 1 {vdevs}-- {} -f x", words(setup, 1));
            let halves = (0..ports).map(|_| -> bed::Halves {
                let (transmit, receive) = ring(64);
                (Box::new(receive), Box::new(transmit))
            });
            let worker = bed::worker(&file, &line, &AwsLc, halves);
            let worker = worker.unwrap_or_else(|error| panic!("{error}\n{file}"));
            let sas = worker.statistics().to_string().lines().filter(|line| line.starts_with("sa ")).count();
            assert_eq!(sas, ports, "{file}");
        }
    }
}
