//! The table agrees with itself, and the command line with the table.

use super::complete::candidates;
use super::*;
use crate::Cli;
use clap::{CommandFactory, Parser};
use std::path::Path;

fn is_read(line: &str) -> bool {
    Cli::try_parse_from(line.split(' ')).is_ok()
}

#[test]
fn every_path_names_its_arguments_and_every_word_has_help() {
    for entry in all_entries() {
        let in_path: Vec<&str> = entry.words().filter(|word| is_argument(word)).collect();
        let declared: Vec<&str> = entry.arguments.iter().map(|argument| argument.name).collect();
        assert_eq!(in_path, declared, "{}", entry.path);
        assert!(!entry.about.is_empty() && !entry.about.ends_with('.'), "{}", entry.path);
        let words: Vec<&str> = entry.words().collect();
        for length in 1..words.len() {
            let path = &words[..length];
            let is_entry = all_entries().any(|other| other.words().eq(path.iter().copied()));
            let has_help = is_entry || is_argument(path[length - 1]) || about_words(path).is_some();
            assert!(has_help, "{}: {:?} has no help", entry.path, path);
        }
    }
    for (path, _) in table::WORDS {
        let is_used = all_entries().any(|entry| entry.path.starts_with(&format!("{path} ")));
        assert!(is_used, "{path} is not the beginning of a command");
    }
}

#[test]
fn every_entry_can_be_typed() {
    for entry in all_entries() {
        let words = entry.words().map(|word| if is_argument(word) { "7" } else { word });
        let line = words.collect::<Vec<_>>().join(" ");
        let cli = Cli::try_parse_from(["postern"].into_iter().chain(line.split(' ')).chain(["--json"]));
        let crate::Verb::Operational(command) = cli.expect(&line).verb else { panic!("{line}") };
        assert!(command.is(entry.path, entry.arguments.len()), "{line}");
    }
    assert!(is_read("postern show drops --all") && !is_read("postern show offloads --all"));
}

#[test]
fn both_spellings_of_vyos_are_read() {
    assert!(
        is_read("postern reset vpn ipsec site-to-site peer berlin")
            && is_read("postern reset vpn ipsec-peer all")
    );
    assert!(!is_read("postern reset vpn ipsec site-to-site peer"));
    assert!(!is_read("postern reset vpn ipsec-peer berlin tunnel x"), "a tunnel is a number");
    assert!(!is_read("postern explain interfaces wireguard peer berlin"), "the interface is missing");
    assert!(
        !is_read("postern show") && !is_read("postern show vpn") && !is_read("postern show vpn ipsec sa x")
    );
}

#[test]
fn help_names_what_can_follow() {
    let mut root = Cli::command();
    root.build();
    let mut at = &mut root;
    for word in ["show", "vpn", "ike"] {
        at = at.find_subcommand_mut(word).expect(word);
    }
    let help = at.render_help().to_string();
    assert!(help.contains("secrets  Show the authentication method of each peer"), "{help}");
}

#[test]
fn candidates_are_words_of_the_table_and_ciphers() {
    // A socket on which nothing listens: there are no names, and no error.
    let nowhere = || Some(Path::new("/nonexistent/postern.sock").to_owned());
    let words = |before: &str, last: &str| -> Vec<String> {
        let before: Vec<&str> = before.split_whitespace().collect();
        candidates(&before, last, nowhere()).into_iter().map(|it| it.word).collect()
    };
    assert_eq!(words("", "re"), ["reload", "reboot", "reset", "restart"]);
    assert_eq!(words("show interfaces loopback", "l"), ["lo"]);
    assert_eq!(words("show vpn ipsec", "st"), ["state", "status"]);
    assert_eq!(words("explain interfaces wireguard wg0", ""), ["peer"]);
    assert_eq!(words("reset vpn", ""), ["ipsec"], "an older spelling is not offered");
    assert_eq!(words("show crypto", "aes-128-g"), ["aes-128-gcm"]);
    assert_eq!(words("show vpn debug peer", ""), Vec::<String>::new());
    let about = candidates(&["show"], "vpn", nowhere()).remove(0).about;
    assert_eq!(about, "IPsec peers and tunnels");
}
