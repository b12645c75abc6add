//! Commands of VyOS that another command or program replaces here.

use crate::operational;

/// The first words of commands, longer ones first, and what to type instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("show log vpn", LOG),
    ("show log ipsec", LOG),
    ("show log kernel", "journalctl -k"),
    ("show log tail", "journalctl -n 100"),
    ("show log", LOG),
    ("monitor log", "journalctl -f -u postern"),
    ("monitor", "watch -n 1 postern show vpn ipsec sa"),
    ("show vpn ipsec remote-access", "postern show vpn ipsec sa; remote access is not supported"),
    ("set", "postern configure -c 'set ...' -c commit"),
    ("delete", "postern configure -c 'delete ...' -c commit"),
    ("commit", "postern configure"),
    ("rollback", "postern configure -c 'rollback 1' -c commit"),
    ("save", "postern configure -c save"),
    ("show vpn ipsec site-to-site", "postern show vpn ipsec connections"),
    ("show vpn ipsec peer", "postern show vpn debug peer NAME"),
    ("show vpn ipsec profile", "postern show vpn ipsec connections; DMVPN is not supported"),
    ("show vpn peer", "postern show vpn debug peer NAME"),
    ("show system acceleration", "postern show system acceleration, postern doctor crypto"),
    ("show system processes", "top -b -n 1"),
    ("show system", "postern show system cpu"),
    ("show hardware cpu", "postern show system cpu"),
    ("show cpu-info", "postern show system cpu"),
    ("show hardware", SENSORS),
    ("show environment", SENSORS),
    ("show version kernel", "uname -r"),
    ("show version", "postern --version"),
    ("show interfaces", "ip -brief address, postern show interfaces wireguard"),
    ("show ip route", "ip route show table all"),
    ("generate wireguard", "postern generate pki wireguard key-pair"),
    ("restart", "postern restart vpn, systemctl restart postern"),
    ("reset vpn ipsec", "postern reset vpn ipsec site-to-site peer NAME"),
    ("reboot", "systemctl reboot"),
    ("poweroff", "systemctl poweroff"),
];

const LOG: &str = "journalctl -u postern";
const SENSORS: &str = "sensors, of the package lm-sensors";

/// The error for a command of VyOS that does not exist here.
pub(crate) fn instead(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    // A command of ours with a wrong word further on is not one of VyOS.
    let ours = operational::known_words(&words);
    let begins = |known: &str| {
        let mut left = words.iter();
        known.split(' ').all(|word| left.next() == Some(&word))
    };
    let (known, fix) =
        ELSEWHERE.iter().find(|(known, _)| begins(known) && known.split(' ').count() >= ours)?;
    // The words that follow may be a secret.
    Some(format!("`{known}` is not a command of postern\n  fix: {fix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<String> {
        instead(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_of_a_router_names_what_does_the_same() {
        for (line, fix) in [
            ("show log vpn ipsec", "journalctl -u postern"),
            ("show log tail 100", "journalctl -n 100"),
            ("show cpu-info", "postern show system cpu"),
            ("reboot now", "systemctl reboot"),
            ("commit", "postern configure"),
        ] {
            let said = said(line).unwrap_or_default();
            assert!(said.starts_with('`') && said.contains("\n  fix: ") && said.contains(fix), "{said}");
        }
        assert_eq!(said("show interfaces wireguard wg0 sumary"), None, "clap reports the wrong word");
        assert!(said("show interfaces ethernet").is_some_and(|said| said.contains("ip -brief address")));
        assert_eq!((said("shwo log"), said("show logs"), said("")), (None, None, None));
    }

    #[test]
    fn the_more_precise_comes_first() {
        for (at, (later, _)) in ELSEWHERE.iter().enumerate() {
            let hides = |(earlier, _): &&(&str, &str)| later.starts_with(&format!("{earlier} "));
            assert!(ELSEWHERE[..at].iter().find(hides).is_none(), "{later}");
        }
    }
}
