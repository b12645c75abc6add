//! `system log`, typed: how much the daemon logs, and of which subsystem more or less.

use crate::tree::Tree;
use std::collections::BTreeMap;
use std::str::FromStr;

/// How much is logged: what is at least so urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what has failed.
    Error,
    /// Also what is probably wrong.
    Warning,
    /// Also what has changed.
    Info,
    /// Also what is of use only while something is sought.
    Debug,
}

impl FromStr for LogLevel {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "error" => Ok(Self::Error),
            "warning" => Ok(Self::Warning),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => Err(()),
        }
    }
}

/// The levels that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// That of all subsystems without one of their own; none for that of the environment.
    pub level: Option<LogLevel>,
    /// Those of subsystems, by their names.
    pub subsystems: BTreeMap<String, LogLevel>,
}

impl Log {
    pub(super) fn new(root: &Tree) -> Self {
        let mut log = Self::default();
        // VyOS: 0 is usual, 1 and 2 are for debugging. A level of this program's own words has precedence.
        let number = |parent: &str, word| root.at(&["vpn", "ipsec", parent])?.value(word);
        let number = number("log", "level").or_else(|| number("logging", "log-level"));
        if number.is_some_and(|number| number != "0") {
            log.subsystems.insert("ipsec".to_owned(), LogLevel::Debug);
        }
        let Some(tree) = root.at(&["system", "log"]) else { return log };
        let level = |tree: &Tree| tree.value("level")?.parse().ok();
        log.level = level(tree);
        for (name, subsystem) in tree.at(&["subsystem"]).into_iter().flat_map(Tree::children) {
            if let Some(level) = level(subsystem) {
                log.subsystems.insert(name.to_owned(), level);
            }
        }
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &str) -> Log {
        Log::new(&crate::parse::parse(lines).expect("it is right"))
    }

    #[test]
    fn levels_are_of_all_or_of_a_subsystem_and_those_of_vyos_are_of_ipsec() {
        let set = log("set system log level warning\nset system log subsystem openvpn level debug");
        assert_eq!(
            (set.level, set.subsystems.get("openvpn")),
            (Some(LogLevel::Warning), Some(&LogLevel::Debug))
        );
        assert_eq!(log("set vpn ipsec log level 0"), Log::default());
        for line in ["set vpn ipsec log level 2", "set vpn ipsec logging log-level 1"] {
            assert_eq!(log(line).subsystems.get("ipsec"), Some(&LogLevel::Debug), "{line}");
        }
        let both = log("set vpn ipsec log level 2\nset system log subsystem ipsec level error");
        assert_eq!(both.subsystems.get("ipsec"), Some(&LogLevel::Error));
    }
}
