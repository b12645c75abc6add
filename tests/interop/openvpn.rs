//! With OpenVPN 2.6, which is the client or the server.

use crate::openvpn_ends::{
    Program, ciphers, end_to_end, end_to_end_over, ends_because_of, moves, relayed, renewals, renewals_over,
    two_clients,
};
use crate::openvpn_sites::sites;

const OUR_SERVER: [Program; 2] = [Program::Stock, Program::Ours];
const OUR_CLIENT: [Program; 2] = [Program::Ours, Program::Stock];

#[test]
fn our_server_carries_data_of_a_stock_client_and_survives_the_death_of_either_end() {
    end_to_end(OUR_SERVER);
}

#[test]
fn our_server_carries_data_of_a_stock_client_over_tcp() {
    end_to_end_over("tcp", OUR_SERVER);
}

#[test]
fn our_server_loses_nothing_over_tcp_when_keys_of_a_stock_client_are_renewed() {
    renewals_over("tcp", OUR_SERVER);
}

#[test]
fn our_client_carries_data_of_a_stock_server_over_tcp() {
    end_to_end_over("tcp", OUR_CLIENT);
}

#[test]
fn our_client_loses_nothing_over_tcp_when_keys_of_a_stock_server_are_renewed() {
    renewals_over("tcp", OUR_CLIENT);
}

#[test]
fn our_client_carries_data_of_a_stock_server_and_survives_the_death_of_either_end() {
    end_to_end(OUR_CLIENT);
}

#[test]
fn our_server_and_a_stock_client_agree_on_every_cipher_and_limit_of_tls() {
    ciphers(OUR_SERVER);
}

#[test]
fn our_client_and_a_stock_server_agree_on_every_cipher_and_limit_of_tls() {
    ciphers(OUR_CLIENT);
}

#[test]
fn our_server_loses_nothing_when_keys_of_a_stock_client_are_renewed() {
    renewals(OUR_SERVER);
}

#[test]
fn our_client_loses_nothing_when_keys_of_a_stock_server_are_renewed() {
    renewals(OUR_CLIENT);
}

#[test]
fn two_stock_clients_reach_each_other_in_the_data_path() {
    relayed(Program::Stock, "udp");
}

#[test]
fn stock_clients_in_udp_and_over_tcp_reach_each_other_through_one_server() {
    relayed(Program::Stock, "tcp");
}

#[test]
fn a_stock_site_that_is_the_client_of_tls_is_carried() {
    sites([Program::Stock, Program::Ours]);
}

#[test]
fn a_stock_site_that_is_the_server_of_tls_is_carried() {
    sites([Program::Ours, Program::Stock]);
}

#[test]
fn a_stock_client_that_moves_keeps_its_session() {
    moves(Program::Stock);
}

#[test]
fn a_stock_client_and_one_of_ours_reach_each_other() {
    two_clients(Program::Stock);
}

#[test]
fn our_client_ends_if_a_stock_server_wants_more_in_the_tunnel_than_is_served() {
    let option = "redirect-gateway def1 unknown";
    ends_because_of(Program::Stock, option, &format!("\"{option}\" is not served"));
}
