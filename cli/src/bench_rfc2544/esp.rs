//! The keys of `postern bench rfc2544 --esp`: `sa` lines of ipsec-secgw, from the file of the device or from the command line.

use bench::Outcome;
use bench::rfc2544::{Esp, EspSa, Family, Protocol};
use clap::{Args, ValueEnum};
use config::secgw::settings::{self, Action, Direction, Mode, Policy, Sa, Settings};
use config::secgw::{self, Context, Severity};
use crypto::SecretBytes;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct EspArguments {
    /// The device encrypts: its file for ipsec-secgw, of which `sa` lines have SPIs and keys, and `sp` lines say which SA is used
    #[arg(long, value_name = "FILE")]
    esp: Option<PathBuf>,
    /// A line of such a file without the word sa; may be given more than once. Other users of the machine see its keys
    #[arg(long, value_name = "LINE")]
    sa: Vec<String>,
    /// The port behind the encrypting side of the device; both if ESP goes through the device
    #[arg(long, value_enum)]
    esp_side: Option<Side>,
    /// The first ESP sequence number; more than that of the last run at a device with a replay window
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    esp_sequence: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Tx,
    Rx,
    Both,
}

/// The test frames, of which the policies see these fields.
pub(super) struct Frames {
    pub(super) addresses: [IpAddr; 2],
    pub(super) protocol: Protocol,
    pub(super) both: bool,
    pub(super) in_memory: bool,
}

impl EspArguments {
    /// The ports with ESP and the SAs; none without `--esp` and `--sa`.
    pub(super) fn read(&self, frames: &Frames) -> Outcome<Option<Esp>> {
        if self.esp.is_none() && self.sa.is_empty() {
            if self.esp_side.is_some() || self.esp_sequence.is_some() {
                return Err("--esp-side and --esp-sequence need keys\n  fix: --esp FILE, or --sa LINE".into());
            }
            return Ok(None);
        }
        if frames.addresses[0].is_ipv6() {
            return Err("ESP is tested with frames over IPv4\n  fix: leave out --ipv6".into());
        }
        let side = self.esp_side.unwrap_or(if frames.in_memory { Side::Both } else { Side::Rx });
        if frames.in_memory && side != Side::Both {
            return Err(
                "the device in memory copies frames, and does not encrypt\n  fix: --esp-side both".into()
            );
        }
        let settings = self.settings()?;
        let ports = [side != Side::Rx, side != Side::Tx];
        let outbound = settings.sas.iter().filter(|sa| sa.direction == Direction::Outbound);
        let sealed_by_device: Vec<EspSa> = match side {
            // What goes through the device is what the tester has sealed.
            Side::Both => outbound.filter_map(|sa| esp_sa(sa).ok()).collect(),
            Side::Tx | Side::Rx => outbound.map(esp_sa).collect::<Outcome<_>>()?,
        };
        let is_sealed = ports[1] || frames.both && ports[0];
        if sealed_by_device.is_empty() && is_sealed && side != Side::Both {
            return Err("no SA that the device seals with\n  fix: a line that begins with sa out".into());
        }
        let mut opened_by_device = [None, None];
        for from in 0..=usize::from(frames.both) {
            if ports[from] {
                opened_by_device[from] = Some(frames.sa_from(&settings, from, side == Side::Both)?);
            }
        }
        if let [Some(forth), Some(back)] = &opened_by_device
            && forth.spi == back.spi
        {
            let text = format!(
                "both directions would use the sequence numbers of SPI {}\n  fix: a second line that begins with sa in",
                forth.spi
            );
            return Err(text.into());
        }
        Ok(Some(Esp { ports, sealed_by_device, opened_by_device, first_sequence: self.esp_sequence }))
    }

    /// What the file and the lines of the command line say.
    fn settings(&self) -> Outcome<Settings> {
        let mut text = Vec::new();
        if let Some(path) = &self.esp {
            text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            text.push(b'\n');
        }
        let mut lines = String::new();
        for line in &self.sa {
            writeln!(lines, "sa {line}")?;
        }
        text.extend(lines.as_bytes());
        let loaded = secgw::read(&text, &Context::default());
        let name = self.esp.as_ref().map_or("--sa".into(), |path| path.display().to_string());
        match loaded.findings.iter().find(|finding| finding.severity == Severity::Error) {
            Some(error) => Err(error.in_file(&name).to_string().into()),
            None => Ok(loaded.settings),
        }
    }
}

impl Frames {
    /// The SA that the device opens frames from this port with: that of the policy for them, or the next if there are no policies.
    fn sa_from(&self, settings: &Settings, from: usize, is_each_side: bool) -> Outcome<EspSa> {
        let mut policies = settings.policies_of(settings::Family::V4, Direction::Inbound).peekable();
        if policies.peek().is_some() {
            let policy = policies.filter(|policy| self.matches(policy, from)).max_by_key(|it| it.priority);
            return match policy.map(|policy| (policy.line, policy.action)) {
                Some((line, Action::Protect(spi))) => {
                    let sa = settings.sas_with(Direction::Inbound, spi).next();
                    let sa = sa
                        .ok_or_else(|| format!("line {line} needs an SA in with SPI {spi}: there is none"))?;
                    esp_sa(sa)
                }
                Some((line, _)) => {
                    let [source, destination] = [self.addresses[from], self.addresses[1 - from]];
                    Err(format!(
                        "line {line}: no SA for frames from {source} to {destination}\n  fix: --addresses of a policy that says protect"
                    )
                    .into())
                }
                None => {
                    let [source, destination] = [self.addresses[from], self.addresses[1 - from]];
                    Err(format!(
                        "no policy for frames from {source} to {destination}\n  fix: --addresses of a policy"
                    )
                    .into())
                }
            };
        }
        let mut inbound = settings.sas.iter().filter(|sa| sa.direction == Direction::Inbound);
        let sa = if is_each_side { inbound.nth(from) } else { inbound.next() };
        esp_sa(sa.ok_or(
            "no SA that the device opens\n  fix: a line that begins with sa in for each direction of ESP",
        )?)
    }

    /// Whether a policy is for the frames from a port.
    fn matches(&self, policy: &Policy, from: usize) -> bool {
        let [source, destination] = [self.addresses[from], self.addresses[1 - from]];
        let [source_port, destination_port] = self.protocol.first_words(Family::V4);
        policy.source.contains(&source)
            && policy.destination.contains(&destination)
            && policy.protocol.contains(self.protocol.number(Family::V4))
            && policy.source_ports.contains(source_port)
            && policy.destination_ports.contains(destination_port)
    }
}

/// An SA as the tester uses it.
fn esp_sa(sa: &Sa) -> Outcome<EspSa> {
    let refuse = |what: &str, fix: &str| format!("line {}: {what}\n  fix: {fix}", sa.line);
    let Mode::Tunnel { source: IpAddr::V4(source), destination: IpAddr::V4(destination) } = sa.mode else {
        return Err(refuse("the tester has ESP in tunnel mode over IPv4 only", "mode ipv4-tunnel").into());
    };
    if sa.udp_encapsulation {
        return Err(refuse("the tester has no ESP in UDP", "delete udp-encap").into());
    }
    let Some(transform) = sa.protection.transform() else {
        let name = sa.protection.name();
        return Err(refuse(&format!("{name} is not served"), "a cipher other than DES, with a MAC").into());
    };
    // CCM has 3 bytes of salt; the format has a fourth, which is not used.
    let keys = SecretBytes::new(sa.keys.expose()[..transform.key_material_length()].to_vec());
    let extended_from = (sa.extended_sequence > 0).then_some(sa.extended_sequence);
    Ok(EspSa { spi: sa.spi, transform, keys, extended_from, source, destination })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13";

    fn frames() -> Frames {
        let addresses = [[10, 10, 0, 1].into(), [10, 20, 0, 1].into()];
        Frames { addresses, protocol: Protocol::Udp, both: true, in_memory: false }
    }

    fn read(frames: &Frames, side: Side, lines: &[&str]) -> Outcome<Option<Esp>> {
        let sa = lines.iter().map(|&line| line.to_owned()).collect();
        EspArguments { esp: None, sa, esp_side: Some(side), esp_sequence: None }.read(frames)
    }

    fn line(direction: &str, spi: u32) -> String {
        format!(
            "{direction} {spi} aead_algo aes-128-gcm aead_key {KEY} mode ipv4-tunnel src 192.0.2.1 dst 198.51.100.1"
        )
    }

    #[test]
    fn the_sa_of_the_policy_with_the_highest_priority_is_used() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = format!(
            "sp ipv4 in esp protect 2000 pri 1 src 10.20.0.0/16 dst 10.10.0.0/16 sport 0:65535 dport 0:65535\n\
             sp ipv4 in esp protect 2001 pri 2 src 10.20.0.0/16 dst 10.10.0.0/16 sport 0:65535 dport 0:65535\n\
             sp ipv4 in esp protect 2002 pri 3 src 10.30.0.0/16 dst 10.10.0.0/16 sport 0:65535 dport 0:65535\n\
             sa {}\nsa {}\nsa {}\nsa {}\n",
            line("in", 2000),
            line("in", 2001),
            line("in", 2002),
            line("out", 1000)
        );
        std::fs::write(file.path(), text).expect("it can be written");
        let path = Some(file.path().to_owned());
        let of = |frames: &Frames| {
            let (sa, esp_side, esp_sequence) = (Vec::new(), None, Some(7));
            EspArguments { esp: path.clone(), sa, esp_side, esp_sequence }.read(frames)
        };
        let esp = of(&frames()).expect("it is right").expect("there is a file");
        assert_eq!((esp.ports, esp.first_sequence), ([false, true], Some(7)));
        assert_eq!(esp.opened_by_device[1].as_ref().map(|sa| sa.spi), Some(2001));
        assert!(esp.opened_by_device[0].is_none() && esp.sealed_by_device[0].spi == 1000);
        let away = Frames { addresses: [[10, 10, 0, 1].into(), [10, 99, 0, 1].into()], ..frames() };
        let error = of(&away).err().expect("no policy").to_string();
        assert!(error.contains("no policy for frames from 10.99.0.1 to 10.10.0.1"), "{error}");
    }

    #[test]
    fn what_the_tester_cannot_do_is_refused_in_words() {
        let both = |lines: &[&str]| read(&frames(), Side::Both, lines).err().map(|error| error.to_string());
        let (first, second) = (line("in", 2000), line("in", 2001));
        assert_eq!(both(&[&first, &second]), None);
        assert!(both(&[&first]).is_some_and(|error| error.contains("sa in for each direction")));
        assert!(both(&[&first, &first]).is_some_and(|error| error.contains("sequence numbers of SPI 2000")));
        let six = first.replace("ipv4", "ipv6").replace("192.0.2.1", "::1").replace("198.51.100.1", "::2");
        assert!(both(&[&six, &second]).is_some_and(|error| error.contains("tunnel mode over IPv4")));
        assert!(both(&["in 2000 nothing"]).is_some_and(|error| error.starts_with("--sa:1: error: ")));
        let rx = read(&frames(), Side::Rx, &[&first]).err().expect("nothing is sealed").to_string();
        assert!(rx.contains("sa out"), "{rx}");
        let memory = Frames { in_memory: true, ..frames() };
        let error = read(&memory, Side::Rx, &[&first]).err().expect("memory does not encrypt").to_string();
        assert!(error.contains("--esp-side both"), "{error}");
    }
}
