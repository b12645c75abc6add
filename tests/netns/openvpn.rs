//! OpenVPN with ourselves at both ends.

use crate::openvpn_ends::{
    Program, SERVER_END, ciphers, configuration, end_to_end, end_to_end_over, ends_because_of, moves,
    relayed, renewals, renewals_over, two_clients, write_keys,
};
use crate::support::postern;
use std::process::Command;

#[test]
fn ours_with_ours_carries_data_and_survives_the_death_of_either_end() {
    end_to_end([Program::Ours; 2]);
}

#[test]
fn ours_with_ours_loses_nothing_when_keys_are_renewed() {
    renewals([Program::Ours; 2]);
}

#[test]
fn ours_with_ours_carries_data_over_tcp_and_survives_the_death_of_either_end() {
    end_to_end_over("tcp", [Program::Ours; 2]);
}

#[test]
fn ours_with_ours_loses_nothing_over_tcp_when_keys_are_renewed() {
    renewals_over("tcp", [Program::Ours; 2]);
}

#[test]
fn ours_with_ours_agrees_on_every_cipher_and_limit_of_tls() {
    ciphers([Program::Ours; 2]);
}

#[test]
fn a_client_of_ours_that_moves_keeps_its_session() {
    moves(Program::Ours);
}

#[test]
fn clients_of_ours_reach_each_other_from_their_own_addresses() {
    two_clients(Program::Ours);
}

#[test]
fn clients_of_ours_reach_each_other_in_the_data_path() {
    relayed(Program::Ours, "udp");
}

#[test]
fn a_client_ends_if_the_server_wants_more_in_the_tunnel_than_is_served() {
    let option = "route 10.0.0.0 255.0.255.0";
    ends_because_of(Program::Ours, option, &format!("\"{option}\" is not served"));
}

#[test]
fn settings_that_are_not_served_yet_end_the_command_with_their_names() {
    let files = tempfile::tempdir().expect("a directory");
    write_keys(&files);
    let path = files.path().join("server.conf");
    std::fs::write(&path, configuration(&files, SERVER_END, "refused0", None)).expect("written");
    let run = |more: &[&str]| {
        let mut command = Command::new(postern());
        command.args(["openvpn", "--config"]).arg(&path).args(more);
        command.output().expect("it starts")
    };
    let valid = run(&["--check"]);
    assert!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stderr));
    for more in [&["--shaper", "100000"][..]] {
        // What is served after all would run for ever without it.
        for check in [&["--check"][..], &[]] {
            let refused = run(&[more, check].concat());
            let told = String::from_utf8_lossy(&refused.stderr);
            let name =
                more.iter().rfind(|word| word.starts_with("--")).expect("literal").trim_start_matches("--");
            let line = format!("command line: {name}: not served yet");
            assert!(told.contains(&line) && told.contains("fix: "), "{more:?}: {told}");
            assert_eq!(refused.status.code(), Some(1), "{more:?}");
        }
    }
}
