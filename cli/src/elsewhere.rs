//! Commands of VyOS that another command or program replaces here.

use crate::operational;

/// What to do for a command that was left out.
#[cfg(not(all(feature = "bench", feature = "openvpn", feature = "secgw")))]
macro_rules! without {
    ($feature:literal) => {
        concat!(
            "use a program that was built with the cargo feature `",
            $feature,
            "`: this one is for routers with little flash"
        )
    };
}

/// The first words of commands, longer ones first, and what to type instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("set system image", IMAGE),
    ("delete system image", IMAGE),
    ("rename system image", IMAGE),
    ("install image", IMAGE),
    ("set", "postern configure -c 'set ...' -c commit"),
    ("delete", "postern configure -c 'delete ...' -c commit"),
    ("commit", "postern configure"),
    ("rollback", "postern configure -c 'rollback 1' -c commit"),
    ("save", "postern configure -c save"),
    ("show vpn ipsec site-to-site", "postern show vpn ipsec connections"),
    ("show vpn ipsec peer", "postern show vpn debug peer NAME"),
    ("show vpn ipsec profile", "postern show vpn ipsec connections; DMVPN is not supported"),
    ("show vpn peer", "postern show vpn debug peer NAME"),
    ("show system image", IMAGE),
    ("show system", "postern show system cpu"),
    ("show ip route", "ip route show table all"),
    ("restart", "postern restart vpn, systemctl restart postern"),
    ("reset vpn ipsec", "postern reset vpn ipsec site-to-site peer NAME"),
    ("add system image", IMAGE),
    ("monitor", "postern monitor vpn, postern monitor log"),
    ("poweroff", "systemctl poweroff"),
    #[cfg(not(feature = "bench"))]
    ("bench", without!("bench")),
    #[cfg(not(feature = "bench"))]
    ("demo", without!("bench")),
    #[cfg(not(feature = "openvpn"))]
    ("openvpn", without!("openvpn")),
    #[cfg(not(feature = "secgw"))]
    ("secgw", without!("secgw")),
];

const IMAGE: &str = "upgrade the system with its own packages, as apt-get upgrade; Postern is one, and its configuration stays";

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

/// The error for a command about images of the system, whose first word may be that of a program: `install image`.
pub(crate) fn image(words: &[&str]) -> Option<String> {
    let is_image = |known: &str| known.split(' ').eq(words.iter().copied().take(known.split(' ').count()));
    let (known, _) = ELSEWHERE.iter().find(|(known, fix)| *fix == IMAGE && is_image(known))?;
    Some(format!("`{known}` is not a command of postern\n  fix: {IMAGE}"))
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
            ("add system image https://example.org/image.iso", "apt-get upgrade"),
            ("show ip route", "ip route show table all"),
            ("commit", "postern configure"),
        ] {
            let said = said(line).unwrap_or_default();
            assert!(said.starts_with('`') && said.contains("\n  fix: ") && said.contains(fix), "{said}");
        }
        assert_eq!(said("show interfaces wireguard wg0 sumary"), None, "clap reports the wrong word");
        assert_eq!(said("show log tail 100"), None, "this is one of ours");
        assert_eq!(said("show interfaces openvpn vtun0"), None, "this is one of ours");
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
