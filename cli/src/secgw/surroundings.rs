//! Traps of neither a file nor its words: the kernel beside the gateway, and the time before it.

use config::secgw::settings::{Direction, Settings};
use config::secgw::{CommandLine, Driver, Finding, Severity};
use std::path::Path;

/// All of them.
pub(super) fn check(settings: &Settings, command_line: Option<&CommandLine>) -> Vec<Finding> {
    let forwarding = command_line.and_then(|line| forwarding(line, Path::new("/proc/sys/net")));
    restarts(settings).into_iter().chain(forwarding).collect()
}

/// SAs whose nonces a restart repeats: a nonce is made from the sequence number, which a start does not remember.
fn restarts(settings: &Settings) -> Option<Finding> {
    let repeats = settings.sas.iter().filter(|sa| {
        sa.direction == Direction::Outbound && sa.extended_sequence <= 1 && sa.protection.counts()
    });
    let spis: Vec<String> = repeats.map(|sa| sa.spi.to_string()).collect();
    let first = spis.first()?;
    let which = if spis.len() == 1 {
        format!("SA out {first} begins")
    } else {
        format!("SA out {first} and {} others begin", spis.len() - 1)
    };
    Some(Finding {
        line: None,
        severity: Severity::Note,
        rule: "restart",
        text: format!("{which} at sequence number 1 at each start: after a restart, nonces repeat, and show what was encrypted"),
        fix: "before each start write new keys, or esn N with N above all numbers sent; or write policies with ike PEER".to_owned(),
    })
}

/// Ports whose frames the kernel forwards too: a packet socket takes nothing away from the kernel.
fn forwarding(command_line: &CommandLine, settings: &Path) -> Option<Finding> {
    let ports = command_line.eal.ports().filter(|device| device.driver == Driver::AfPacket);
    let interfaces: Vec<&String> = ports
        .filter_map(|device| Some(&device.arguments.iter().find(|(key, _)| key == "iface")?.1))
        .collect();
    let forwarded: Vec<String> = ["ipv4", "ipv6"]
        .iter()
        .flat_map(|family| interfaces.iter().map(move |interface| (family, interface)))
        .filter(|(family, interface)| {
            let switch = settings.join(family).join("conf").join(interface).join("forwarding");
            std::fs::read(switch).is_ok_and(|value| value.starts_with(b"1"))
        })
        .map(|(family, interface)| format!("net.{family}.conf.{interface}.forwarding"))
        .collect();
    if forwarded.is_empty() {
        return None;
    }
    let switched = forwarded.iter().fold(String::new(), |text, name| format!("{text} {name}=0"));
    Some(Finding {
        line: None,
        severity: Severity::Warning,
        rule: "kernel-forwards",
        text: format!(
            "{} is 1: the kernel forwards packets from net_af_packet in clear, beside the gateway",
            forwarded[0]
        ),
        fix: format!("sysctl -w{switched}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str =
        "--vdev net_af_packet0,iface=a --vdev net_af_xdp0,iface=b -- -p 3 -u 2 -f x --config (0,0,0),(1,0,0)";

    fn command_line() -> CommandLine {
        let words: Vec<String> = WORDS.split(' ').map(str::to_owned).collect();
        CommandLine::read(&words, 2).expect("the words are accepted")
    }

    fn restarts_of(words: &str) -> Option<String> {
        let key = vec!["a1"; 20].join(":");
        let file = format!("sa out 5 {} mode transport\n", words.replace("KEY", &key));
        let loaded = config::secgw::read(file.as_bytes(), &command_line().context(false));
        assert!(!config::secgw::is_refused(&loaded.findings), "{:?}", loaded.findings);
        restarts(&loaded.settings).map(|finding| finding.text)
    }

    #[test]
    fn nonces_that_a_restart_repeats_are_named() {
        let gcm = restarts_of("aead_algo aes-128-gcm aead_key KEY").expect("its nonces repeat");
        assert!(gcm.starts_with("SA out 5 begins at sequence number 1"), "{gcm}");
        assert_eq!(restarts_of("aead_algo aes-128-gcm aead_key KEY esn 5000"), None);
        assert_eq!(restarts_of("cipher_algo null auth_algo sha1-hmac auth_key KEY"), None);
    }

    #[test]
    fn a_kernel_that_forwards_beside_a_packet_socket_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let say = |interface: &str, value: &str| {
            let place = folder.path().join("ipv4/conf").join(interface);
            std::fs::create_dir_all(&place).expect("a folder");
            std::fs::write(place.join("forwarding"), value).expect("a file");
        };
        // AF_XDP takes its frames away from the kernel.
        say("a", "0\n");
        say("b", "1\n");
        assert_eq!(forwarding(&command_line(), folder.path()), None);
        say("a", "1\n");
        let finding = forwarding(&command_line(), folder.path()).expect("the kernel forwards");
        assert_eq!(finding.fix, "sysctl -w net.ipv4.conf.a.forwarding=0");
        assert!(finding.text.contains("in clear"));
    }
}
