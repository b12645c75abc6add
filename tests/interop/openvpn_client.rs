//! A client of ours with a server of OpenVPN 2.6.

use crate::openvpn_client_ends::{
    follows_a_name, hostile_server, name_servers, passwords, redirects, routes,
};
use crate::openvpn_ends::Program;

#[test]
fn our_client_has_a_password_and_then_a_token() {
    passwords();
}

#[test]
fn everything_of_our_client_goes_through_the_tunnel_to_a_stock_server() {
    redirects(Program::Stock);
}

#[test]
fn routes_of_our_client_lead_where_a_stock_server_says() {
    routes(Program::Stock);
}

#[test]
fn a_hostile_stock_server_takes_nothing_but_what_is_its_own() {
    hostile_server(Program::Stock);
}

#[test]
fn name_servers_of_a_stock_server_are_set_and_put_back() {
    name_servers(Program::Stock);
}

#[test]
fn our_client_follows_the_name_of_a_stock_server() {
    follows_a_name(Program::Stock);
}
