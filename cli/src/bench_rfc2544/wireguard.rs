//! The keys of `postern bench rfc2544 --wireguard`: the tester's own file, in the words of wg-quick or of Postern.

use super::policies::Frames;
use bench::Outcome;
use bench::rfc2544::{Stream, WireGuard};
use clap::{Args, ValueEnum};
use config::import::{self, Disk, Files, Format, Source};
use config::settings::{self, Settings};

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct WireGuardArguments {
    /// The device is a WireGuard gateway: the tester's file as its peer, with PrivateKey, ListenPort, and PublicKey, Endpoint and AllowedIPs of the device
    #[arg(long, value_name = "FILE", conflicts_with_all = ["esp", "sa", "esp_side", "esp_sequence"])]
    wireguard: Option<PathBuf>,
    /// The tester's outer address, in the network of the device's Endpoint
    #[arg(long, value_name = "ADDRESS", requires = "wireguard")]
    wireguard_address: Option<IpAddr>,
    /// The port behind the WireGuard side of the device
    #[arg(long, value_enum, default_value = "rx", requires = "wireguard")]
    wireguard_side: Side,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Tx,
    Rx,
}

/// The port that a file without ListenPort gets.
const USUAL_PORT: u16 = 51_820;

impl WireGuardArguments {
    /// The tester as a peer; none without `--wireguard`.
    pub(super) fn read(&self, frames: &Frames, streams: &[Vec<Stream>; 2]) -> Outcome<Option<WireGuard>> {
        let Some(path) = &self.wireguard else { return Ok(None) };
        let name = path.display();
        let own = self.wireguard_address.ok_or(
            "--wireguard needs the tester's outer address\n  fix: --wireguard-address ADDRESS in the network of Endpoint",
        )?;
        let interface = interface(path)?;
        let port = interface.port.unwrap_or(USUAL_PORT);
        let mut peers = interface.peers.into_values();
        let (Some(device), None) = (peers.next(), peers.next()) else {
            return Err(format!("{name}: the device is one peer\n  fix: one section [Peer]").into());
        };
        let endpoint = device.endpoint.ok_or_else(|| {
            let what = if device.host.is_some() { "a name as its Endpoint" } else { "no Endpoint" };
            format!("{name}: the peer has {what}\n  fix: Endpoint = ADDRESS:PORT of the device")
        })?;
        if endpoint.is_ipv4() != own.is_ipv4() || endpoint.ip() == own {
            return Err(format!(
                "--wireguard-address {own}: the Endpoint is {endpoint}\n  fix: another address of the same family"
            )
            .into());
        }
        // The device in memory passes frames on: the tester is at both ends.
        let ports = if frames.in_memory {
            [true; 2]
        } else {
            [self.wireguard_side == Side::Tx, self.wireguard_side == Side::Rx]
        };
        let clear = usize::from(ports[0]);
        // What the device sends to the tester comes from there.
        let behind_device = streams[clear].iter().map(|stream| stream.source);
        let mut missing =
            behind_device.filter(|address| !device.allowed_ips.iter().any(|prefix| prefix.contains(address)));
        if let Some(address) = missing.next() {
            return Err(format!(
                "{name}: {address} is behind the device, and not in AllowedIPs\n  fix: AllowedIPs with all addresses of the test frames"
            )
            .into());
        }
        Ok(Some(WireGuard {
            ports,
            private_key: interface.private_key,
            preshared_key: device.preshared_key,
            device: device.public_key,
            own: SocketAddr::new(own, port),
            endpoint,
        }))
    }
}

/// The one WireGuard interface of a file of wg-quick, or of a configuration.
fn interface(path: &Path) -> Outcome<settings::WireGuard> {
    let (disk, name) = (Disk { root: PathBuf::from("/") }, path.display().to_string());
    let text = disk.read(path).map_err(|error| format!("{name}: {error}"))?;
    let source = Source { name: name.clone(), text };
    let text = match import::detect(&source) {
        Some(Format::WgQuick) => {
            import::import(Format::WgQuick, &[source], &disk, &[]).map_err(|error| error.to_string())?.text
        }
        _ => source.text,
    };
    let failed = |errors: Vec<config::ConfigError>| {
        let first = errors.into_iter().next();
        first.map_or_else(|| name.clone(), |error| format!("{name}: {error}"))
    };
    let tree = config::parse(text.as_str()?).map_err(failed)?;
    let (settings, _) = Settings::new(&tree).map_err(failed)?;
    let mut interfaces = settings.wireguard.into_values();
    match (interfaces.next(), interfaces.next()) {
        (Some(interface), None) => Ok(interface),
        _ => Err(format!(
            "{name}: not one WireGuard interface\n  fix: a file of wg-quick with [Interface] and [Peer]"
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::rfc2544::Protocol;

    const FILE: &str = "[Interface]\nPrivateKey = CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICEg=\nListenPort = 51900\n\
                        Address = 198.19.0.2/16\n[Peer]\nPublicKey = /bfcS7vEnkZWvEEJiL5sL8VSB2Tn37NrNxNhHnUHUF8=\n\
                        AllowedIPs = 198.18.0.0/24, 2001:2::/49\nEndpoint = 192.0.2.1:51820\n";

    fn read(text: &str, own: &str, count: usize) -> Outcome<Option<WireGuard>> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it can be written");
        let addresses = ["198.18.0.2", "198.19.0.2"].map(|it| it.parse().expect("literal"));
        let frames =
            Frames { addresses, protocol: Protocol::Udp, both: true, in_memory: false, streams: count };
        let forth = Stream::spread(addresses[0], addresses[1], count);
        let streams = [forth.clone(), forth.into_iter().map(Stream::back).collect()];
        WireGuardArguments {
            wireguard: Some(file.path().to_owned()),
            wireguard_address: own.parse().ok(),
            wireguard_side: Side::Rx,
        }
        .read(&frames, &streams)
    }

    #[test]
    fn the_file_of_a_peer_is_that_of_the_tester() {
        let found = read(FILE, "192.0.2.2", 1).expect("it is right").expect("there is a file");
        assert_eq!((found.ports, found.own), ([false, true], "192.0.2.2:51900".parse().expect("literal")));
        assert_eq!(found.endpoint, "192.0.2.1:51820".parse().expect("literal"));
        assert!(
            found.preshared_key.is_zero()
                && found.addresses(1) == ["192.0.2.2".parse::<IpAddr>().expect("literal")]
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        let error = |text: &str, own, count| {
            read(text, own, count).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let no_address = error(FILE, "", 1);
        assert!(no_address.contains("fix: --wireguard-address"), "{no_address}");
        let other_family = error(FILE, "2001:db8::2", 1);
        assert!(other_family.contains("the same family"), "{other_family}");
        let foreign = error(FILE, "192.0.2.2", 2);
        assert!(foreign.contains("198.18.1.2 is behind the device, and not in AllowedIPs"), "{foreign}");
        let nowhere = error(&FILE.replace("Endpoint = 192.0.2.1:51820\n", ""), "192.0.2.2", 1);
        assert!(nowhere.contains("the peer has no Endpoint"), "{nowhere}");
        let two = error(
            &format!(
                "{FILE}[Peer]\nPublicKey = gT8vEnkZWvEEJiL5sL8VSB2Tn37NrNxNhHnUHUF8/bc=\nAllowedIPs = 10.0.0.0/8\n"
            ),
            "192.0.2.2",
            1,
        );
        assert!(two.contains("one section [Peer]"), "{two}");
        let other = error("set system host-name x\n", "192.0.2.2", 1);
        assert!(other.contains("fix: "), "{other}");
    }
}
